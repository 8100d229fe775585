// SPDX-License-Identifier: Apache-2.0

package shaper

import (
	"testing"
	"time"

	"mpbond/base/unit"
)

// TestRadio: packets of 1000 bytes at 8 Mbit/s, 1 ms each, arrive after the promotion if the radio
// slept, and as on any line otherwise.
func TestRadio(t *testing.T) {
	const up, down = 0, 1
	type step struct {
		at   time.Duration
		line int
		due  time.Duration // one of several in the same step comes 1 ms after the one before
		n    int
	}
	ms := time.Millisecond
	for _, c := range []struct {
		name  string
		steps []step
	}{
		{"asleep at first", []step{{5 * ms, up, 106 * ms, 1}}},
		{"within the tail", []step{{0, up, 101 * ms, 1}, {1101 * ms, up, 1102 * ms, 1}}},
		{"after the tail", []step{{0, up, 101 * ms, 1}, {1101*ms + 1, up, 1202*ms + 1, 1}}},
		{"the tail begins with what left last", []step{{0, up, 101 * ms, 50}, {1150 * ms, up, 1151 * ms, 1}}},
		{"the other direction wakes it too", []step{{0, up, 101 * ms, 1}, {40 * ms, down, 101 * ms, 1},
			{700 * ms, down, 701 * ms, 1}, {1600 * ms, up, 1601 * ms, 1}}},
		{"and is not awake by itself", []step{{0, down, 101 * ms, 1}, {1200 * ms, up, 1301 * ms, 1},
			{1250 * ms, down, 1301 * ms, 3}}},
	} {
		lines := [2]*Line{New(Program{Base: Setting{Rate: 8 * unit.Mbps, Queue: unit.MB}}, 1),
			New(Program{Base: Setting{Rate: 8 * unit.Mbps, Queue: unit.MB}}, 2)}
		if _, err := NewRadio(100*ms, time.Second, lines[:]...); err != nil {
			t.Fatal(err)
		}
		want := [2][]time.Duration{}
		for _, s := range c.steps {
			for i := range s.n {
				if !lines[s.line].Enqueue(s.at, Packet{Size: 1000}) {
					t.Fatalf("%s: dropped", c.name)
				}
				want[s.line] = append(want[s.line], s.due+time.Duration(i)*ms)
			}
		}
		for i, l := range lines {
			for _, w := range want[i] {
				for { // the line looks again until the packet is there
					at, ok := l.Due()
					if !ok {
						t.Fatalf("%s: nothing comes", c.name)
					}
					if _, due, ok := l.Deliver(at); ok {
						if due != w {
							t.Errorf("%s: line %d: %v, not %v", c.name, i, due, w)
						}
						break
					}
				}
			}
		}
	}
}

// TestRadioBusy: a line with data keeps the radio awake, however slow it is. After a restart the
// radio sleeps.
func TestRadioBusy(t *testing.T) {
	l := New(Program{Base: Setting{Rate: 1000, Queue: unit.MB}}, 1) // 8 s for a packet of 1000 bytes
	if _, err := NewRadio(time.Second, time.Second, l); err != nil {
		t.Fatal(err)
	}
	due := func(now time.Duration) time.Duration {
		t.Helper()
		_, due, ok := l.Deliver(now)
		if !ok {
			t.Fatal("nothing at", now)
		}
		return due
	}
	l.Enqueue(0, Packet{Size: 1000})
	l.Enqueue(5*time.Second, Packet{Size: 1000})
	if a, b := due(30*time.Second), due(30*time.Second); a != 9*time.Second || b != 17*time.Second {
		t.Error(a, b)
	}
	l.StartAt(17*time.Second, 0)
	l.Enqueue(17*time.Second, Packet{Size: 1000})
	slower := unit.Rate(500) // while it still wakes
	l.Apply(17500*time.Millisecond, Change{Rate: &slower})
	if d := due(time.Minute); d != 34*time.Second {
		t.Error("after a restart:", d)
	}
}

// TestRadioGrants: grants of a trace before the radio is awake are missed.
func TestRadioGrants(t *testing.T) {
	l := New(Program{Base: Setting{Queue: unit.MB}, Grants: []time.Duration{0, 30 * time.Millisecond},
		GrantLoop: 50 * time.Millisecond}, 1)
	if _, err := NewRadio(100*time.Millisecond, time.Second, l); err != nil {
		t.Fatal(err)
	}
	l.Enqueue(10*time.Millisecond, Packet{Size: 1500})
	if _, due, ok := l.Deliver(time.Second); !ok || due != 130*time.Millisecond {
		t.Error(due, ok)
	}
	for _, bad := range [][2]time.Duration{{0, 1}, {1, 0}, {-1, 1}} {
		if _, err := NewRadio(bad[0], bad[1]); err == nil {
			t.Error(bad, "was taken")
		}
	}
}
