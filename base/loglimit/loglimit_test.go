// SPDX-License-Identifier: Apache-2.0

package loglimit

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestLimiter checks that a flood makes one line per kind and minute, with its count, and that rare
// events are logged at once.
func TestLimiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := New(slog.New(slog.NewTextHandler(&out, nil)))
		lines := func() (list []string) {
			for line := range strings.Lines(out.String()) {
				_, line, _ = strings.Cut(line, " ")
				list = append(list, strings.TrimSpace(line))
			}
			out.Reset()
			return list
		}
		l.Log(slog.LevelInfo, "a", "refused", "from", 0)
		l.Log(slog.LevelWarn, "b", "dropped")
		if got := lines(); len(got) != 2 || got[0] != "level=INFO msg=refused from=0" ||
			got[1] != "level=WARN msg=dropped" {
			t.Errorf("the first ones: %q", got)
		}
		for i := range 300 { // five minutes
			l.Log(slog.LevelInfo, "a", "refused", "from", i)
			time.Sleep(time.Second)
		}
		synctest.Wait()
		got, sum := lines(), 0
		for _, line := range got {
			var from, count int
			if _, err := fmt.Sscanf(line, "level=INFO msg=refused from=%d count=%d", &from, &count); err != nil {
				t.Error(line, err)
			}
			sum += count
		}
		if len(got) != 5 || sum != 300 {
			t.Errorf("of a flood: %q", got)
		}
		time.Sleep(10 * time.Minute)
		if got := lines(); len(got) != 0 {
			t.Errorf("of nothing: %q", got)
		}
		l.Log(slog.LevelInfo, "a", "refused", "from", "x")
		if got := lines(); len(got) != 1 || got[0] != "level=INFO msg=refused from=x" {
			t.Errorf("after it: %q", got)
		}
		for i := range 10 * maxKinds {
			l.Log(slog.LevelInfo, fmt.Sprint(i), "odd")
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if n := len(l.kinds); n > maxKinds+1 || len(lines()) > maxKinds+2 {
			t.Errorf("%d kinds are remembered", n)
		}
	})
}
