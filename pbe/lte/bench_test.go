package lte

import (
	"fmt"
	"testing"
)

// BenchmarkSubframe decodes subframes of cells in which three to six messages are
// sent each, at 20 dB, as fast as it can.
func BenchmarkSubframe(b *testing.B) {
	for _, c := range []struct{ prb, ports, size int }{{25, 2, 512}, {50, 2, 1024}, {100, 2, 2048}} {
		tx := newTransmitter(Cell{ID: 44, PRB: c.prb, Ports: c.ports, Sixths: 6}, c.size, 1)
		for i := range 10 {
			tx.subframe(0, i, 3)
		}
		samples := tx.over(air{gain: [2]complex128{1, complex(0.3, 0.9)}, echo: 0.2, delay: c.size / 250, snr: 20})
		sub := subframeLen(c.size)
		d := newDecoder(tx.cell, c.size)
		b.Run(fmt.Sprintf("%dPRB", c.prb), func(b *testing.B) {
			n, before := 0, d.blind.decodes
			for i := 0; b.Loop(); i++ {
				s := Subframe{Index: i % 10}
				d.decode(samples[i%10*sub:][:sub], 0, &s)
				n += len(s.DCIs)
			}
			b.ReportMetric(float64(n)/float64(b.N), "DCIs/op")
			b.ReportMetric(float64(d.blind.decodes-before)/float64(b.N), "words/op")
		})
	}
}
