// SPDX-License-Identifier: Apache-2.0

package allowance

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/control/policy"
)

func TestChoice(t *testing.T) {
	for text, want := range map[string]Choice{
		"50MB": {Daily: 50e6}, " 1.5 GB ": {Daily: 15e8}, "caps": {Caps: true}, "unlimited": {Unlimited: true},
		"permit permits.example.org:7605": {Permit: "permits.example.org:7605"}, "permit\t[::1]:1": {Permit: "[::1]:1"},
	} {
		var c Choice
		if err := c.UnmarshalText([]byte(text)); err != nil || c != want {
			t.Errorf("%q: %+v, %v", text, c, err)
		}
		var again Choice
		if err := again.UnmarshalText([]byte(c.String())); err != nil || again != c {
			t.Errorf("%q is written as %q", text, c)
		}
	}
	for _, text := range []string{"", "permit", "permit ", "permits.example.org:1", "permita:1", "permit a b",
		"50", "-5MB", "cap", "1kB"} {
		var c Choice
		if err := c.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is taken for %+v", text, c)
		}
	}
}

// at returns a time on a day of 2026.
func at(date string, hour int) time.Time {
	d, err := time.ParseInLocation(time.DateOnly, date, time.UTC)
	if err != nil {
		panic(err)
	}
	return d.Add(time.Duration(hour) * time.Hour)
}

// historyOfMonths returns the history of the months before a day, newest first: the given owner's
// use of each, spread evenly, and as much again for onloading.
func historyOfMonths(before time.Time, resetDay int, used ...unit.Bytes) History {
	h := History{}
	from, _ := policy.Month(before, resetDay)
	for _, u := range used {
		begin, until := policy.Month(from.Add(-time.Second), resetDay)
		days := unit.Bytes(math.Round(until.Sub(begin).Hours() / 24))
		for d := begin.Add(12 * time.Hour); d.Before(until); d = d.AddDate(0, 0, 1) {
			h[d.Format(time.DateOnly)] = Day{2 * u / days, u / days}
		}
		from = begin
	}
	return h
}

const gb = 1000 * 1000 * 1000

// TestTrack checks that the limit of a day follows the estimate of 3GOL, and is zero without enough
// known months.
func TestTrack(t *testing.T) {
	steady := []unit.Bytes{6 * gb, 6 * gb, 6 * gb, 6 * gb, 6 * gb}
	swaying := []unit.Bytes{6 * gb, 6.1 * gb, 5.9 * gb, 6.2 * gb, 5.8 * gb}
	sigma := math.Sqrt((0 + 0.1*0.1*2 + 0.2*0.2*2) / 4)
	for _, c := range []struct {
		name  string
		now   time.Time
		plan  Plan
		used  []unit.Bytes
		today History // of this month, if any
		want  float64 // GB
		why   string
	}{
		{"steady", at("2026-06-10", 9), Plan{Cap: 10 * gb}, steady, nil, 4. / 30, "left 4 GB a month unused"},
		{"a long month", at("2026-07-31", 23), Plan{Cap: 10 * gb}, steady, nil, 4. / 31, ""},
		{"February", at("2026-02-01", 0), Plan{Cap: 10 * gb}, steady, nil, 4. / 28, ""},
		{"reset day 31", at("2026-03-01", 0), Plan{Cap: 10 * gb, ResetDay: 31}, steady, nil, 4. / 31, ""},
		{"swaying", at("2026-06-10", 9), Plan{Cap: 10 * gb}, swaying, nil, (4 - 4*sigma) / 30,
			"standard deviation of 158 MB"},
		{"swaying much", at("2026-06-10", 9), Plan{Cap: 10 * gb},
			[]unit.Bytes{9 * gb, 2 * gb, 7 * gb, 1 * gb, 5 * gb}, nil, 0, "too uncertain"},
		{"all is used", at("2026-06-10", 9), Plan{Cap: 10 * gb}, []unit.Bytes{10 * gb, 11 * gb, 12 * gb, 10 * gb,
			10 * gb}, nil, 0, "too uncertain"},
		{"older months count no more", at("2026-06-10", 9), Plan{Cap: 10 * gb},
			append(steady[:5:5], 10*gb, 1*gb), nil, 4. / 30, ""},
		{"four months", at("2026-06-10", 9), Plan{Cap: 10 * gb}, steady[:4], nil, 0, "of 4 months is known, and 5"},
		{"nothing", at("2026-06-10", 9), Plan{Cap: 10 * gb}, nil, nil, 0, "of 0 months is known"},
		{"bills", at("2026-06-10", 9), Plan{Cap: 10 * gb, Bills: []policy.Volume{1 * gb, 6 * gb, 6 * gb, 6 * gb, 6 * gb,
			6 * gb}}, nil, nil, 4. / 30, ""},
		{"bills of those before", at("2026-06-10", 9), Plan{Cap: 10 * gb,
			Bills: []policy.Volume{5 * gb, 5 * gb, 5 * gb}}, steady[:2], nil, 4.6/30 - 4*math.Sqrt(.3)/30, ""},
		{"a month that uses more", at("2026-06-10", 9), Plan{Cap: 10 * gb}, steady,
			History{"2026-06-02": {AllBytes: 9.95 * gb}}, .05, ""},
		{"it was onloaded already", at("2026-06-10", 9), Plan{Cap: 10 * gb}, steady,
			History{"2026-06-02": {AllBytes: 9.9 * gb}, "2026-06-10": {AllBytes: .08 * gb, OnloadBytes: .08 * gb}},
			.1, ""},
		{"a month that has used all", at("2026-06-10", 9), Plan{Cap: 10 * gb}, steady,
			History{"2026-06-02": {AllBytes: 10 * gb}}, 0, "used up for this month"},
	} {
		h := historyOfMonths(c.now, max(c.plan.ResetDay, 1), c.used...)
		for day, d := range c.today {
			h[day] = d
		}
		got := c.plan.DayLimit(c.now, h)
		if diff := float64(got.Bytes)/gb - max(c.want, 0); math.Abs(diff) > 1e-5 || got.Unlimited ||
			!strings.Contains(got.Reason, c.why) || (got.Err() == nil) != (c.want > 0) {
			t.Errorf("%s: %.6f GB instead of %.6f: %s", c.name, float64(got.Bytes)/gb, c.want, got.Reason)
		}
	}
}

// TestTrackGaps checks that unknown days count like the known ones, and that a month with too many
// of them is unknown.
func TestTrackGaps(t *testing.T) {
	now, plan := at("2026-06-10", 9), Plan{Cap: 10 * gb}
	for missing, want := range map[int]float64{0: 4. / 30, 7: 4. / 30, 8: 0, 31: 0} {
		h := historyOfMonths(now, 1, 6*gb, 6*gb, 6*gb, 6*gb, 6*gb)
		for d := range missing {
			delete(h, at("2026-05-01", 0).AddDate(0, 0, d).Format(time.DateOnly))
		}
		if got := plan.DayLimit(now, h); math.Abs(float64(got.Bytes)/gb-want) > 1e-5 {
			t.Errorf("%d days of May missing: %+v, want %.3f GB", missing, got, want)
		}
	}
}

// TestTrackYear checks that over years of varying days, with the allowance used up, a plan is never
// exceeded, and that an owner with steady use hardly ever runs short.
func TestTrackYear(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 9))
	plan := Plan{Cap: 10 * gb, ResetDay: 17}
	h, onloaded, over := History{}, unit.Bytes(0), 0
	var month unit.Bytes
	for now := at("2026-01-17", 12); now.Before(at("2030-01-17", 0)); now = now.AddDate(0, 0, 1) {
		if now.Day() == plan.ResetDay {
			if month > unit.Bytes(plan.Cap) {
				over++
			}
			month = 0
		}
		own := unit.Bytes(200e6 * (1 + .3*r.NormFloat64())) // 6 GB a month
		day := now.Format(time.DateOnly)
		today := plan.DayLimit(now, h).Bytes
		h[day] = Day{AllBytes: own + today, OnloadBytes: today}
		onloaded, month = onloaded+today, month+own+today
	}
	if over > 0 || onloaded < 40*gb {
		t.Errorf("%d months over the cap, %v onloaded in 43", over, policy.Volume(onloaded))
	}
}

// TestHolder follows a permit in virtual time.
func TestHolder(t *testing.T) {
	zero := at("2026-06-10", 9)
	sec := func(n float64) time.Time { return zero.Add(time.Duration(n * float64(time.Second))) }
	var h Holder
	check := func(n float64, free bool, next float64, why string) {
		t.Helper()
		got := h.DayLimit(sec(n))
		if got.Unlimited != free || got.Bytes != 0 || (got.Err() == nil) != free ||
			!strings.Contains(got.Reason, why) || h.Expiry(sec(n)).IsZero() == free {
			t.Errorf("%v s: %+v", n, got)
		}
		if next >= 0 && !h.NextRequest().Equal(sec(next)) {
			t.Errorf("%v s: asks at %v, want %v", n, h.NextRequest(), sec(next))
		}
	}
	check(0, false, -1, "not responded yet")
	if !h.NextRequest().IsZero() {
		t.Error("no request at once")
	}
	h.NoteFailure(sec(0), errors.New("no route"))
	check(0, false, 5, "no route")
	h.NoteFailure(sec(5), errors.New("no route"))
	check(5, false, 15, "no route")
	h.NoteGrant(sec(15), 100*time.Second)
	check(15, true, 65, "until 09:01:55")
	h.NoteFailure(sec(65), errors.New("no route"))
	check(65, true, 70, "no route") // valid until it expires, and no longer
	check(114.9, true, 70, "")
	check(115, false, 70, "no route")
	h.NoteGrant(sec(120), 100*time.Second)
	h.NoteRefusal(sec(170), "the cell is loaded by 90 %", 25*time.Second)
	check(170, false, 195, "loaded by 90 %") // at once
	h.NoteRefusal(sec(195), "again", 0)
	check(195, false, 205, "again")
	for range 20 {
		h.NoteFailure(sec(1000), errors.New("x"))
	}
	check(1000, false, 1120, "x")
	h.NoteGrant(sec(2000), 30*24*time.Hour) // whatever it says
	check(2000, true, 3800, "")
	check(5599, true, 3800, "")
	check(5600, false, 3800, "")
	check(1999, false, -1, "") // the clock was set back: valid for longer than its life
}

// TestHolderRestarts checks that a permit survives a restart for its remaining life, whatever the
// clock does meanwhile.
func TestHolderRestarts(t *testing.T) {
	now := at("2026-06-10", 9)
	var h Holder
	kept := h.NoteGrant(now, 5*time.Minute)
	line, err := json.Marshal(kept)
	if err != nil {
		t.Fatal(err)
	}
	for after, want := range map[time.Duration]bool{0: true, 4 * time.Minute: true, 5 * time.Minute: false,
		24 * time.Hour: false, -time.Second: false, -24 * time.Hour: false} {
		var p Permit
		if err := json.Unmarshal(line, &p); err != nil {
			t.Fatal(err)
		}
		var again Holder
		again.Restore(p, now.Add(after))
		if got := again.DayLimit(now.Add(after)).Unlimited; got != want {
			t.Errorf("%v later: %v", after, got)
		}
		if !again.NextRequest().IsZero() {
			t.Errorf("%v later: no request at once", after)
		}
	}
	var forged Holder
	forged.Restore(Permit{now.Add(24 * time.Hour), 48 * time.Hour}, now)
	if forged.DayLimit(now).Unlimited {
		t.Error("a permit of two days was restored")
	}
}

// TestIssuer checks that permits are granted below the threshold, up to the limit, while the load
// is known.
func TestIssuer(t *testing.T) {
	now := at("2026-06-10", 9)
	i := NewIssuer(Rules{Threshold: .7, Life: time.Minute, MaxPermits: 2}, "north", "south")
	ask := func(after time.Duration, device, cell string, want bool, why string) {
		t.Helper()
		if a := i.RequestPermit(now.Add(after), device, cell); a.Granted != want || !strings.Contains(a.Reason, why) ||
			a.Granted == (a.Life == 0) || a.Granted == (a.RetryAfter > 0) {
			t.Errorf("%v, %s in %q: %+v", after, device, cell, a)
		}
	}
	ask(0, "a", "north", false, "is unknown")
	i.SetLoad("north", .69, now)
	i.SetLoad("west", .1, now)
	i.SetLoad("north", 1.1, now)
	i.SetLoad("north", math.NaN(), now)
	ask(0, "a", "north", true, "")
	ask(0, "b", "south", false, "is unknown")
	ask(0, "b", "", false, "does not know the cell")
	ask(0, "b", "north", true, "")
	ask(0, "c", "north", false, "2 devices")
	ask(time.Second, "a", "north", true, "") // renewed
	ask(31*time.Second, "a", "north", false, "is unknown")
	i.SetLoad("north", .7, now.Add(32*time.Second))
	ask(32*time.Second, "b", "north", false, "is 70 %")
	i.SetLoad("north", .2, now.Add(40*time.Second))
	ask(40*time.Second, "c", "north", false, "2 devices") // b may have missed its refusal
	ask(40*time.Second, "b", "north", true, "")
	i.SetLoad("north", .2, now.Add(101*time.Second))
	ask(101*time.Second, "a", "north", true, "") // both permits have expired

	kept := i.HeldPermits(now.Add(101 * time.Second))
	if len(kept) != 1 || kept[0].Device != "a" || kept[0].Cell != "north" {
		t.Errorf("%+v", kept)
	}
	again := NewIssuer(Rules{Threshold: .7, Life: time.Minute, MaxPermits: 1}, "north")
	kept = append(kept, HeldPermit{"x", "gone", now, now.Add(time.Hour)},
		HeldPermit{"y", "north", now, now.Add(time.Hour)}, HeldPermit{"z", "north", now, now})
	again.Restore(now.Add(110*time.Second), kept)
	again.SetLoad("north", .2, now.Add(110*time.Second))
	if a := again.RequestPermit(now.Add(110*time.Second), "b", ""); a.Granted ||
		!strings.Contains(a.Reason, "1 devices") {
		t.Errorf("after a restart: %+v", a)
	}
	if a := again.RequestPermit(now.Add(110*time.Second), "a", ""); !a.Granted {
		t.Errorf("after a restart: %+v", a)
	}
}

// TestMany simulates devices that cause the load of their cell, with lost responses and restarts of
// both sides. There are never too many permits, none lasts longer than a life after the cell was
// loaded, and all requesting devices get some.
func TestMany(t *testing.T) {
	const devices, most, life = 12, 4, 40 * time.Second
	rules := Rules{Threshold: .7, Life: life, MaxPermits: most}
	for seed := range uint64(6) {
		r := rand.New(rand.NewPCG(seed, 1))
		i, zero := NewIssuer(rules, "c"), at("2026-06-10", 9)
		var hold [devices]Holder
		var kept [devices]Permit
		var had [devices]int
		var loadedSince time.Time
		for n := range 3600 {
			now := zero.Add(time.Duration(n) * time.Second)
			load, free := .4, 0
			if n%900 >= 600 { // other devices arrive
				load = .9
			}
			for d := range hold {
				if hold[d].DayLimit(now).Unlimited {
					free++
					had[d]++
				}
			}
			load = min(load+.05*float64(free), 1)
			i.SetLoad("c", load, now)
			if load < rules.Threshold {
				loadedSince = time.Time{}
			} else if loadedSince.IsZero() {
				loadedSince = now
			}
			if free > most || free > 0 && !loadedSince.IsZero() && now.Sub(loadedSince) > life {
				t.Fatalf("seed %d, %d s: %d permits, loaded since %v", seed, n, free, loadedSince)
			}
			for d := range hold {
				if r.IntN(300) == 0 { // restart with the stored permit
					hold[d] = Holder{}
					hold[d].Restore(kept[d], now)
				}
				if now.Before(hold[d].NextRequest()) {
					continue
				}
				if r.IntN(5) == 0 {
					hold[d].NoteFailure(now, errors.New("lost"))
					continue
				}
				a := i.RequestPermit(now, fmt.Sprint(d), "")
				switch lost := r.IntN(5) == 0; {
				case lost: // the answer
					hold[d].NoteFailure(now, errors.New("lost"))
				case a.Granted:
					kept[d] = hold[d].NoteGrant(now, a.Life)
				default:
					hold[d].NoteRefusal(now, a.Reason, a.RetryAfter)
					kept[d] = Permit{}
				}
			}
			if r.IntN(200) == 0 {
				again := NewIssuer(rules, "c")
				again.Restore(now, i.HeldPermits(now))
				again.SetLoad("c", load, now)
				i = again
			}
		}
		for d, n := range had {
			if n == 0 {
				t.Errorf("seed %d: device %d never had a permit", seed, d)
			}
		}
	}
}
