// SPDX-License-Identifier: Apache-2.0

package pair

import (
	"strconv"
	"strings"
	"time"

	"mpbond/e2e/rig"
)

// The purposes and links that each node's mpbond counts. They carry almost all traffic of this
// test.
var (
	purposes     = map[string]string{"primary": "direct", "helper1": "hs-path", "server": "subflow"}
	countedLinks = map[string][]string{"primary": {"ps"}, "helper1": {"hs1"}, "server": {"ps", "hs1"}}
)

const (
	// uncountedBytes is the other traffic on these links in a round, such as pairing devices.
	uncountedBytes = 300_000
	// sampleEvery is the interval between readings of the interface counters before a kill.
	sampleEvery = 100 * time.Millisecond
)

// sample is the number of bytes that a node's interfaces had passed at a time.
type sample struct {
	at    time.Time
	bytes int64
}

// meter compares the bytes that a node's interfaces pass with those that its mpbond counts.
type meter struct {
	reported, passed int64    // at the end of the last round
	samples          []sample // up to the kill; the last one is at the kill
	restartBytes     int64    // bytes passed when it was started again
	lostTime         time.Duration
}

// passedBytes returns the bytes that a node's interfaces have passed in both directions, from the
// kernel's counters.
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

// reportedBytes returns the bytes that a node's mpbond reports for its links.
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

// checkUsage compares both counts for the round that has ended. Earlier counts must be kept and
// nothing may be counted twice. Missing bytes must have been carried shortly before the kill; the
// test allows one second in the end. On a busy machine only long runs measure that time precisely.
func (k *killTest) checkUsage(node string, m *meter) {
	k.Helper()
	used, passed := k.reportedBytes(node), k.passedBytes(node)
	is, says := passed-m.passed, used-m.reported
	if says < 0 || says > is+is/100+uncountedBytes {
		k.Errorf("%s: its links carried %d bytes in this round, but it counted %d", node, is, says)
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
			k.Errorf("%s: of %d bytes it counted %d, though it lived for %v",
				node, is, says, m.samples[n].at.Sub(m.samples[0].at))
		}
	}
	m.reported, m.passed = used, passed
}
