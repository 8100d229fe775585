// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

const asleep = time.Minute

// Subflows of the published setups, with round trips of 50 and 75 ms.
func newOwnSubflow(r unit.Rate, radio wire.Radio) Subflow {
	return Subflow{Direct: true, Rate: r, Delay: 25 * time.Millisecond, Radio: radio, QuietFor: asleep}
}

func helper(r unit.Rate, radio wire.Radio) Subflow {
	return Subflow{Rate: r, Delay: 38 * time.Millisecond, Radio: radio, QuietFor: asleep}
}

func idle(l Subflow, d time.Duration) Subflow { l.QuietFor = d; return l }
func cold(l Subflow) Subflow                  { l.Window, l.RoundTrip = 14_480, 2*l.Delay; return l }
func withUse(l Subflow) Subflow               { l.InUse, l.QuietFor = true, 0; return l }
func metered(l Subflow) Subflow               { l.Tier = wire.TierBackup; return l }
func withSecondaryTier(l Subflow) Subflow     { l.Tier = wire.TierSecondary; return l }

func TestChoose(t *testing.T) {
	const (
		wifi = wire.RadioWiFi
		lte  = wire.RadioCellular
		none = wire.RadioNone
	)
	w8, w1 := newOwnSubflow(8*unit.Mbps, wifi), newOwnSubflow(unit.Mbps, wifi)
	phone := helper(5*unit.Mbps, lte)
	for _, c := range []struct {
		name     string
		bytes    unit.Bytes
		subflows []Subflow
		want     []bool
		why      string
	}{
		{"a single path", 1e6, []Subflow{phone}, []bool{true}, ReasonOnly},
		{"a single path that costs money", 1e6, []Subflow{metered(phone)}, []bool{true}, ReasonOnly},
		{"cables", 100, []Subflow{newOwnSubflow(8*unit.Mbps, none), helper(5*unit.Mbps, none)}, []bool{true, true},
			ReasonFree},
		{"a message", 200, []Subflow{w8, phone}, []bool{true, false}, ReasonOne},
		{"20 KB, helper asleep", 20e3, []Subflow{w8, phone}, []bool{true, false}, ReasonOne},
		{"20 KB, helper just used", 20e3, []Subflow{w8, idle(phone, 0)}, []bool{true, true}, ReasonHelpers},
		{"20 KB, helper used two seconds ago", 20e3, []Subflow{w8, idle(phone, 2*time.Second)}, []bool{true, false},
			ReasonOne},
		{"20 KB on a poor link: LTE takes longer to wake", 20e3, []Subflow{w1, phone}, []bool{true, false}, ReasonOne},
		{"20 KB on a poor link, helper used two seconds ago", 20e3, []Subflow{w1, idle(phone, 2*time.Second)},
			[]bool{true, true}, ReasonDirect},
		{"50 KB on a poor link: LTE is quicker alone, by less than its energy is worth", 50e3, []Subflow{w1, phone},
			[]bool{true, true}, ReasonDirect},
		{"40 KB on a poor link: LTE would be slower", 40e3, []Subflow{w1, phone}, []bool{true, false}, ReasonOne},
		{"64 KB on a poor link", 64 * unit.KB, []Subflow{w1, phone}, []bool{true, true}, ReasonDirect},
		{"50 KB on a poor cable", 50e3, []Subflow{newOwnSubflow(unit.Mbps, none), phone}, []bool{true, true}, ReasonHelpers},
		{"64 KB", 64 * unit.KB, []Subflow{w8, phone}, []bool{true, false}, ReasonOne},
		{"2 MB", 2 * unit.MB, []Subflow{w8, phone}, []bool{true, true}, ReasonHelpers},
		{"10 MB", 10 * unit.MB, []Subflow{w8, phone}, []bool{true, true}, ReasonHelpers},
		{"a helper that adds 1 %", 2 * unit.MB, []Subflow{w8, helper(80*unit.Kbps, lte)}, []bool{true, false}, ReasonOne},
		{"own LTE asleep, a message", 200, []Subflow{w8, newOwnSubflow(10*unit.Mbps, lte)}, []bool{true, false}, ReasonOne},
		{"own LTE takes too long to wake for 300 KB", 300e3, []Subflow{w8, phone, newOwnSubflow(20*unit.Mbps, lte)},
			[]bool{true, false, false}, ReasonOne},
		{"own LTE first, and it is enough", 1e6, []Subflow{w8, phone, newOwnSubflow(20*unit.Mbps, lte)},
			[]bool{true, false, true},
			ReasonDirect},
		{"all for much", 20 * unit.MB, []Subflow{w8, phone, newOwnSubflow(20*unit.Mbps, lte)}, []bool{true, true, true},
			ReasonHelpers},
		{"it was used when the free one came", 20 * unit.MB, []Subflow{w8, withUse(metered(phone))}, []bool{true, false},
			ReasonTier},
		{"nothing is free", 20 * unit.MB, []Subflow{metered(phone), metered(newOwnSubflow(20*unit.Mbps, lte))},
			[]bool{true, true},
			ReasonHelpers},
		{"nothing is free, a message", 100, []Subflow{metered(phone), metered(newOwnSubflow(20*unit.Mbps, lte))},
			[]bool{false, true},
			ReasonPaid},
		{"own LTE costs money", 20 * unit.MB, []Subflow{w8, metered(newOwnSubflow(20*unit.Mbps, lte))}, []bool{true, false},
			ReasonTier},
		{"nothing is known of rates", 20 * unit.MB, []Subflow{newOwnSubflow(0, wifi), helper(0, lte)}, []bool{true, false},
			ReasonOne},
		{"a helper by a cable is for all, and WiFi takes next to nothing", 200, []Subflow{w8, helper(5*unit.Mbps, none)},
			[]bool{true, true}, ReasonDirect},
		{"64 KB, nothing is known of rates", 64 * unit.KB, []Subflow{cold(w1), cold(phone)}, []bool{true, false}, ReasonOne},
		{"10 MB, nothing is known of rates: what is awake shows soon", 10 * unit.MB, []Subflow{cold(w1), cold(phone)},
			[]bool{true, false}, ReasonOne},
		{"10 MB, nothing is known of the phone", 10 * unit.MB, []Subflow{w1, cold(phone)}, []bool{true, true}, ReasonDirect},
		{"20 KB, nothing is known, helper used two seconds ago", 20e3,
			[]Subflow{cold(w1), idle(cold(phone), 2*time.Second)}, []bool{true, false}, ReasonOne},
		{"no path", 200, nil, nil, ReasonOnly},
	} {
		subflows := slices.Clone(c.subflows)
		why := ChooseSubflows(subflows, Demand{Pending: c.bytes})
		for i := range subflows {
			if subflows[i].Allowed != c.want[i] {
				t.Errorf("%s: subflow %d allowed %v: %s", c.name, i, subflows[i].Allowed, why)
			}
		}
		if why != c.why {
			t.Errorf("%s: %q, want %q", c.name, why, c.why)
		}
	}
}

// TestTiers: a subflow of tier secondary is used when those of tier primary have had no pause for a
// second, or none works. One of tier backup is used when no other works.
func TestTiers(t *testing.T) {
	cable, spare, last := newOwnSubflow(10*unit.Mbps, wire.RadioNone),
		withSecondaryTier(helper(10*unit.Mbps, wire.RadioNone)),
		metered(helper(10*unit.Mbps, wire.RadioNone))
	for _, c := range []struct {
		name     string
		subflows []Subflow
		full     time.Duration
		want     []bool
		why      string
	}{
		{"at first", []Subflow{cable, spare, last}, 0, []bool{true, false, false}, ReasonTier},
		{"for less than a second", []Subflow{cable, spare, last}, 999 * time.Millisecond, []bool{true, false, false},
			ReasonTier},
		{"for a second", []Subflow{cable, spare, last}, time.Second, []bool{true, true, false}, ReasonFree},
		{"when it has just been in use", []Subflow{cable, withUse(spare), last}, 250 * time.Millisecond,
			[]bool{true, true, false}, ReasonFree},
		{"and there was a pause", []Subflow{cable, withUse(spare), last}, 100 * time.Millisecond, []bool{true, false, false},
			ReasonTier},
		{"a backup is not for that", []Subflow{cable, last}, time.Hour, []bool{true, false}, ReasonTier},
		{"no first", []Subflow{spare, last}, 0, []bool{true, false}, ReasonFree},
		{"no first, and the second is full", []Subflow{spare, last}, time.Hour, []bool{true, false}, ReasonFree},
		{"the last", []Subflow{last, last}, 0, []bool{true, true}, ReasonPaid},
	} {
		subflows := slices.Clone(c.subflows)
		why := ChooseSubflows(subflows, Demand{Pending: 10 * unit.MB, BackloggedFor: c.full})
		for i, l := range subflows {
			if l.Allowed != c.want[i] {
				t.Errorf("%s: subflow %d allowed %v", c.name, i, l.Allowed)
			}
		}
		if why != c.why {
			t.Errorf("%s: %q, want %q", c.name, why, c.why)
		}
	}
}

// TestChooseGrowsWithTheBurst: a stream without pauses is bulk. One that always pauses is not,
// however much it has carried in all.
func TestChooseGrowsWithTheBurst(t *testing.T) {
	may := func(pending, burst unit.Bytes) bool {
		subflows := []Subflow{newOwnSubflow(8*unit.Mbps, wire.RadioWiFi), helper(5*unit.Mbps, wire.RadioCellular)}
		ChooseSubflows(subflows, Demand{Pending: pending, Burst: burst})
		return subflows[1].Allowed
	}
	if may(64*unit.KB, 0) || !may(64*unit.KB, 2*unit.MB) {
		t.Error("64 KB that wait at the start, or after 2 MB without a pause: the helper is", may(64*unit.KB, 0),
			may(64*unit.KB, 2*unit.MB))
	}
}

// TestChooseExpects checks that bytes which are known to follow count, in place of as many again as
// were sent.
func TestChooseExpects(t *testing.T) {
	for _, c := range []struct {
		name string
		d    Demand
		both bool
	}{
		{"64 KB", Demand{Pending: 64 * unit.KB}, false},
		{"2 MB will follow", Demand{Pending: 64 * unit.KB, More: 2 * unit.MB, MoreKnown: true}, true},
		{"2 MB were sent", Demand{Pending: 16 * unit.KB, Burst: 2 * unit.MB}, true},
		{"nothing will follow 2 MB", Demand{Pending: 16 * unit.KB, Burst: 2 * unit.MB, MoreKnown: true}, false},
	} {
		subflows := []Subflow{newOwnSubflow(8*unit.Mbps, wire.RadioWiFi), helper(5*unit.Mbps, wire.RadioCellular)}
		ChooseSubflows(subflows, c.d)
		if !subflows[0].Allowed || subflows[1].Allowed != c.both {
			t.Errorf("%s: %v %v; want both %v", c.name, subflows[0].Allowed, subflows[1].Allowed, c.both)
		}
	}
}

// TestChooseNeededIn checks that no energy is spent to have bytes sooner than the app needs them, and
// that they still come as soon as over the best single subflow.
func TestChooseNeededIn(t *testing.T) {
	for _, c := range []struct {
		name       string
		wifi       unit.Rate
		neededIn   time.Duration
		quiet      time.Duration // of LTE
		wlan, wwan bool
	}{
		{"as soon as possible", 20 * unit.Mbps, 0, time.Second, true, true},
		{"in 1.7 s", 20 * unit.Mbps, 1700 * time.Millisecond, time.Second, true, false},
		{"in 0.2 s", 20 * unit.Mbps, 200 * time.Millisecond, time.Second, true, true},
		{"in a minute, and WiFi is slower", 2 * unit.Mbps, time.Minute, time.Second, false, true},
		{"in a minute, and LTE is faster once it is awake", 13 * unit.Mbps, time.Minute, asleep, true, false},
	} {
		subflows := []Subflow{newOwnSubflow(c.wifi, wire.RadioWiFi), newOwnSubflow(15*unit.Mbps, wire.RadioCellular)}
		subflows[1].QuietFor = c.quiet
		d := Demand{Pending: 2 * unit.MB, MoreKnown: true, NeededIn: c.neededIn}
		ChooseSubflows(subflows, d)
		if subflows[0].Allowed != c.wlan || subflows[1].Allowed != c.wwan {
			t.Errorf("needed %s: %v, %v; want %v, %v", c.name, subflows[0].Allowed, subflows[1].Allowed, c.wlan, c.wwan)
		}
		if all := AppendAlternatives(nil, subflows, d); !c.wwan && all[len(all)-1].WhyNot != WhyNotSooner {
			t.Errorf("needed %s: %+v", c.name, all)
		}
	}
}

// TestChooseRepetition checks that a radio wakes for messages that follow each other, if that makes each
// of them faster by enough.
func TestChooseRepetition(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name     string
		bytes    unit.Bytes
		repeated Repetition
		loss     float64
		wifi     time.Duration // delay
		lte      float64       // Mbit/s
		wake     bool
	}{
		{"one range of a song", 512 * unit.KB, Repetition{}, 0, 10 * ms, 25, false},
		{"the second one", 512 * unit.KB, Repetition{1, 512 * unit.KB, 20 * ms}, 0, 10 * ms, 25, false},
		{"the fifth one", 512 * unit.KB, Repetition{4, 512 * unit.KB, 20 * ms}, 0, 10 * ms, 25, true},
		{"large pauses", 100 * unit.KB, Repetition{16, 100 * unit.KB, 400 * ms}, 0, 10 * ms, 25, false},
		{"small objects", 12 * unit.KB, Repetition{16, 12 * unit.KB, 20 * ms}, 0, 10 * ms, 25, false},
		{"small objects, LTE is closer", 12 * unit.KB, Repetition{16, 12 * unit.KB, 20 * ms}, 0, 30 * ms, 25, false},
		{"small objects over WiFi with loss", 12 * unit.KB, Repetition{16, 12 * unit.KB, 20 * ms}, .005, 10 * ms, 25, false},
		{"ranges, and LTE that adds a fifth", 512 * unit.KB, Repetition{16, 512 * unit.KB, 20 * ms}, 0, 10 * ms, 6, false},
		{"ranges that fill a queue", 512 * unit.KB, Repetition{13, 512 * unit.KB, 77 * ms}, .008, 43 * ms, 2.9, false},
		{"a large message after small ones", 600 * unit.KB, Repetition{16, 12 * unit.KB, 20 * ms}, 0, 10 * ms, 25, false},
	} {
		subflows := []Subflow{newOwnSubflow(30*unit.Mbps, wire.RadioWiFi), newOwnSubflow(25*unit.Mbps, wire.RadioCellular)}
		subflows[0].Delay, subflows[1].Delay = c.wifi, 27*ms
		subflows[0].Loss, subflows[0].RoundTrip, subflows[1].Rate = c.loss, 2*c.wifi, unit.Rate(c.lte*float64(unit.Mbps))
		d := Demand{Pending: c.bytes, MoreKnown: true, Repetition: c.repeated}
		if ChooseSubflows(subflows, d); subflows[1].Allowed != c.wake || !subflows[0].Allowed {
			t.Errorf("%s: WiFi %v, LTE %v", c.name, subflows[0].Allowed, subflows[1].Allowed)
		}
		if all := AppendAlternatives(nil, subflows, d); c.wake && all[1].WhyNot != WhyNotRepeat {
			t.Errorf("%s: %+v", c.name, all)
		}
	}
	guessed := []Subflow{newOwnSubflow(30*unit.Mbps, wire.RadioWiFi),
		cold(newOwnSubflow(25*unit.Mbps, wire.RadioCellular))}
	if ChooseSubflows(guessed, Demand{Pending: 512 * unit.KB, MoreKnown: true,
		Repetition: Repetition{16, 512 * unit.KB, 20 * ms}}); guessed[1].Allowed {
		t.Error("LTE wakes for a repetition by a guess of its rate")
	}
	// A queue now is none later.
	subflows := []Subflow{newOwnSubflow(30*unit.Mbps, wire.RadioWiFi), newOwnSubflow(25*unit.Mbps, wire.RadioCellular)}
	subflows[0].Delay, subflows[0].LeastDelay = 60*ms, 10*ms
	subflows[1].Delay, subflows[1].LeastDelay = 27*ms, 27*ms
	if ChooseSubflows(subflows, Demand{Pending: 12 * unit.KB, MoreKnown: true,
		Repetition: Repetition{16, 12 * unit.KB, 20 * ms}}); subflows[1].Allowed {
		t.Error("LTE wakes because WiFi has a queue now")
	}
}

// TestChooseForSlowSource checks that no radio wakes for bytes that the app has not written by the time
// at which others would have carried them.
func TestChooseForSlowSource(t *testing.T) {
	for rate, want := range map[unit.Rate]bool{0: true, 20 * unit.Mbps: false, 200 * unit.Mbps: true} {
		subflows := []Subflow{newOwnSubflow(30*unit.Mbps, wire.RadioWiFi), newOwnSubflow(25*unit.Mbps, wire.RadioCellular)}
		d := Demand{Pending: 64 * unit.KB, More: 8 * unit.MB, MoreKnown: true, SourceRate: rate}
		if ChooseSubflows(subflows, d); subflows[1].Allowed != want || !subflows[0].Allowed {
			t.Errorf("the app writes %v: LTE %v", rate, subflows[1].Allowed)
		}
		if all := AppendAlternatives(nil, subflows, d); !want && all[len(all)-1].WhyNot != WhyNotSource {
			t.Errorf("the app writes %v: %+v", rate, all)
		}
	}
}

// TestChooseAtEndOfSegment checks that the last bytes of a segment that is needed later do not go over
// LTE because the bytes before them are still in the queue of WiFi.
func TestChooseAtEndOfSegment(t *testing.T) {
	for in, want := range map[time.Duration]bool{0: true, time.Second: false} {
		subflows := []Subflow{newOwnSubflow(30*unit.Mbps, wire.RadioWiFi), newOwnSubflow(25*unit.Mbps, wire.RadioCellular)}
		subflows[0].Delay, subflows[0].LeastDelay = 80*time.Millisecond, 10*time.Millisecond
		subflows[1].Delay, subflows[1].QuietFor = 27*time.Millisecond, 5*time.Second
		ChooseSubflows(subflows, Demand{Pending: 20 * unit.KB, MoreKnown: true, NeededIn: in})
		if subflows[1].Allowed != want {
			t.Errorf("needed in %v: LTE %v", in, subflows[1].Allowed)
		}
	}
}

// TestChooseByCeiling checks that a subflow whose rate is not measured is not expected to be faster than
// its packet train.
func TestChooseByCeiling(t *testing.T) {
	for ceiling, want := range map[unit.Rate]bool{0: true, 3 * unit.Mbps: false, 25 * unit.Mbps: true} {
		subflows := []Subflow{newOwnSubflow(30*unit.Mbps, wire.RadioWiFi), cold(newOwnSubflow(unit.Mbps, wire.RadioCellular))}
		subflows[1].Ceiling = ceiling
		ChooseSubflows(subflows, Demand{Pending: 2 * unit.MB, More: 2 * unit.MB, MoreKnown: true})
		if subflows[1].Allowed != want {
			t.Errorf("a train of %v: LTE %v", ceiling, subflows[1].Allowed)
		}
	}
}

// TestChooseAnewAfterPause checks that the price of a subflow in use is reduced only while it carries
// bytes.
func TestChooseAnewAfterPause(t *testing.T) {
	for quiet, want := range map[time.Duration]bool{maxStay / 2: true, 2 * maxStay: false} {
		// LTE saves 16 ms. To keep it awake longer costs 1 J for each second.
		subflows := []Subflow{newOwnSubflow(8*unit.Mbps, wire.RadioWiFi), newOwnSubflow(8*unit.Mbps, wire.RadioCellular)}
		subflows[1].QuietFor, subflows[1].InUse = quiet, true
		if ChooseSubflows(subflows, Demand{Pending: 32 * unit.KB, MoreKnown: true}); subflows[1].Allowed != want {
			t.Errorf("quiet for %v: LTE allowed: %v", quiet, !want)
		}
	}
}

// TestChooseStays: near the edge a choice does not go back and forth, and it
// does end.
func TestChooseStays(t *testing.T) {
	flips, use := 0, false
	rng := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		l := helper(120*unit.Kbps, wire.RadioCellular) // saves 1.5 %, takes 1.3 %
		l.Rate += unit.Rate(rng.IntN(30_000) - 15_000) // as measurements sway
		l.QuietFor, l.InUse = 0, use
		subflows := []Subflow{withUse(newOwnSubflow(8*unit.Mbps, wire.RadioWiFi)), l}
		ChooseSubflows(subflows, Demand{Pending: 10 * unit.MB})
		if subflows[1].Allowed != use {
			use = subflows[1].Allowed
			flips++
		}
	}
	if flips != 1 || !use {
		t.Errorf("%d changes, used %v in the end", flips, use)
	}
	subflows := []Subflow{newOwnSubflow(8*unit.Mbps, wire.RadioWiFi), withUse(helper(5*unit.Mbps, wire.RadioCellular))}
	if ChooseSubflows(subflows, Demand{Pending: 500}); subflows[1].Allowed {
		t.Error("the last bytes of a trickle keep a helper's radio awake")
	}
}

// randomSubflows draws subflows of all kinds.
func randomSubflows(r *rand.Rand) []Subflow {
	subflows := make([]Subflow, 1+r.IntN(6))
	for i := range subflows {
		subflows[i] = Subflow{Direct: r.IntN(2) == 0, Rate: unit.Rate(r.IntN(1e8)) >> r.IntN(20),
			Delay: time.Duration(r.IntN(1e9)) >> r.IntN(10),
			Radio: wire.Radio(r.IntN(len(radioEnergies))), QuietFor: time.Duration(r.Int64N(20e9)),
			Tier: wire.Tier(max(r.IntN(6)-3, 0)), InUse: r.IntN(3) == 0}
		if r.IntN(3) == 0 {
			subflows[i] = cold(subflows[i])
		}
		subflows[i].RoundTrip = max(subflows[i].RoundTrip, time.Duration(r.IntN(1e9))>>r.IntN(10))
		if r.IntN(3) == 0 {
			subflows[i].Loss, subflows[i].Spread = r.Float64()*.3, time.Duration(r.IntN(1e8))
		}
	}
	return subflows
}

// TestChooseProperties, in many random situations: something is always allowed; a tier waits as
// long as it must; the stream completes at most 3 % later than over the best single subflow of the
// usable tiers, whatever the energy; a higher cost never makes a subflow allowed.
func TestChooseProperties(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	for range 50_000 {
		subflows := randomSubflows(r)
		d := Demand{Pending: unit.Bytes(r.IntN(1e8)) >> r.IntN(27), Burst: unit.Bytes(r.IntN(1e8)) >> r.IntN(27),
			BackloggedFor: time.Duration(r.IntN(2)) * fullTime, Upload: r.IntN(2) == 0,
			NeededIn:   time.Duration(max(0, r.Int64N(4e9)-2e9)),
			Repetition: Repetition{max(0, r.IntN(40)-20), unit.Bytes(r.IntN(1e6)), time.Duration(r.IntN(1e9))},
			SourceRate: unit.Rate(max(0, r.Int64N(2e8)-1e8))}
		before := slices.Clone(subflows)
		ChooseSubflows(subflows, d)
		some, most := false, wire.TierBackup
		for _, l := range subflows {
			some = some || l.Allowed
			most = min(most, l.Tier)
		}
		if most == wire.TierPrimary && d.BackloggedFor > 0 {
			most = wire.TierSecondary
		}
		took := finishTime(subflows, d.expectedBytes(), d.comparedMoment())
		for i, l := range subflows {
			if l.Allowed && l.Tier > most || !some {
				t.Fatalf("%+v", subflows)
			}
			if l.Tier > most {
				continue
			}
			one := slices.Clone(before)
			one[i].Allowed = true
			if alone := finishTime(one, d.expectedBytes(), d.comparedMoment()); float64(took) > 1.03*float64(alone)+1e3 {
				t.Fatalf("%v, alone over %d %v: %+v", took, i, alone, subflows)
			}
			if d.Repetition.Count > 0 {
				continue // a sleeping radio then delays the first message alone, and changes the bound for that
			}
			for _, dearer := range []func(*Subflow){
				func(l *Subflow) { l.QuietFor += time.Duration(r.Int64N(20e9)) },
				func(l *Subflow) { l.Tier = min(l.Tier+1, wire.TierBackup) },
				func(l *Subflow) { l.InUse = false },
			} {
				again := slices.Clone(before)
				dearer(&again[i])
				if ChooseSubflows(again, d); again[i].Allowed && !l.Allowed {
					t.Fatalf("subflow %d is allowed because it costs more: %+v, was %+v", i, again, subflows)
				}
			}
		}
	}
}

func TestEnergies(t *testing.T) {
	if w := radioEnergies[wire.RadioCellular].wakeEnergy(asleep); w < 12 || w > 13 {
		t.Errorf("to wake LTE takes %v J", w)
	}
	if w := radioEnergies[wire.RadioCellular].wakeEnergy(time.Second); w < 1 || w > 1.1 {
		t.Errorf("to keep LTE awake for a second takes %v J", w)
	}
	for r, e := range radioEnergies {
		if (e == energy{}) == UsesEnergy(wire.Radio(r)) || UsesEnergy(wire.Radio(r)) && e.source == "" {
			t.Errorf("%v: %+v", wire.Radio(r), e)
		}
	}
}

// TestChooseAllocatesNothing checks that a choice takes no memory.
func TestChooseAllocatesNothing(t *testing.T) {
	subflows := []Subflow{newOwnSubflow(8*unit.Mbps, wire.RadioWiFi), newOwnSubflow(20*unit.Mbps, wire.RadioCellular)}
	subflows[0].Loss, subflows[0].RoundTrip = .01, 50*time.Millisecond
	d := Demand{Pending: unit.MB, NeededIn: time.Second, SourceRate: unit.Mbps,
		Repetition: Repetition{5, unit.MB, time.Millisecond}}
	if n := testing.AllocsPerRun(100, func() { ChooseSubflows(subflows, d) }); n > 0 {
		t.Errorf("%g allocations", n)
	}
}

func BenchmarkChoose(b *testing.B) {
	subflows := []Subflow{newOwnSubflow(8*unit.Mbps, wire.RadioWiFi), newOwnSubflow(20*unit.Mbps, wire.RadioCellular),
		helper(5*unit.Mbps, wire.RadioCellular), helper(5*unit.Mbps, wire.RadioCellular)}
	for _, loss := range []float64{0, .01} {
		b.Run(fmt.Sprintf("loss=%g", loss), func(b *testing.B) {
			for i := range subflows {
				subflows[i].Loss, subflows[i].RoundTrip = loss, 50*time.Millisecond
			}
			for b.Loop() {
				ChooseSubflows(subflows, Demand{Pending: unit.MB, Repetition: Repetition{5, unit.MB, time.Millisecond}})
			}
		})
	}
}
