// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"fmt"
	"testing"
	"time"
)

// benchmarkSteps decodes the subframes of a recording repeatedly, as a continuous stream. It
// reports how much of a subframe's millisecond everything takes, and each step.
func benchmarkSteps(b *testing.B, all []complex64, size int) {
	r, err := NewReceiver(size * subcarrierSpacing)
	if err != nil {
		b.Fatal(err)
	}
	type subframe struct {
		Subframe
		samples []complex64
	}
	var subframes []subframe
	r.OnSubframe = func(s *Subframe) {
		if end := s.Start + int64(subframeLen(size)); s.Start >= 0 && end <= int64(len(all)) {
			subframes = append(subframes, subframe{*s, all[s.Start:end]})
		}
	}
	r.Feed(all)
	r.Close()
	if len(subframes) == 0 {
		b.Fatal("no cell")
	}
	d := r.decoder
	w, words, dcis := d.takeUnusedTask(), d.decodedWords, 0
	names := [...]string{"follow", "spectrum", "channels", "control", "soften", "search", "done"}
	var took [len(names)]time.Duration
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s := &subframes[i%len(subframes)]
		w.subframe = Subframe{Index: s.Index}
		step, last := 0, time.Now()
		lap := func() {
			now := time.Now()
			took[step] += now.Sub(last)
			step, last = step+1, now
		}
		d.smoothNoise(w, w.trackSubframe(s.samples, s.Offset/float64(size*subcarrierSpacing)))
		if s.Index == 0 {
			d.readSubframeMIB(w, s.samples)
		}
		lap()
		w.demodulateSymbols(4, 5)
		lap()
		w.estimateChannels()
		lap()
		w.readSubframeCFI()
		lap()
		last, step = time.Now(), 1
		w.demodulateSymbols(1, min(d.cell.controlSymbols(w.subframe.CFI), 4))
		lap()
		last, step = time.Now(), 4
		w.computeSoftBits()
		lap()
		w.blindDecoder.searchSubframe(w.bits, w.cces, w.subframe.Index)
		lap()
		d.acceptMessages(w)
		lap()
		dcis += len(w.subframe.DCIs)
	}
	n := float64(b.N)
	for i, name := range names {
		b.ReportMetric(float64(took[i].Microseconds())/n, name+"-µs")
	}
	b.ReportMetric(b.Elapsed().Seconds()*1000/n, "ms/ms")
	b.ReportMetric(float64(dcis)/n, "DCIs/op")
	b.ReportMetric(float64(d.decodedWords-words)/n, "words/op")
}

// BenchmarkSubframe decodes cells with up to six messages in a subframe, at 20 dB.
func BenchmarkSubframe(b *testing.B) {
	for _, c := range []struct{ prb, ports, size int }{{25, 2, 512}, {50, 2, 1024}, {75, 2, 1536}, {100, 2, 2048}} {
		b.Run(fmt.Sprintf("%dPRB", c.prb), func(b *testing.B) {
			tx := newTransmitter(Cell{ID: 44, PRB: c.prb, Ports: c.ports, PHICHSixths: 6}, c.size, 1)
			for i := range 20 {
				tx.subframe(i/10, i%10, 3)
			}
			benchmarkSteps(b, tx.transmitOver(air{gain: [2]complex128{1, complex(0.3, 0.9)}, echo: 0.2,
				delay: c.size / 250, snr: 20}), c.size)
		})
	}
}

// BenchmarkGiven decodes the given vectors.
func BenchmarkGiven(b *testing.B) {
	for _, v := range readVectors(b) {
		b.Run(v.name, func(b *testing.B) { benchmarkSteps(b, v.samples, v.size) })
	}
}
