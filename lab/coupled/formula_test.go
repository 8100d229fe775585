// SPDX-License-Identifier: Apache-2.0

package coupled

import (
	"math"
	"math/rand/v2"
	"testing"
)

// drawPaths draws a connection of one to eight subflows.
func drawPaths(r *rand.Rand) []Path {
	paths := make([]Path, MaxPaths)
	for _, i := range r.Perm(MaxPaths)[:1+r.IntN(MaxPaths)] {
		paths[i] = Path{Window: 1 + uint64(math.Exp(r.Float64()*11)), RTT: uint64(1000 * math.Exp(r.Float64()*6)),
			Quality: uint64(math.Exp(r.Float64() * 12))}
		if r.IntN(4) == 0 { // ties
			paths[i].Window, paths[i].Quality = 20, 100
		}
	}
	return paths
}

// TestIncrease compares the integers with the formulas of the documents in floating point.
func TestIncrease(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		paths := drawPaths(r)
		own := r.IntN(MaxPaths)
		if paths[own].Window == 0 {
			continue
		}
		w, rtt := float64(paths[own].Window), float64(paths[own].RTT)
		var sum, maxRate, maxSquare float64
		for _, p := range paths {
			x := float64(p.Window) / float64(p.RTT)
			sum, maxRate, maxSquare = sum+x, max(maxRate, x), max(maxSquare, x/float64(p.RTT))
		}
		base, alpha := w/rtt/rtt/sum/sum, maxRate/(w/rtt)
		lia := min(maxSquare/sum/sum, 1/w)
		balia := base * (1 + alpha) / 2 * (4 + alpha) / 5
		if alpha > 100 || rtt > 50*minRTT(paths) {
			continue
		}
		// Ratios of round trips have twelve bits, and results 22.
		if got := float64(LIA.Increase(paths, own)) / One; math.Abs(got-lia) > 0.1*lia+2./One {
			t.Fatalf("LIA: increase %.3g, want %.3g\n%+v, own %d", got, lia, paths, own)
		}
		if got := float64(BALIA.Increase(paths, own)) / One; math.Abs(got-balia) > 0.15*balia+(1+alpha)*(4+alpha)/5/One {
			t.Fatalf("BALIA: increase %.3g, want %.3g\n%+v, own %d", got, balia, paths, own)
		}
	}
}

func minRTT(paths []Path) float64 {
	least := math.Inf(1)
	for _, p := range paths {
		if p.Window > 0 {
			least = min(least, float64(p.RTT))
		}
	}
	return least
}

// TestOnePathIsReno checks that a connection of one subflow behaves like Reno with each algorithm.
func TestOnePathIsReno(t *testing.T) {
	for a := range algorithms {
		paths := []Path{{Window: 64, RTT: 40_000, Quality: 500}, {}}
		if got := a.Increase(paths, 0); got != One/64 {
			t.Errorf("%v: increase %d, want %d", a, got, One/64)
		}
		if got := a.AfterLoss(paths, 0); got != 32 {
			t.Errorf("%v: window after a loss %d, want 32", a, got)
		}
		if got := a.Increase(paths, 1); got != 0 {
			t.Errorf("%v: no subflow grows by %d", a, got)
		}
		if got := a.AfterLoss([]Path{{Window: 1, RTT: 1}}, 0); got != 2 {
			t.Errorf("%v: least window %d, want 2", a, got)
		}
	}
}

// TestEqualPathsShare checks that two subflows over equal paths grow together as half of one TCP
// connection does on each: each by a quarter of its own Reno.
func TestEqualPathsShare(t *testing.T) {
	for a := range algorithms {
		paths := []Path{{Window: 64, RTT: 40_000, Quality: 500}, {Window: 64, RTT: 40_000, Quality: 500}}
		if got := a.Increase(paths, 1); got != One/256 {
			t.Errorf("%v: increase %d, want %d", a, got, One/256)
		}
	}
}

// TestOLIA checks that it moves window from the largest subflow to a better one.
func TestOLIA(t *testing.T) {
	paths := []Path{{Window: 100, RTT: 50_000, Quality: 100}, {Window: 10, RTT: 50_000, Quality: 1000}}
	large, better := OLIA.Increase(paths, 0), OLIA.Increase(paths, 1)
	// base is window/110² here; the terms are 1/(2·100) and 1/(2·10).
	if want := float64(100./110/110 - 1./200); math.Abs(float64(large)/One-want) > 1e-5 {
		t.Errorf("the largest subflow grows by %.5f, want %.5f", float64(large)/One, want)
	}
	if want := float64(10./110/110 + 1./20); math.Abs(float64(better)/One-want) > 1e-5 {
		t.Errorf("the better subflow grows by %.5f, want %.5f", float64(better)/One, want)
	}
	paths[0].Quality = 2000
	if got := OLIA.Increase(paths, 0); got != One*100/110/110 {
		t.Errorf("without a better one the largest grows by %d, want %d", got, One*100/110/110)
	}
}

// TestBALIA checks what a loss costs a slow and a fast subflow.
func TestBALIA(t *testing.T) {
	paths := []Path{{Window: 100, RTT: 50_000}, {Window: 10, RTT: 50_000}}
	if got := BALIA.AfterLoss(paths, 0); got != 50 {
		t.Errorf("the fast subflow has %d packets after a loss, want 50", got)
	}
	if got := BALIA.AfterLoss(paths, 1); got != 3 { // 10 − 7
		t.Errorf("the slow subflow has %d packets after a loss, want 3", got)
	}
}

// TestNames checks that each algorithm is found by its name.
func TestNames(t *testing.T) {
	for a := range algorithms {
		if got, ok := Named(a.String()); !ok || got != a {
			t.Errorf("%v: %v, %v", a, got, ok)
		}
	}
	if _, ok := Named("cubic"); ok {
		t.Error("cubic is not coupled")
	}
}
