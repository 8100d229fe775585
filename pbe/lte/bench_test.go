package lte

import (
	"fmt"
	"testing"
	"time"
)

// steps decodes the subframes of a recording again and again, each as if it were the
// next one, and reports how much of a subframe's millisecond all takes, and each step.
func steps(b *testing.B, all []complex64, size int) {
	r, err := NewReceiver(size * spacing)
	if err != nil {
		b.Fatal(err)
	}
	type subframe struct {
		Subframe
		samples []complex64
	}
	var subframes []subframe
	r.Heard = func(s *Subframe) {
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
	w, words, dcis := d.work(), d.words, 0
	names := [...]string{"follow", "spectrum", "channels", "control", "soften", "search", "done"}
	var took [len(names)]time.Duration
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		s := &subframes[i%len(subframes)]
		w.sub = Subframe{Index: s.Index}
		step, last := 0, time.Now()
		lap := func() {
			now := time.Now()
			took[step] += now.Sub(last)
			step, last = step+1, now
		}
		d.follow(w, w.track(s.samples, s.Offset/float64(size*spacing)))
		if s.Index == 0 {
			d.readMIB(w, s.samples)
		}
		lap()
		w.spectrum(4, 5)
		lap()
		w.channels()
		lap()
		w.control()
		lap()
		last, step = time.Now(), 1
		w.spectrum(1, min(d.cell.symbols(w.sub.CFI), 4))
		lap()
		last, step = time.Now(), 4
		w.soften()
		lap()
		w.blind.search(w.bits, w.elements, w.sub.Index)
		lap()
		d.done(w)
		lap()
		dcis += len(w.sub.DCIs)
	}
	n := float64(b.N)
	for i, name := range names {
		b.ReportMetric(float64(took[i].Microseconds())/n, name+"-µs")
	}
	b.ReportMetric(b.Elapsed().Seconds()*1000/n, "ms/ms")
	b.ReportMetric(float64(dcis)/n, "DCIs/op")
	b.ReportMetric(float64(d.words-words)/n, "words/op")
}

// BenchmarkSubframe decodes cells in which up to six messages are sent in a subframe,
// at 20 dB.
func BenchmarkSubframe(b *testing.B) {
	for _, c := range []struct{ prb, ports, size int }{{25, 2, 512}, {50, 2, 1024}, {75, 2, 1536}, {100, 2, 2048}} {
		b.Run(fmt.Sprintf("%dPRB", c.prb), func(b *testing.B) {
			tx := newTransmitter(Cell{ID: 44, PRB: c.prb, Ports: c.ports, Sixths: 6}, c.size, 1)
			for i := range 20 {
				tx.subframe(i/10, i%10, 3)
			}
			steps(b, tx.over(air{gain: [2]complex128{1, complex(0.3, 0.9)}, echo: 0.2, delay: c.size / 250, snr: 20}), c.size)
		})
	}
}

// BenchmarkGiven decodes the given vectors.
func BenchmarkGiven(b *testing.B) {
	for _, v := range vectors(b) {
		b.Run(v.name, func(b *testing.B) { steps(b, v.samples, v.size) })
	}
}
