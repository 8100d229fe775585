// SPDX-License-Identifier: Apache-2.0

// Package census counts the users of mobile cells and their grants. Its input are control messages,
// from a decoder (pbe/lte) or a recording (pbe/cell). Its output are the live view, the statistics
// and the picture of cmd/cellwatch.
//
//	Subframe ─┬ Census: summary per hour, distributions (the paper's "cell status")
//	          ├ Users:  grants of each user in the last second
//	          └ Grid:   user of each resource block in the last subframes
//
// The paper is Xie, Yi, Jamieson: PBE-CC, SIGCOMM 2020. Users are counted by downlink messages. The
// package is pure, and all its tables are bounded: a day of a cell takes no more memory than a
// minute. Nothing is safe for concurrent use.
package census

import (
	"math"

	"mpbond/pbe/cell"
	"mpbond/pbe/lte"
)

// Subframe has the messages of one subframe of one cell.
type Subframe struct {
	Cell cell.ID
	// Number counts subframes of the cell, as cell.Clock does.
	Number int64
	// PRB is the width of the cell.
	PRB uint8
	// DCIs are the messages. A Level of 0 marks a message of a recording, which has neither its
	// location nor its resource blocks.
	DCIs []lte.DCI
}

// FromRecording converts a subframe of a recording. Its DCIs are appended to list and share its
// memory.
func FromRecording(s cell.Subframe, list []lte.DCI) Subframe {
	for _, g := range s.Grants {
		list = append(list, lte.DCI{RNTI: g.RNTI, Format: g.Format, PRB: int(g.PRB), HARQ: g.HARQ, Blocks: g.Blocks,
			N: int(g.N)})
	}
	return Subframe{Cell: s.Cell, Number: s.Number, PRB: s.PRB, DCIs: list}
}

// fitsTableRanges reports whether all values are in the ranges of the tables.
func (s Subframe) fitsTableRanges() bool {
	if s.Cell >= cell.MaxCells || s.PRB == 0 || s.PRB > cell.MaxPRB || s.Number < 0 {
		return false
	}
	for i := range s.DCIs {
		if d := &s.DCIs[i]; d.PRB < 0 || d.PRB > cell.MaxPRB || d.N < 0 || d.N > len(d.Blocks) {
			return false
		}
	}
	return true
}

// isDownlink reports whether d is a downlink grant.
func isDownlink(d *lte.DCI) bool { return d.Format != cell.Format0 }

// share has the grants of one user in one subframe.
type share struct {
	user          cell.RNTI
	format        cell.Format
	mcs           uint8 // of the first block
	prb           int   // downlink
	sizedPRB      int   // PRBs of grants with known sizes
	sizedBits     int64 // in sizedPRB
	blocks        int   // transport blocks, downlink
	retransmitted int   // retransmitted ones among blocks
	uplinkPRB     int   // granted for sending
}

func (s *share) addSignedShare(o share, sign int) {
	s.prb += sign * o.prb
	s.sizedPRB += sign * o.sizedPRB
	s.sizedBits += int64(sign) * o.sizedBits
	s.blocks += sign * o.blocks
	s.retransmitted += sign * o.retransmitted
	s.uplinkPRB += sign * o.uplinkPRB
}

// shareFromDCI converts d into a share; the caller sets retransmitted.
func shareFromDCI(d *lte.DCI) share {
	h := share{user: d.RNTI, format: d.Format, mcs: noMCS}
	if !isDownlink(d) {
		h.uplinkPRB = d.PRB
		return h
	}
	h.prb = d.PRB
	sized := true
	for _, b := range d.Blocks[:d.N] {
		if b.IsDisabled() {
			continue
		}
		if h.blocks == 0 {
			h.mcs = b.MCS
		}
		h.blocks++
		h.sizedBits += int64(b.Size)
		sized = sized && b.HasSize()
	}
	if sized && h.blocks > 0 {
		h.sizedPRB = h.prb
	} else {
		h.sizedBits = 0
	}
	return h
}

// noMCS marks users without a downlink grant.
const noMCS = 255

// mergeUserShare adds a grant to the share of the same user in one subframe.
func mergeUserShare(list []share, h share) []share {
	for i := range list {
		if l := &list[i]; l.user == h.user {
			l.addSignedShare(h, 1)
			if h.mcs != noMCS {
				l.format, l.mcs = h.format, h.mcs
			}
			return list
		}
	}
	return append(list, h)
}

// UserColour returns the colour of a user, the same wherever it is drawn, as red, green and blue.
// RNTIs of no single user are grey.
func UserColour(r cell.RNTI) (red, green, blue uint8) {
	if !r.IsUser() {
		return 150, 150, 150
	}
	// Steps of the golden ratio keep the colours of consecutive RNTIs apart.
	x := float64(r) * 0.6180339887498949
	hue := (x - math.Floor(x)) * 6
	class := r ^ r>>4 ^ r>>8 ^ r>>12
	light, grey := 0.97-0.3*float64(class&1), 0.12+0.35*float64(class>>1&1)
	at := func(shift float64) uint8 {
		k := math.Mod(hue+shift, 6)
		v := light * (grey + (1-grey)*min(max(math.Abs(k-3)-1, 0), 1))
		return uint8(math.Round(255 * v))
	}
	return at(0), at(4), at(2)
}
