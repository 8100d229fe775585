package primary

import (
	"testing"
	"time"
)

func TestAwaited(t *testing.T) {
	for _, c := range []struct {
		what                      string
		broken, stalled, hopeless bool
		back                      time.Duration
		want                      bool
	}{
		{"a pipe that is well", false, false, false, time.Hour, false},
		{"a stalled pipe", false, true, false, time.Hour, true},
		{"a pipe that has stalled for too long", false, true, true, time.Hour, false},
		{"a broken pipe", true, false, false, time.Hour, true},
		{"a broken pipe in the last moments of its window", true, false, true, time.Hour, true},
		{"a pipe that has just come back", false, false, false, time.Second, true},
		{"a pipe that came back in the last moments of its window", false, false, true, time.Second, true},
		{"a pipe that has been back for long", false, false, true, silentLimit, false},
	} {
		if got := awaited(c.broken, c.stalled, c.hopeless, c.back); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}
