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
	purposes     = map[string]string{"primary": "direct", "helper1": "hs-path", "server": "subflow"}
	countedLinks = map[string][]string{"primary": {"ps"}, "helper1": {"hs1"}, "server": {"ps", "hs1"}}
)

const (
	// uncountedBytes is what else goes by these links in a round: people pair devices.
	uncountedBytes = 300_000
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
	reported, passed int64    // at the end of the round before
	samples          []sample // until it was killed, the last one at that moment
	restartBytes     int64    // passed on when it was started again
	lostTime         time.Duration
}

// passedBytes is what a node's interfaces have passed on, both ways, by their own
// counters.
func (k *killTest) passedBytes(node string) (sum int64) {
	out, err := k.Run(node, "cat", "/proc/net/dev")
	if err != nil {
		k.Error(err)
	}
	for line := range strings.Lines(out) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		for _, link := range countedLinks[node] {
			if f := strings.Fields(rest); name == link && len(f) > 8 {
				rx, _ := strconv.ParseInt(f[0], 10, 64)
				tx, _ := strconv.ParseInt(f[8], 10, 64)
				sum += rx + tx
			}
		}
	}
	return sum
}

// reportedBytes is what a node's mpbond says that its links have carried.
func (k *killTest) reportedBytes(node string) (sum int64) {
	k.Helper()
	c := k.clientFor(node)
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

// checkUsage compares the two for the round that has ended. What was counted before it
// is kept, and nothing is counted twice. What is missing was carried within lost
// before the kill, and that is a second at most; how precisely it is known, on a
// machine that has other work, is for long runs to tell.
func (k *killTest) checkUsage(node string, m *meter) {
	k.Helper()
	used, passed := k.reportedBytes(node), k.passedBytes(node)
	is, says := passed-m.passed, used-m.reported
	if says < 0 || says > is+is/100+uncountedBytes {
		k.Errorf("%s: its links carried %d bytes in this round; it says %d", node, is, says)
	}
	missing := is - says - uncountedBytes
	if n := len(m.samples) - 1; n > 0 {
		i := n
		for i > 0 && missing > m.restartBytes-m.samples[i].bytes {
			i--
		}
		if missing <= m.restartBytes-m.samples[i].bytes {
			m.lostTime = max(m.lostTime, m.samples[n].at.Sub(m.samples[i].at))
		} else {
			k.Errorf("%s: of %d bytes it says %d, though it lived for %v", node, is, says, m.samples[n].at.Sub(m.samples[0].at))
		}
	}
	m.reported, m.passed = used, passed
}
