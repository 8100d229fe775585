// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"testing"
	"time"
)

func TestAwaited(t *testing.T) {
	for _, c := range []struct {
		what             string
		broken, hopeless bool
		stalled, back    time.Duration
		want             bool
	}{
		{"a pipe that is well", false, false, time.Hour, time.Hour, false},
		{"a stalled pipe", false, false, 0, time.Hour, true},
		{"a pipe that has stalled for too long", false, true, 0, time.Hour, false},
		{"a pipe that stalled until a moment ago", false, false, time.Second, time.Hour, true},
		{"a pipe that stalled until a moment ago, silent for too long", false, true, time.Second, time.Hour, false},
		{"a pipe that stalled long ago", false, false, silentLimit, time.Hour, false},
		{"a broken pipe", true, false, time.Hour, time.Hour, true},
		{"a broken pipe at the end of its resume timeout", true, true, time.Hour, time.Hour, true},
		{"a pipe that has just come back", false, false, time.Hour, time.Second, true},
		{"a pipe that came back at the end of its resume timeout", false, true, time.Hour, time.Second, true},
		{"a pipe that has been back for long", false, true, time.Hour, silentLimit, false},
	} {
		if got := shouldAwaitPipe(c.broken, c.hopeless, c.stalled, c.back); got != c.want {
			t.Errorf("%s: %v", c.what, got)
		}
	}
}
