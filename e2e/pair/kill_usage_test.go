// SPDX-License-Identifier: Apache-2.0

package pair

import (
	"strconv"
	"strings"
	"time"

	"mpbond/e2e/rig"
)

// What each node's mpbond counts of its links: all that they carry here, but for
// a little.
var (
	purposes = map[string]string{"primary": "direct", "helper1": "hs-path", "server": "subflow"}
	links    = map[string][]string{"primary": {"ps"}, "helper1": {"hs1"}, "server": {"ps", "hs1"}}
)

const (
	// uncounted is what else goes by these links in a round: people pair devices.
	uncounted = 300_000
	// sampleEvery is how often interfaces are looked at before a kill.
	sampleEvery = 100 * time.Millisecond
)

// sample is what a node's interfaces have passed on at some time.
type sample struct {
	at    time.Time
	bytes int64
}

// meter compares what a node's interfaces pass on with what its mpbond says.
type meter struct {
	used, passed int64    // at the end of the round before
	life         []sample // until it was killed, the last one at that moment
	dead         int64    // passed on when it was started again
	lost         time.Duration
}

// passed is what a node's interfaces have passed on, both ways, by their own
// counters.
func (k *killing) passed(node string) (sum int64) {
	out, err := k.Run(node, "cat", "/proc/net/dev")
	if err != nil {
		k.Error(err)
	}
	for line := range strings.Lines(out) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		for _, link := range links[node] {
			if f := strings.Fields(rest); name == link && len(f) > 8 {
				rx, _ := strconv.ParseInt(f[0], 10, 64)
				tx, _ := strconv.ParseInt(f[8], 10, 64)
				sum += rx + tx
			}
		}
	}
	return sum
}

// used is what a node's mpbond says that its links have carried.
func (k *killing) used(node string) (sum int64) {
	k.Helper()
	c := k.asker(node)
	rig.Eventually(k, func() error {
		u, err := c.Usage(k.Context())
		sum = 0
		for _, d := range u.Days {
			if d.Purpose == purposes[node] {
				sum += int64(d.DownBytes + d.UpBytes)
			}
		}
		return err
	})
	return sum
}

// weigh compares the two for the round that has ended. What was counted before it
// is kept, and nothing is counted twice. What is missing was carried within lost
// before the kill, and that is a second at most; how precisely it is known, on a
// machine that has other work, is for long runs to tell.
func (k *killing) weigh(node string, m *meter) {
	k.Helper()
	used, passed := k.used(node), k.passed(node)
	is, says := passed-m.passed, used-m.used
	if says < 0 || says > is+is/100+uncounted {
		k.Errorf("%s: its links carried %d bytes in this round; it says %d", node, is, says)
	}
	missing := is - says - uncounted
	if n := len(m.life) - 1; n > 0 {
		i := n
		for i > 0 && missing > m.dead-m.life[i].bytes {
			i--
		}
		if missing <= m.dead-m.life[i].bytes {
			m.lost = max(m.lost, m.life[n].at.Sub(m.life[i].at))
		} else {
			k.Errorf("%s: of %d bytes it says %d, though it lived for %v", node, is, says, m.life[n].at.Sub(m.life[0].at))
		}
	}
	m.used, m.passed = used, passed
}
