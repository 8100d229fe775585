// SPDX-License-Identifier: Apache-2.0

// Package air receives carriers of mobile cells from IQ samples, live from a radio front end or
// from a file. It decodes their subframes and numbers those of several carriers alike. Samples come
// from a radio's program, a file or the lab's emulated cell. The messages go to a recording, a live
// source for pbe/listen, or a view.
//
//	file, FIFO, socket ─ Format ─ lte.Receiver of each carrier ─ numbers ─ Subframe ─ cell.Subframe
//
// It reads control channels only, never the content of a user.
package air

import (
	"mpbond/pbe/cell"
	"mpbond/pbe/lte"
)

// Subframe is one decoded subframe of one carrier.
type Subframe struct {
	// Cell is the position of the carrier among the inputs.
	Cell cell.ID
	// Number counts subframes without wrapping, as cell.Clock does; the carriers of one site have
	// the same numbers.
	Number int64
	// PRB is the width of the carrier.
	PRB uint8
	// The Cell of the embedded Subframe identifies the decoded cell.
	*lte.Subframe
}

// Message converts s for pbe/cell. It overwrites grants with its grants.
func (s *Subframe) Message(grants []cell.Grant) cell.Subframe {
	grants = grants[:0]
	for i := range s.DCIs[:min(len(s.DCIs), cell.MaxGrants)] {
		grants = append(grants, s.DCIs[i].Grant())
	}
	return cell.Subframe{Cell: s.Cell, Number: s.Number, PRB: s.PRB, Grants: grants}
}
