package probe

import (
	"os"
	"strconv"
	"strings"
)

// Busy measures how busy this system's processors are, all programs together.
type Busy struct{ work, all uint64 }

// StartBusy begins.
func StartBusy() Busy {
	b, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(b), "\n")
	return parseBusy(line)
}

// Share is the part of the time since StartBusy, 0 to 1, in which they worked; 0
// where the system does not tell.
func (s Busy) Share() float64 { return s.share(StartBusy()) }

func (s Busy) share(now Busy) float64 {
	if now.all <= s.all || now.work < s.work {
		return 0
	}
	return min(1, float64(now.work-s.work)/float64(now.all-s.all))
}

// parseBusy reads the first line of /proc/stat (proc(5)): user, nice, system,
// idle, iowait, irq, softirq and steal, in ticks.
func parseBusy(line string) (b Busy) {
	f := strings.Fields(line)
	if len(f) < 9 || f[0] != "cpu" {
		return Busy{}
	}
	for i, text := range f[1:9] {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return Busy{}
		}
		b.all += n
		if i != 3 && i != 4 {
			b.work += n
		}
	}
	return b
}
