// SPDX-License-Identifier: Apache-2.0

package network

import (
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/lab/vary"
)

// TestShortQueueOnTrains checks that a short queue makes the gaps at the app shorter when a carrier stalls, and the
// download no longer.
func TestShortQueueOnTrains(t *testing.T) {
	const trains = 6
	var gaps, took [2]time.Duration
	for seed := range uint64(trains) {
		for i, mobile := range []bool{false, true} {
			train := NewTrain(4000+seed, vary.HighSpeedTrain, time.Minute)
			train.Network.Mobile = mobile
			r, failed := train.DownloadOverStalls("auto", nil)
			if failed != "" {
				t.Fatal(failed)
			}
			took[i] += r.Took
			for _, s := range r.Stalls {
				gaps[i] += s.Gap
			}
		}
	}
	t.Logf("gaps %v, with a short queue %v; downloads %v, %v", gaps[0], gaps[1], took[0], took[1])
	if gaps[1] > gaps[0]*9/10 || took[1] > took[0]*102/100 {
		t.Errorf("with a short queue gaps of %v instead of %v, downloads of %v instead of %v", gaps[1], gaps[0], took[1],
			took[0])
	}
}

// TestShortQueueBesideRival checks that a bond gets a share of a queue that a flow of CUBIC fills.
func TestShortQueueBesideRival(t *testing.T) {
	const rate = 20 * unit.Mbps
	for _, queue := range []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second} {
		var share [2]float64
		for i, mobile := range []bool{false, true} {
			link := Link{Rates: []RateStep{{0, rate}}, Delay: 25 * time.Millisecond, Queue: rate.Bytes(queue)}
			n := &Network{Seed: 1, Mobile: mobile, Paths: []Path{{"direct", []Hop{{Name: "ps", Up: link, Down: link}}}}}
			rival := &rival{}
			w := &Workload{Size: 50 * unit.MB, Streams: 1, Objects: 1}
			r := RunBond(n, "auto", w, Options{Control: ChosenByHop, rival: rival})
			if r.Err != "" {
				t.Fatal(r.Err)
			}
			share[i] = float64(w.Size) / float64(unit.Bytes(rival.received)+w.Size)
		}
		t.Logf("queue of %v: %.0f %% of the link, with a short queue %.0f %%", queue, 100*share[0], 100*share[1])
		if share[1] < share[0]/2 {
			t.Errorf("queue of %v: %.0f %% of the link, with a short queue %.0f %%", queue, 100*share[0], 100*share[1])
		}
	}
}
