// SPDX-License-Identifier: Apache-2.0

package policy

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/lab/radio"
	"mpbond/link/wire"
)

// look is one look of an EnergyMeter: so long after the one before, those bytes.
type look struct {
	after    time.Duration
	down, up unit.Bytes
}

// every is the same look again and again.
func every(d time.Duration, n int, down, up unit.Bytes) (all []look) {
	for range n {
		all = append(all, look{d, down, up})
	}
	return all
}

// meterOf is a meter of a radio.
func meterOf(kind wire.Radio) *EnergyMeter {
	m := new(EnergyMeter)
	m.SetRadio(kind)
	return m
}

func TestMeter(t *testing.T) {
	const mega = 1_000_000
	join := func(lists ...[]look) (all []look) {
		for _, l := range lists {
			all = append(all, l...)
		}
		return all
	}
	for _, c := range []struct {
		name  string
		radio wire.Radio
		looks []look
		want  unit.Joules // by the constants of the paper, by hand: it wakes in the middle of a look
		awake bool
	}{
		{"never used", wire.RadioCellular, every(time.Second, 100, 0, 0), 0, false},
		{"a cable", wire.RadioNone, every(time.Second, 100, mega, mega), 0, false},
		{"one packet", wire.RadioCellular, join(every(time.Second, 1, 0, 52), every(time.Second, 20, 0, 0)),
			0.31491 + 0.06440 + 0.00018 + 12.27056, false},
		{"one packet, in its tail", wire.RadioCellular, join(every(time.Second, 1, 0, 52), every(time.Second, 5, 0, 0)),
			0.31491 + 0.06440 + 0.00018 + 5.3, true},
		{"a burst that cuts a tail off", wire.RadioCellular,
			[]look{{time.Second, mega, 0}, {10 * time.Second, 0, 0}, {time.Second, mega, 0}, {time.Minute, 0, 0}},
			0.31491 + 1.5*1.28804 + 2*0.41576 + 10.6 + 12.27056, false},
		{"a burst after a tail", wire.RadioCellular, []look{{time.Second, mega, 0}, {12 * time.Second, 0, 0},
			{time.Second, mega, 0}, {time.Minute, 0, 0}},
			2 * (0.31491 + 0.64402 + 0.41576 + 12.27056), false},
		{"10 s at 8 Mbit/s down", wire.RadioCellular, join(every(time.Second/4, 40, mega/4, 0),
			every(time.Second, 20, 0, 0)), 0.31491 + 9.875*1.28804 + 80*0.05197 + 12.27056, false},
		{"10 s at 8 Mbit/s up", wire.RadioCellular, join(every(time.Second/4, 40, 0, mega/4), every(time.Second, 20, 0, 0)),
			0.31491 + 9.875*1.28804 + 80*0.43839 + 12.27056, false},
		{"one packet by WiFi", wire.RadioWiFi, join(every(time.Second, 1, 0, 52), every(time.Second, 2, 0, 0)),
			0.00984 + 0.00664 + 0.00012 + 0.02839, false},
		{"10 s at 8 Mbit/s by WiFi", wire.RadioWiFi, join(every(time.Second/4, 40, mega/4, 0), every(time.Second, 2, 0, 0)),
			0.00984 + 9.875*0.13286 + 80*0.13701 + 0.02839, false},
		{"10 s by Bluetooth", wire.RadioBluetooth, join(every(time.Second, 10, 100_000, 0), every(time.Second, 2, 0, 0)),
			9.5 * 0.173, false},
		{"a clock that goes back", wire.RadioCellular,
			[]look{{time.Second, mega, 0}, {-time.Hour, 0, 0}, {time.Second, 0, 0}}, 0.31491 + 0.64402 + 0.41576 + 1.06, true},
		{"more than there is", wire.RadioCellular, []look{{time.Second, math.MaxInt64 / 2, 0}},
			0.31491 + 0.64402 + 0.05197*math.MaxInt64/2*8e-6, true},
		{"what cannot be", wire.RadioCellular, []look{{time.Second, -5, -5}}, 0, false},
	} {
		m := meterOf(c.radio)
		now := time.Unix(1e9, 0)
		took := m.AddCarried(now, 0, 0)
		for _, l := range c.looks {
			now = now.Add(l.after)
			took += m.AddCarried(now, l.down, l.up)
		}
		if math.Abs(float64(took-c.want)) > 1e-3+1e-9*float64(c.want) || m.IsAwake() != c.awake {
			t.Errorf("%s: %v J and awake %v, want %v J", c.name, float64(took), m.IsAwake(), float64(c.want))
		}
	}
}

// TestMeterFromNothing: before the first look nothing is known; bytes that it comes
// with took the radio to wake.
func TestMeterFromNothing(t *testing.T) {
	m := meterOf(wire.RadioCellular)
	if took := m.AddCarried(time.Unix(1e9, 0), 125_000, 0); math.Abs(float64(took)-0.31491-0.05197) > 1e-4 {
		t.Errorf("%v J", float64(took))
	}
}

// TestSetRadio: the time base survives a change of the kind of radio; a tail does not.
func TestSetRadio(t *testing.T) {
	var m EnergyMeter
	now := time.Unix(1e9, 0)
	looks := func(n int, down unit.Bytes) (took unit.Joules) {
		for range n {
			now = now.Add(time.Second)
			took += m.AddCarried(now, down, 0)
		}
		return took
	}
	if took := looks(3, 125_000); took != 0 || m.IsAwake() || m.Radio() != wire.RadioNone {
		t.Errorf("a radio that is not known took %v", took)
	}
	m.SetRadio(wire.RadioCellular)
	if took := looks(1, 125_000); math.Abs(float64(took)-0.31491-0.64402-0.05197) > 1e-4 || !m.IsAwake() {
		t.Errorf("LTE took %v", took)
	}
	m.SetRadio(wire.RadioCellular)
	if took := looks(1, 0); math.Abs(float64(took)-1.06) > 1e-4 {
		t.Errorf("its tail took %v", took)
	}
	m.SetRadio(wire.RadioWiFi)
	if took := looks(1, 0); took != 0 {
		t.Errorf("WiFi took %v", took)
	}
}

// bursts are packets of transfers with pauses, as people make them.
func bursts(r *rand.Rand) (packets []radio.Packet, n int) {
	var at time.Duration
	n = 1 + r.IntN(6)
	for range n {
		rate := unit.Rate(math.Pow(10, 5.5+2*r.Float64())) // 0.3 to 30 Mbit/s
		size := unit.Bytes(math.Pow(10, 4+3*r.Float64()))  // 10 kB to 10 MB
		for left := min(size, rate.Bytes(20*time.Second)); left > 0; left -= 1500 {
			at += rate.Time(1500)
			packets = append(packets, radio.Packet{At: at, Size: 1500, Up: r.IntN(10) == 0})
		}
		at += time.Duration(math.Pow(10, r.Float64()*1.8) * 1e9) // 1 to 63 s
	}
	return packets, n
}

// measureEnergy returns the energy that an EnergyMeter measures for packets, called as by device.Usage:
// each 250 ms while bytes move, else each second.
func measureEnergy(kind wire.Radio, packets []radio.Packet, phase time.Duration) (took unit.Joules) {
	m := meterOf(kind)
	began := time.Unix(1e9, 0)
	took = m.AddCarried(began.Add(-phase), 0, 0)
	for at, wait, i := -phase, time.Second, 0; i < len(packets) || m.IsAwake(); {
		at += wait
		var down, up unit.Bytes
		for ; i < len(packets) && packets[i].At <= at; i++ {
			if packets[i].Up {
				up += packets[i].Size
			} else {
				down += packets[i].Size
			}
		}
		if wait = time.Second; down+up > 0 {
			wait = time.Second / 4
		}
		took += m.AddCarried(began.Add(at), down, up)
	}
	return took
}

// TestMeterLab: of the same packets the lab's model, which knows the time of each
// one, makes the same within 0.75 s of carrying for each burst, as looks of 1 s
// and 250 ms leave it unknown, and nearly the same on average.
func TestMeterLab(t *testing.T) {
	set, err := radio.FindSet("huang12")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		radio wire.Radio
		kind  radio.Kind
		mean  float64
	}{{wire.RadioCellular, radio.LTE, 0.02}, {wire.RadioWiFi, radio.WiFi, 0.05}} {
		m, err := set.Model(c.kind)
		if err != nil {
			t.Fatal(err)
		}
		e := radioEnergies[c.radio] // the same constants
		for _, same := range [][2]float64{
			{float64(e.promotion), float64(m.Promotion.Power) / 1e3 * m.Promotion.Time.Seconds()},
			{float64(e.tail), float64(m.Tail[0].Power) / 1e3},
			{float64(e.base), float64(m.Base) / 1e3}, {float64(e.down), m.Down / 1e3}, {float64(e.up), m.Up / 1e3},
			{burstGap.Seconds(), m.Inactivity.Seconds()},
		} {
			if math.Abs(same[0]-same[1]) > 1e-4*same[1] {
				t.Errorf("%v: the lab has other constants: %+v, %+v", c.radio, e, m)
			}
		}
		var all, are, worst float64
		for seed := range uint64(100) {
			r := rand.New(rand.NewPCG(seed, 5))
			packets, n := bursts(r)
			e := m.EnergyOf(packets)
			want := float64(e.Full() - e.Idle)
			got := float64(measureEnergy(c.radio, packets, time.Duration(r.Int64N(1e9))))
			bound := float64(n) * 0.75 * float64(radioEnergies[c.radio].base)
			all, are, worst = all+got, are+want, max(worst, math.Abs(got-want)/bound)
			if math.Abs(got-want) > bound {
				t.Errorf("%v, seed %d: %.2f J, the lab makes %.2f J of it, bound %.2f J", c.radio, seed, got, want, bound)
			}
		}
		t.Logf("%v: off by %+.2f %% in all, by %.2f of the bound at most", c.radio, 100*(all/are-1), worst)
		if math.Abs(all/are-1) > c.mean {
			t.Errorf("%v: %.1f J, the lab makes %.1f J of it", c.radio, all, are)
		}
	}
}

// TestMeterLooks: bytes are paid alike however often it is looked, and a radio
// never takes less because it has carried more.
func TestMeterLooks(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 6))
		kind := wire.Radio(r.IntN(len(radioEnergies)))
		var looks []look
		for range 40 {
			l := look{after: time.Duration(r.Int64N(3e9))}
			if r.IntN(3) == 0 {
				l.down, l.up = unit.Bytes(r.Int64N(1e6)), unit.Bytes(r.Int64N(1e5))
			}
			looks = append(looks, l)
		}
		run := func(looks []look, split bool) (took unit.Joules) {
			m := meterOf(kind)
			now := time.Unix(1e9, 0)
			m.AddCarried(now, 0, 0)
			for _, l := range looks {
				if quiet := l.down+l.up == 0; split && quiet {
					took += m.AddCarried(now.Add(l.after/3), 0, 0)
				}
				now = now.Add(l.after)
				took += m.AddCarried(now, l.down, l.up)
			}
			return took
		}
		once := run(looks, false)
		if twice := run(looks, true); math.Abs(float64(once-twice)) > 1e-9 {
			t.Fatalf("seed %d, %v: %v J, and with more looks %v J", seed, kind, once, twice)
		}
		i := r.IntN(len(looks))
		looks[i].down += 1_000_000
		if more := run(looks, false); more < once-1e-9 {
			t.Fatalf("seed %d, %v: %v J, and with 1 MB more %v J", seed, kind, once, more)
		}
	}
}
