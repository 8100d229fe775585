// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"math"
	"testing"
)

// TestMulticast checks that subframes without reference signals after symbol 0, as for multicast,
// are decoded as well as others, and do not disturb time, carrier and noise.
func TestMulticast(t *testing.T) {
	const subframes = 120
	for _, c := range []struct {
		prb, size int
		snr       float64
	}{{25, 512, 15}, {15, 256, 25}} {
		for _, which := range [][]int{nil, {1}, {1, 2, 3, 6, 7, 8}} {
			tx := newTransmitter(Cell{ID: 302, PRB: c.prb, Ports: 2, PHICHSixths: 6}, c.size, 5)
			truth := map[string]int{}
			for i := range subframes {
				tx.subframe(500+i/10, i%10, 1+i%2)
			}
			for _, s := range tx.sent {
				truth[s.d.key(&Subframe{SFN: 500 + s.subframe/10, Index: s.subframe % 10})] = s.subframe
			}
			for _, index := range which {
				tx.multicast[index] = true
			}
			short, snr := 0, 0.0
			r, err := NewReceiver(c.size * subcarrierSpacing)
			if err != nil {
				t.Fatal(err)
			}
			received, wrong := 0, 0
			r.OnSubframe = func(s *Subframe) {
				snr += s.SNR / subframes
				for i := range s.DCIs {
					if _, ok := truth[s.DCIs[i].key(s)]; ok {
						received++
					} else {
						wrong++
					}
				}
			}
			r.Dispatch = func(w *DecodeTask) {
				if w.estimator.isMulticast {
					short++
				}
				w.Decode()
				r.Finish(w)
			}
			r.Feed(tx.transmitThrough(t, NewEPAChannel(5, 500, c.snr, 3)))
			r.Close()
			t.Logf("%d PRB, %v dB, %v: %d of %d received, %d wrong, %d short, mean %.1f dB, %.0f Hz", c.prb, c.snr,
				which, received, len(truth), wrong, short, snr, r.Offset())
			if received < len(truth)*98/100 || wrong > 1 || short < len(which)*subframes/10*98/100 || len(which) == 0 &&
				short > 0 || math.Abs(r.Offset()-500) > 20 {
				t.Errorf("%d PRB, %v: too little", c.prb, which)
			}
		}
	}
}
