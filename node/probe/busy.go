// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"os"
	"strconv"
	"strings"
)

// CPUTimes are the busy and total times of all processors of this system.
type CPUTimes struct{ busy, total uint64 }

// ReadCPUTimes returns the current times, zero if they are unknown.
func ReadCPUTimes() CPUTimes {
	b, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(b), "\n")
	return parseProcStat(line)
}

// BusyShare returns which part of the time since s the processors were busy, from 0 to 1; 0 if
// unknown.
func (s CPUTimes) BusyShare() float64 { return s.busyShareUntil(ReadCPUTimes()) }

func (s CPUTimes) busyShareUntil(now CPUTimes) float64 {
	if now.total <= s.total || now.busy < s.busy {
		return 0
	}
	return min(1, float64(now.busy-s.busy)/float64(now.total-s.total))
}

// parseProcStat reads the first line of /proc/stat (proc(5)): user, nice, system,
// idle, iowait, irq, softirq and steal, in ticks.
func parseProcStat(line string) (b CPUTimes) {
	f := strings.Fields(line)
	if len(f) < 9 || f[0] != "cpu" {
		return CPUTimes{}
	}
	for i, text := range f[1:9] {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return CPUTimes{}
		}
		b.total += n
		if i != 3 && i != 4 {
			b.busy += n
		}
	}
	return b
}
