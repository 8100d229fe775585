// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"mpbond/base/unit"
)

func TestVolume(t *testing.T) {
	for text, want := range map[string]Volume{"500MB": 500e6, "10GB": 10e9, "1.5 GB": 15e8, "1TB": 1e12, "2000kB": 2e6,
		"1GiB": 1 << 30} {
		var v Volume
		if err := v.UnmarshalText([]byte(text)); err != nil || v != want {
			t.Errorf("%q: %d, %v", text, v, err)
		}
	}
	for _, bad := range []string{"", "5", "MB", "-5GB", "1e30TB", "NaNGB", "InfGB", "5Gbit", "999kB", "5 G", "0GB"} {
		if err := new(Volume).UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	for v, want := range map[Volume]string{0: "0 B", 999: "999 B", 999_499: "999 kB", 999_500: "1 MB", 20e6: "20 MB",
		15_340_000: "15.3 MB", 100e6: "100 MB", 2_140_000_000: "2.14 GB", 123e12: "123 TB"} {
		if v.String() != want {
			t.Errorf("%d: %v, want %s", int64(v), v, want)
		}
	}
	for text, want := range map[string]Share{"80%": 0.8, "100%": 1, "2.5 %": 0.025} {
		var s Share
		if err := s.UnmarshalText([]byte(text)); err != nil || math.Abs(float64(s-want)) > 1e-9 {
			t.Errorf("%q: %v, %v", text, s, err)
		}
	}
	for _, bad := range []string{"", "80", "0%", "101%", "x%", "NaN%"} {
		if err := new(Share).UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

func TestCapsOfFile(t *testing.T) {
	for _, c := range []struct {
		spec Caps
		good bool
	}{
		{Caps{}, true}, {Caps{Daily: 1e9}, true}, {Caps{Monthly: 1e9, ResetDay: 31, WarnAt: 0.99}, true},
		{Caps{ResetDay: 5}, false}, {Caps{WarnAt: 0.5}, false}, {Caps{Monthly: 1e9, ResetDay: 32}, false},
		{Caps{Monthly: 1e9, ResetDay: -1}, false},
		{Caps{Daily: 1e9, StopAt: 1}, true}, {Caps{Daily: 1e9, WarnAt: 0.3, StopAt: 0.5}, true},
		{Caps{Daily: 1e9, StopAt: 0.81}, true},
		{Caps{StopAt: 0.9}, false}, {Caps{Daily: 1e9, WarnAt: 0.9, StopAt: 0.9}, false},
		{Caps{Daily: 1e9, StopAt: 0.8}, false}, {Caps{Daily: 1e9, WarnAt: 1}, false},
	} {
		r, err := File{Devices: map[string]DeviceSpec{"wwan0": {Caps: c.spec}}}.Compile()
		if (err == nil) != c.good {
			t.Errorf("%+v: %v", c.spec, err)
		}
		if err == nil && (len(r.Caps()) > 0) != c.spec.HasCap() {
			t.Errorf("%+v: %v", c.spec, r.Caps())
		}
	}
}

func TestEvaluateCaps(t *testing.T) {
	now := at(t, "2026-11-21 12:00:00", "UTC")
	for _, c := range []struct {
		caps         Caps
		today, month unit.Bytes
		want         string
		room         unit.Bytes
	}{
		{Caps{}, 1e12, 1e12, "no cap", 0},
		{Caps{Daily: 100e6}, 0, 1e12, "0 B of the daily cap of 100 MB used, until 2026-11-22 00:00", 99_500_000},
		{Caps{Daily: 100e6}, 79_999_999, 0, "80 MB of the daily cap of 100 MB used, until 2026-11-22 00:00", 19_500_001},
		{Caps{Daily: 100e6}, 99_499_999, 0, "99.5 MB of the daily cap of 100 MB used, until 2026-11-22 00:00", 1},
		{Caps{Daily: 100e6}, 99_500_000, 0, "the daily cap of 100 MB is used up, until 2026-11-22 00:00", 0},
		{Caps{Monthly: 1e9, ResetDay: 15}, 0, 5e8, "500 MB of the monthly cap of 1 GB used, until 2026-12-15 00:00",
			495e6},
		{Caps{Monthly: 1e9}, 0, 2e9, "the monthly cap of 1 GB is used up, until 2026-12-01 00:00", 0},
		{Caps{Daily: 100e6, StopAt: 1}, 99_999_999, 0, "100 MB of the daily cap of 100 MB used, until 2026-11-22 00:00",
			1},
		{Caps{Daily: 100e6, StopAt: 1}, 100e6, 0, "the daily cap of 100 MB is used up, until 2026-11-22 00:00", 0},
		{Caps{Daily: 100e6, WarnAt: 0.4, StopAt: 0.57}, 56_999_999, 0,
			"57 MB of the daily cap of 100 MB used, until 2026-11-22 00:00", 1},
		{Caps{Daily: 100e6, WarnAt: 0.4, StopAt: 0.57}, 57e6, 0,
			"57 MB of the daily cap of 100 MB used, stops at 57 MB, until 2026-11-22 00:00", 0},
		// The nearer cap is reported, and of reached ones the longer one.
		{Caps{Daily: 100e6, Monthly: 1e9}, 10e6, 970e6,
			"970 MB of the monthly cap of 1 GB used, until 2026-12-01 00:00", 25e6},
		{Caps{Daily: 100e6, Monthly: 1e9}, 90e6, 500e6, "90 MB of the daily cap of 100 MB used, until 2026-11-22 00:00",
			9_500_000},
		{Caps{Daily: 100e6, Monthly: 1e9}, 100e6, 1e9, "the monthly cap of 1 GB is used up, until 2026-12-01 00:00", 0},
		{Caps{Daily: 100e6, Monthly: 1e9}, 100e6, 5e8, "the daily cap of 100 MB is used up, until 2026-11-22 00:00", 0},
		{Caps{Daily: 100e6, Monthly: 1e9}, 5e6, 1e9, "the monthly cap of 1 GB is used up, until 2026-12-01 00:00", 0},
		// A warning counts more than less room.
		{Caps{Daily: 100e6, Monthly: 10e9}, 10e6, 9.5e9,
			"9.5 GB of the monthly cap of 10 GB used, until 2026-12-01 00:00", 89_500_000},
	} {
		a := c.caps.Evaluate(now, c.today, c.month)
		if a.String() != c.want || a.Room != c.room {
			t.Errorf("%+v, %d, %d: %v, room %d; want %s, %d", c.caps, c.today, c.month, a, a.Room, c.want, c.room)
		}
	}
	for _, c := range []struct {
		used unit.Bytes
		warn Share
		stop Share
		want CapLevel
	}{{79e6, 0, 0, CapFine}, {80e6, 0, 0, CapWarned}, {49e6, 0.5, 0, CapFine}, {50e6, 0.5, 0, CapWarned},
		{98e6, 0.99, 0, CapFine}, {100e6, 0.99, 0, CapReached}, {1e12, 0, 0, CapReached},
		{89e6, 0, 0.9, CapWarned}, {90e6, 0, 0.9, CapReached}, {99.6e6, 0, 1, CapWarned}} {
		if a := (Caps{Daily: 100e6, WarnAt: c.warn, StopAt: c.stop}).Evaluate(now, c.used, 0); a.Level != c.want {
			t.Errorf("%d, warning at %v, stopping at %v: %v", c.used, c.warn, c.stop, a.Level)
		}
	}
	fine, warned := Caps{Daily: 100e6}.Evaluate(now, 1e6, 0), Caps{Daily: 100e6}.Evaluate(now, 90e6, 0)
	if Stricter(fine, warned) != warned || Stricter(warned, fine) != warned || Stricter(Allowance{}, fine) != fine ||
		Stricter(fine, Allowance{}) != fine {
		t.Error("Stricter does not return the stricter one")
	}
}

// TestCapIsKept: in virtual time, at any rate and round trip, and with any behaviour of the other
// end, a link carries at most 1 % more than its cap, including bytes in flight when its connections
// end.
//
// The other end sends as fast as the link permits while the window has room. A granted window
// cannot be revoked; it reaches the other end after half a round trip, and its bytes arrive after
// another half.
func TestCapIsKept(t *testing.T) {
	for _, rate := range []unit.Rate{1 * unit.Mbps, 8 * unit.Mbps, 20 * unit.Mbps, 60 * unit.Mbps, 100 * unit.Mbps} {
		for _, rtt := range []time.Duration{5 * time.Millisecond, 50 * time.Millisecond, 300 * time.Millisecond} {
			for _, size := range []Volume{20e6, 100e6} {
				for _, conns := range []unit.Bytes{1, 4} {
					name := fmt.Sprintf("%v of %v, round trip %v, %d connections", size, rate, rtt, conns)
					if rate == 1*unit.Mbps && size > 20e6 {
						continue
					}
					t.Run(name, func(t *testing.T) {
						carried, took := spend(rate, rtt, size, conns)
						if off := float64(carried)/float64(size) - 1; off < -0.01 || off > 0.01 {
							t.Errorf("%d are %+.2f %% of the cap", carried, 100*off)
						}
						if best := rate.Time(unit.Bytes(size)); took > best*3/2+20*rtt+5*time.Second {
							t.Errorf("it took %v; at full rate %v", took, best)
						}
					})
				}
			}
		}
	}
}

// spend has a link carry until its cap ends it.
func spend(rate unit.Rate, rtt time.Duration, size Volume, conns unit.Bytes) (carried unit.Bytes, took time.Duration) {
	const step = time.Millisecond
	r := rand.New(rand.NewPCG(7, uint64(rate)))
	caps := Caps{Daily: size}
	start := time.Date(2026, 11, 21, 1, 0, 0, 0, time.UTC)
	wire := make([]unit.Bytes, max(int(rtt/step), 2)) // what arrives at each coming step
	edge, sent := 6*unit.MB, unit.Bytes(0)            // the end of the granted window; bytes sent
	window := unit.Bytes(0)
	next, seen := time.Duration(0), unit.Bytes(0)
	for now := time.Duration(0); ; now += step {
		slot := int(now/step) % len(wire)
		carried += wire[slot]
		wire[slot] = 0
		if now >= next { // look
			a := caps.Evaluate(start.Add(now), carried, carried)
			if a.Level == CapReached {
				for _, b := range wire {
					carried += b
				}
				return carried, now
			}
			again, w := a.Enforcement(unit.RateOf(carried-seen, max(now-next, step)))
			seen, window = carried, 0
			if w > 0 {
				window = a.ConnWindow(w, int(conns), rtt)
			}
			late := r.IntN(3) // steps
			if r.IntN(4) == 0 {
				late = r.IntN(int(maxLateness / step)) // on a busy machine
			}
			next = now + again + time.Duration(late)*step
		}
		may := 6 * unit.MB
		if window > 0 {
			may = min(may, conns*max(window, 2*unit.KB))
		}
		edge = max(edge, carried+may) // nothing is taken back
		n := min(rate.Bytes(step), edge-sent)
		sent += n
		wire[(slot+len(wire)-1)%len(wire)] += n
	}
}

// TestWatch: where nothing is carried, little is left to carry unseen by what
// begins suddenly.
func TestWatch(t *testing.T) {
	now := at(t, "2026-11-21 12:00:00", "UTC")
	for used := unit.Bytes(0); used < 1e9; used += 1e6 {
		a := Caps{Monthly: 1e9}.Evaluate(now, 0, used)
		again, window := a.Enforcement(0)
		if a.Level == CapReached {
			if again != time.Second || window != 0 {
				t.Fatalf("used up: %v, %v", again, window)
			}
			continue
		}
		if n := suddenRate.Bytes(again); n > a.Room && again > idleCheckInterval || again > time.Second {
			t.Fatalf("%v left: %v until the next look", a.Room, again)
		}
		if window > a.Room {
			t.Fatalf("%v left: a window of %v", a.Room, window)
		}
	}
	if again, window := (Allowance{}).Enforcement(unit.Gbps); again != time.Second || window != 0 {
		t.Errorf("without a cap: %v, %v", again, window)
	}
}
