package lte

import (
	"fmt"
	"strings"
	"testing"

	"mpbond/pbe/cell"
	"mpbond/pbe/lte/tbs"
)

// heard is a recording with a cell that is followed.
type heard struct {
	receiver *Receiver
	samples  []complex64 // of whole frames, from the first subframe on
}

// listen finds the cell in samples, whose subframes begin with the first one.
func listen(b *testing.B, samples []complex64, size int) heard {
	r, err := NewReceiver(size * spacing)
	if err != nil {
		b.Fatal(err)
	}
	r.Feed(samples)
	r.Close()
	if _, ok := r.Cell(); !ok {
		b.Fatal("no cell")
	}
	frame := 10 * subframeLen(size)
	return heard{r, samples[:len(samples)/frame*frame]}
}

// measure feeds the recording again and again, and reports by subframe; a
// subframe is a millisecond.
func (h heard) measure(b *testing.B) {
	r := h.receiver
	dcis, subframes, words := 0, 0, r.decoder.words
	r.Heard = func(s *Subframe) { dcis += len(s.DCIs); subframes++ }
	sub := subframeLen(r.size)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		at := i * sub % len(h.samples)
		r.Feed(h.samples[at : at+sub])
	}
	if subframes < b.N-2 {
		b.Fatalf("%d of %d subframes", subframes, b.N)
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/1000, "ms/subframe")
	b.ReportMetric(float64(dcis)/float64(b.N), "DCIs/op")
	b.ReportMetric(float64(r.decoder.words-words)/float64(b.N), "words/op")
}

// BenchmarkSubframe decodes subframes of cells in which three to six messages are
// sent each, at 20 dB, as fast as it can.
func BenchmarkSubframe(b *testing.B) {
	for _, c := range []struct{ prb, ports, size int }{{25, 2, 512}, {50, 2, 1024}, {100, 2, 2048}} {
		b.Run(fmt.Sprintf("%dPRB", c.prb), func(b *testing.B) {
			tx := newTransmitter(Cell{ID: 44, PRB: c.prb, Ports: c.ports, Sixths: 6}, c.size, 1)
			for i := range 20 {
				tx.subframe(i/10, i%10, 3)
			}
			samples := tx.over(air{gain: [2]complex128{1, complex(0.3, 0.9)}, echo: 0.2, delay: c.size / 250, snr: 20})
			listen(b, samples, c.size).measure(b)
		})
	}
}

// BenchmarkGiven decodes the given vectors that begin with a subframe, and where the
// carrier stays.
func BenchmarkGiven(b *testing.B) {
	for _, v := range vectors(b) {
		if !strings.Contains(v.name, "cfo") {
			b.Run(v.name, func(b *testing.B) { listen(b, v.samples, v.size).measure(b) })
		}
	}
}

// BenchmarkStep does the steps of one work each.
func BenchmarkStep(b *testing.B) {
	for _, v := range vectors(b) {
		if v.cell.Ports != 2 || v.cell.PRB < 50 {
			continue
		}
		h := listen(b, v.samples, v.size)
		d, sub := h.receiver.decoder, subframeLen(v.size)
		var works []*Work
		for i := range len(h.samples) / sub {
			w := newWork(d)
			w.sub.Index = (v.tti + i) % 10
			d.follow(w, w.track(h.samples[i*sub:][:sub], 0))
			w.Decode()
			works = append(works, w)
		}
		for _, step := range []struct {
			name string
			do   func(i int, w *Work)
		}{
			{"follow", func(i int, w *Work) { d.follow(w, w.track(h.samples[i*sub:][:sub], 0)) }},
			{"MIB, one in ten", func(i int, w *Work) { d.readMIB(w, h.samples[i*sub:][:sub]) }},
			{"spectrum", func(_ int, w *Work) { w.spectrum(4, 5); w.spectrum(1, w.sub.CFI) }},
			{"channels", func(_ int, w *Work) { w.channels() }},
			{"control", func(_ int, w *Work) { w.control() }},
			{"soften", func(_ int, w *Work) { w.soften() }},
			{"search", func(_ int, w *Work) { w.blind.search(w.bits, w.elements, w.sub.Index) }},
			{"done", func(_ int, w *Work) { d.done(w) }},
		} {
			b.Run(v.name+"/"+step.name, func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					step.do(i%len(works), works[i%len(works)])
				}
			})
		}
	}
}

// BenchmarkTransmit makes samples of subframes with a grant for all of the cell,
// through fading.
func BenchmarkTransmit(b *testing.B) {
	for _, c := range []struct{ prb, size int }{{15, 256}, {25, 512}, {50, 1024}, {100, 2048}} {
		tx, err := NewTransmitter(Cell{ID: 44, PRB: c.prb, Ports: 2, Sixths: 6}, c.size*spacing, EPA(5, 1200, 20, 1), 1)
		if err != nil {
			b.Fatal(err)
		}
		block := cell.Block{MCS: 20, Size: cell.Bits(tbs.Size(18, c.prb))}
		g := []cell.Grant{{RNTI: 0x4601, Format: cell.Format2, PRB: uint8(c.prb), N: 2, Blocks: [2]cell.Block{block, block}}}
		b.Run(fmt.Sprintf("%dPRB", c.prb), func(b *testing.B) {
			for n := int64(0); b.Loop(); n++ {
				tx.Subframe(n, g)
			}
		})
	}
}
