// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"strings"
	"testing"
	"time"
)

func TestSignal(t *testing.T) {
	walk, err := ParseWalk([]string{"1s: -85dBm", "3s: 5dB"}, 4*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	trace, err := ReadSignal(strings.NewReader("# a walk\n1,-85\n3,5dB\n"), 4*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[time.Duration]float64{
		-time.Second: 25, 0: 25, time.Second: 25, 2 * time.Second: 15, 2500 * time.Millisecond: 10,
		3 * time.Second: 5, 3900 * time.Millisecond: 5, 4 * time.Second: 25, 6 * time.Second: 15,
	} {
		for _, s := range []*Signal{walk, trace} {
			if got := s.At(at); got != want {
				t.Errorf("at %v: %v dB, want %v", at, got, want)
			}
		}
	}
	if walk.Best() != 25 || Steady(3).At(time.Hour) != 3 {
		t.Error("best or steady")
	}
}

func TestBadSignals(t *testing.T) {
	for _, s := range []string{"", "18", "dB", "xdBm", "1000dB", "NaNdB", "-85 dbm"} {
		if v, err := ParseLevel(s); err == nil {
			t.Errorf("level %q is %v", s, v)
		}
	}
	for _, c := range []struct {
		points []string
		loop   time.Duration
	}{{nil, 0}, {[]string{"-85dBm"}, 0}, {[]string{"2s: 1dB", "1s: 2dB"}, 0}, {[]string{"-1s: 1dB"}, 0},
		{[]string{"2s: 1dB"}, time.Second}} {
		if _, err := ParseWalk(c.points, c.loop); err == nil {
			t.Errorf("walk %q was taken", c.points)
		}
	}
	for _, s := range []string{"", "x,-85", "1", "1,-85\n1,-86", "1,-85\nNaN,-85"} {
		if _, err := ReadSignal(strings.NewReader(s), 0); err == nil {
			t.Errorf("trace %q was taken", s)
		}
	}
}
