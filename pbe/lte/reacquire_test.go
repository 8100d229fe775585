// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// transmitStream returns n subframes from SFN 700 on, and their messages.
func transmitStream(c Cell, size, n int, a air) (samples []complex64, truth map[string]int) {
	tx := newTransmitter(c, size, 9)
	truth = map[string]int{}
	for i := range n {
		tx.subframe(700+i/10, i%10, 1+i%3)
	}
	for _, s := range tx.sent {
		truth[s.d.key(&Subframe{SFN: 700 + s.subframe/10, Index: s.subframe % 10})] = s.subframe
	}
	return tx.transmitOver(a), truth
}

// account is the result of decoding a stream.
type account struct {
	subframes, gaps int
	received        map[int]int // right messages, by subframe
	wrong           []string
	missing         map[string]int // messages of the truth
	r               *Receiver
}

func receiveStream(t *testing.T, size, piece int, truth map[string]int, samples []complex64) *account {
	t.Helper()
	r, err := NewReceiver(size * subcarrierSpacing)
	if err != nil {
		t.Fatal(err)
	}
	a := &account{received: map[int]int{}, missing: maps.Clone(truth), r: r}
	r.OnSubframe = func(s *Subframe) {
		a.subframes++
		if s.AfterGap {
			a.gaps++
		}
		for i := range s.DCIs {
			k := s.DCIs[i].key(s)
			if at, ok := truth[k]; ok {
				a.received[at]++
				delete(a.missing, k)
			} else {
				a.wrong = append(a.wrong, k)
			}
		}
	}
	for part := range slices.Chunk(samples, piece) {
		r.Feed(part)
	}
	r.Close()
	return a
}

// TestGap checks that after missing or repeated samples the stream is decoded with the right
// numbers from the next whole subframe on, or, if only whole frames are missing, from the next
// frame on.
func TestGap(t *testing.T) {
	for _, c := range []struct {
		cell Cell
		size int
	}{{Cell{ID: 301, PRB: 6, Ports: 1, PHICHSixths: 1}, 128}, {Cell{ID: 77, PRB: 25, Ports: 2, PHICHSixths: 6}, 512}} {
		const n, at = 95, 37 // number of subframes, and the one with the gap
		samples, truth := transmitStream(c.cell, c.size, n, air{gain: [2]complex128{1, 0.8i}, offset: 1700, snr: 20})
		sub := subframeLen(c.size)
		gaps := []int{1, c.size / 32, c.size / 8, c.size, sub, 7*sub + 100, 10 * sub, 20*sub + 1, -sub / 3}
		if c.size > 128 {
			gaps = []int{c.size / 4, 40 * sub, -3 * sub}
		}
		for _, missing := range gaps {
			from := at*sub + sub/3
			cut := slices.Concat(samples[:from], samples[from+missing:])
			a := receiveStream(t, c.size, 777*c.size/128, truth, cut)
			first := at + 1 // must be decoded again
			if missing > 0 {
				first = (from+missing)/sub + 1
			}
			frames := missing > 0 && missing%(10*sub) <= c.size/16 && missing > sub
			if frames {
				first = (first + 9) / 10 * 10
			}
			lost := 0
			for k, in := range truth {
				if (in < at || in > first) && a.received[in] == 0 {
					lost++
					t.Log("lost:", k)
				}
			}
			counts, far := a.r.Counts(), max(missing, -missing) > c.size/16
			if lost > 0 || counts.Found != 1 || counts.Lost > 0 || far != (counts.Reacquired+counts.SFNJumps == 1) ||
				far != (a.gaps == 2) {
				t.Errorf("%d samples missing of %d a subframe: %d gaps, %d lost, %+v", missing, sub, a.gaps, lost,
					counts)
			}
			// The messages of the subframe with the gap may be misread.
			for _, k := range a.wrong {
				if !frames && !strings.HasPrefix(k, fmt.Sprint(7000+at, " ")) {
					t.Errorf("%d samples missing: nobody sent %s", missing, k)
				}
			}
		}
	}
}

// TestFade checks that a cell that fades, or is weaker than another for a while, is the same one
// afterwards, with continuous numbers.
func TestFade(t *testing.T) {
	c := Cell{ID: 301, PRB: 6, Ports: 1, PHICHSixths: 1}
	samples, truth := transmitStream(c, 128, 120, air{gain: [2]complex128{1}, snr: 20})
	sub := subframeLen(128)
	other := shortSignalOf(205, 120, 20)
	noise := gaussianNoise(len(samples), 0.07)
	for _, silent := range []int{2, 9, 30} {
		for name, instead := range map[string][]complex64{"noise": noise, "another cell": other} {
			faded := slices.Clone(samples)
			copy(faded[40*sub:(40+silent)*sub], instead)
			a := receiveStream(t, 128, 5000, truth, faded)
			got, want := 0, 0
			for _, at := range truth {
				if at < 40 || at >= 40+silent {
					want++
					if a.received[at] > 0 {
						got++
					}
				}
			}
			if now, _ := a.r.Cell(); got != want || now != c || a.gaps != 1 || a.subframes != 120 {
				t.Errorf("%s for %d subframes: %d of %d received, %d gaps, %d subframes, %v, %+v", name, silent, got,
					want, a.gaps, a.subframes, now, a.r.Counts())
			}
		}
	}
}

// TestStronger checks that another cell that becomes stronger does not replace the current one as
// long as that can be decoded, and is found when it cannot.
func TestStronger(t *testing.T) {
	c := Cell{ID: 301, PRB: 6, Ports: 1, PHICHSixths: 1}
	samples, truth := transmitStream(c, 128, 150, air{gain: [2]complex128{1}, snr: 20})
	sub := subframeLen(128)
	for i, s := range shortSignalOf(205, 110, 30) {
		switch at := 40*sub + sub/3 + i; {
		case at >= len(samples):
		case i < 30*sub:
			samples[at] += 0.5 * s
		default:
			samples[at] = 0.001*samples[at] + 2*s
		}
	}
	a := receiveStream(t, 128, 10000, truth, samples)
	if now, _ := a.r.Cell(); now.ID != 205 || a.r.Counts().Lost != 1 || a.r.Counts().Found != 2 {
		t.Errorf("%v, %+v", now, a.r.Counts())
	}
}
