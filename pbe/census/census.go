// Package census counts who is heard in mobile cells and what he is given there.
// Before it stands who decodes control messages (pbe/lte) or reads a recording
// of them (pbe/cell), behind it what people see of a cell: the live view, the
// figures and the picture of package main.
//
//	Subframe ─┬ Census: figures for each hour, distributions (the paper's "cell status")
//	          ├ Users:  who was given what in the last second
//	          └ Grid:   who had which resource block in the last subframes
//
// The paper is Xie, Yi, Jamieson: PBE-CC, SIGCOMM 2020. Users are counted by
// downlink messages. The package is pure, and all its tables are bounded: a day
// of a cell takes no more memory than a minute. Nothing is safe for concurrent use.
package census

import (
	"math"

	"mpbond/pbe/cell"
	"mpbond/pbe/lte"
)

// Subframe is what was heard in one subframe of one cell.
type Subframe struct {
	Cell cell.ID
	// Number counts subframes of the cell, as cell.Clock makes it.
	Number int64
	// PRB is the width of the cell.
	PRB uint8
	// DCIs are the messages. One of Level 0 comes from a recording, which does not say
	// where it stood, nor which resource blocks it names.
	DCIs []lte.DCI
}

// FromRecording is a subframe of a recording. Its DCIs are appended to list, and hold as
// long as that.
func FromRecording(s cell.Subframe, list []lte.DCI) Subframe {
	for _, g := range s.Grants {
		list = append(list, lte.DCI{RNTI: g.RNTI, Format: g.Format, PRB: int(g.PRB), HARQ: g.HARQ, Blocks: g.Blocks, N: int(g.N)})
	}
	return Subframe{Cell: s.Cell, Number: s.Number, PRB: s.PRB, DCIs: list}
}

// isValid tells whether values are in the ranges that tables are made for.
func (s Subframe) isValid() bool {
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

// isDownlink tells whether d grants something for receiving.
func isDownlink(d *lte.DCI) bool { return d.Format != cell.Format0 }

// share is what one user was given in one subframe.
type share struct {
	user          cell.RNTI
	format        cell.Format
	mcs           uint8 // of its first block
	prb           int   // downlink
	sizedPRB      int   // PRBs of those whose blocks name their sizes
	sizedBits     int64 // of these
	blocks        int   // transport blocks, downlink
	retransmitted int   // of them that came again
	uplinkPRB     int   // PRBs to send on
}

func (s *share) addSigned(o share, sign int) {
	s.prb += sign * o.prb
	s.sizedPRB += sign * o.sizedPRB
	s.sizedBits += int64(sign) * o.sizedBits
	s.blocks += sign * o.blocks
	s.retransmitted += sign * o.retransmitted
	s.uplinkPRB += sign * o.uplinkPRB
}

// newShare is d as a share; what came again is left to others.
func newShare(d *lte.DCI) share {
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

// noMCS is of who was given nothing to receive.
const noMCS = 255

// mergeShare joins what one user was given in one subframe.
func mergeShare(list []share, h share) []share {
	for i := range list {
		if l := &list[i]; l.user == h.user {
			l.addSigned(h, 1)
			if h.mcs != noMCS {
				l.format, l.mcs = h.format, h.mcs
			}
			return list
		}
	}
	return append(list, h)
}

// UserColour is the colour of a user, the same wherever it is drawn: red, green and blue.
// What is for all is grey.
func UserColour(r cell.RNTI) (red, green, blue uint8) {
	if !r.IsUser() {
		return 150, 150, 150
	}
	// Steps of the golden ratio keep names that follow each other apart.
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
