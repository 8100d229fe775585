// SPDX-License-Identifier: Apache-2.0

package network

import (
	"testing"
	"time"

	"mpbond/base/unit"
)

// ownLink returns a path over an own link, the same in both directions.
func ownLink(name string, rates []RateStep, rtt time.Duration) Path {
	l := Link{Rates: rates, Delay: rtt / 2, Queue: 100 * unit.KB}
	return Path{name, []Hop{{name, l, l}}}
}

// TestLateDirectSubflow has a short download while one of two own links becomes twenty times slower
// than it was. Its packets go on to arrive, one by one, so that it is never silent. What is late
// goes over the other link too.
func TestLateDirectSubflow(t *testing.T) {
	const begin = 3 * time.Second
	slower := []RateStep{{0, 4 * unit.Mbps}, {startAt + begin - 10*ms, 200 * unit.Kbps}}
	n := &Network{Seed: 1, Changing: true, Paths: []Path{
		ownLink("steady", steady(2*unit.Mbps), 40*ms), ownLink("slower", slower, 40*ms)}}
	w := &Workload{Size: 15 * unit.KB, Streams: 1, Objects: 4, Begin: begin}
	single := RunSingle(n, 0, w, Options{})
	bond := RunBond(n, "auto", w, Options{})
	if bond.Err != "" || bond.Time > 2*single.Time {
		t.Errorf("the bond took %v, the steady link alone %v; %s", bond.Time, single.Time, bond.Err)
	}
}

// TestFallenLocalHop has a download during which the link of the helper becomes ten times slower. TCP's
// window there is still that of the faster link. If it were used, packets would be lost, and the app would wait.
func TestFallenLocalHop(t *testing.T) {
	for _, at := range []time.Duration{time.Second, 2 * time.Second} {
		n := triangle(5, 10, 5)
		n.Changing = true
		hs := &n.Paths[1].Hops[1].Down
		hs.Rates = []RateStep{{0, 10 * unit.Mbps}, {startAt + at, unit.Mbps}}
		r := RunBond(n, "auto", &Workload{Size: 4 * unit.MB, Streams: 1, Objects: 1}, Options{})
		if r.Err != "" || r.Gap > 500*ms || r.Copied > 40*unit.KB {
			t.Errorf("slower after %v: took %v, gap %v, %v copied; %s", at, r.Time, r.Gap, r.Copied, r.Err)
		}
	}
}

// TestJitterEndsSlowStart has a link whose jitter ends CUBIC's slow start long before it is full.
// The hop notices that and changes to BBR.
func TestJitterEndsSlowStart(t *testing.T) {
	l := Link{Rates: steady(100 * unit.Mbps), Delay: 20 * ms, Queue: 800 * unit.KB, Jitter: 20 * ms}
	n := &Network{Seed: 1, Paths: []Path{{"direct", []Hop{{"ps", l, l}}}}}
	w := &Workload{Size: 20 * unit.MB, Streams: 1, Objects: 1}
	took := map[string]time.Duration{}
	for _, control := range []string{"cubic", ChosenByHop} {
		r := runMedianDraw(n, Options{Control: control}, func(o Options) Result { return RunBond(n, "auto", w, o) })
		if took[control] = r.Time; r.Err != "" {
			t.Fatal(control, r.Err)
		}
	}
	t.Log(took)
	if took[ChosenByHop] > took["cubic"]*3/4 {
		t.Errorf("times %v", took)
	}
}

// TestBeginIsDrawn checks that the last of several objects on a changing network has a moment at which
// it is wanted, after the least time of those before it, and others have none.
func TestBeginIsDrawn(t *testing.T) {
	for seed := range uint64(200) {
		n, w := Generate(seed, Limits{})
		before := *w
		before.Objects, before.Size = 1, w.Size*unit.Bytes(w.Objects-1)
		least := time.Duration(0)
		if n.Changing && w.IsWarm() {
			least = Bounds(n, &before).Fluid + time.Duration(w.Objects-1)*w.Pause
		}
		if w.Begin < least || w.Begin > 0 != (least > 0) {
			t.Errorf("seed %d: %v, the objects before take %v", seed, w.Begin, least)
		}
	}
}

// TestBegin checks that the last object is judged from the same moment on, whether the objects
// before it have ended or not.
func TestBegin(t *testing.T) {
	n := &Network{Seed: 1, Changing: true, Paths: []Path{ownLink("link", steady(8*unit.Mbps), 40*ms)}}
	w := &Workload{Size: 100 * unit.KB, Streams: 1, Objects: 3}
	for _, c := range []struct {
		begin, least, most time.Duration
	}{
		{2 * time.Second, 100 * ms, 400 * ms}, // the first two end before
		{50 * ms, 300 * ms, time.Second},      // they do not: that counts too
		{time.Minute, 100 * ms, 400 * ms},     // the connection was idle
	} {
		w.Begin = c.begin
		r := RunSingle(n, 0, w, Options{})
		if r.Err != "" || r.Time < c.least || r.Time > c.most || r.Ended < c.begin+r.Time-ms || r.Ended > c.begin+r.Time+ms {
			t.Errorf("begin %v: took %v, ended after %v; %s", c.begin, r.Time, r.Ended, r.Err)
		}
		if b := Bounds(n, w); b.Fluid > r.Time || b.Fluid < 100*ms {
			t.Errorf("begin %v: bound %v, took %v", c.begin, b.Fluid, r.Time)
		}
	}
}
