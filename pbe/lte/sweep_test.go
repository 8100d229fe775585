// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"testing"

	"mpbond/pbe/cell"
)

// TestSweep measures the part of messages that is decoded, by level and SNR: four busy users on a
// pedestrian channel, with levels that do not adapt to the signal. With -seeds it prints the table
// of docs/explanation/decoder.md.
func TestSweep(t *testing.T) {
	subframes := 400
	snrs := []float64{-2, 0, 2, 5, 10, 15}
	if *seeds == 0 {
		subframes, snrs = 60, []float64{2, 15}
	}
	c := Cell{ID: 302, PRB: 25, Ports: 2, PHICHSixths: 6}
	for _, snr := range snrs {
		sent, received := map[int]int{}, map[int]int{}
		wrong, gone := 0, 0
		for seed := range max(*seeds, 1) {
			tx := newTransmitter(c, 512, uint64(seed))
			truth := map[string]int{}
			for i := range subframes {
				tx.subframe(500+i/10, i%10, 1+i%3)
			}
			for _, s := range tx.sent {
				truth[s.d.key(&Subframe{SFN: 500 + s.subframe/10, Index: s.subframe % 10})] = s.d.Level
				sent[s.d.Level]++
			}
			a := receiveStream(t, 512, 100_000, truth, tx.transmitThrough(t, NewEPAChannel(5, 1500, snr, uint64(seed))))
			for level, n := range a.received {
				received[level] += n
			}
			wrong += len(a.wrong)
			gone += subframes - a.subframes
		}
		t.Logf("| %v dB | %.1f | %.1f | %.1f | %.1f | %d of %d | (%d subframes not received)", snr,
			100*float64(received[1])/float64(sent[1]), 100*float64(received[2])/float64(sent[2]),
			100*float64(received[4])/float64(sent[4]), 100*float64(received[8])/float64(sent[8]), wrong,
			sent[1]+sent[2]+sent[4]+sent[8], gone)
		all := sent[1] + sent[2] + sent[4] + sent[8]
		if snr >= 15 && received[1]+received[2]+received[4]+received[8] < all*97/100 ||
			received[8] < sent[8]*9/10 && snr >= 2 || snr >= 10 && wrong > all/100 {
			t.Errorf("at %v dB: received %v of %v, %d wrong", snr, received, sent, wrong)
		}
	}
}

// TestFifteen checks cells of 15 PRB. There the sizes of 0/1A and of 1 are swapped for users with
// CSI requests of two bits, which cannot be recognised. The decoder assumes that there are none: it
// confuses those three formats of such a user, or misses them, but decodes everything else.
func TestFifteen(t *testing.T) {
	c := Cell{ID: 41, PRB: 15, Ports: 2, PHICHSixths: 6}
	one, two := c.dciFormatSizes(false), c.dciFormatSizes(true)
	if one[cell.Format1A] != two[cell.Format1] || one[cell.Format1] != two[cell.Format1A] {
		t.Fatalf("%v, %v", one, two)
	}
	tx := newTransmitter(c, 256, 2)
	tx.twoBits = true
	truth := map[string]int{}
	for i := range 100 {
		tx.subframe(500+i/10, i%10, 1+i%3)
	}
	other := 0
	for _, s := range tx.sent {
		k := s.d.key(&Subframe{SFN: 500 + s.subframe/10, Index: s.subframe % 10})
		if s.d.Format == cell.Format2 || s.d.Format == cell.Format2A || !s.d.RNTI.IsUser() ||
			len(s.d.Payload) == one[cell.Format1A] && s.d.Format != cell.Format1 {
			truth[k] = s.subframe
		} else {
			other++
		}
	}
	a := receiveStream(t, 256, 100_000, truth, tx.transmitThrough(t, Channel{SNR: 25}))
	t.Logf("%d of %d others received; %d of two bits, of which %d were read as something else",
		len(truth)-len(a.missing), len(truth), other, len(a.wrong))
	if len(a.missing) > len(truth)/50 || len(a.wrong) > other {
		t.Errorf("not received: %v; wrong: %v", a.missing, a.wrong)
	}
}
