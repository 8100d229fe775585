// Package air listens to carriers of mobile cells in samples of the air, as a front
// end writes them or a file has them, and tells the subframes that it decodes, of
// several carriers in one count. Before it stands whoever has samples (a radio's
// program, a file, the lab's emulated cell), behind it whoever wants messages: a
// recording, a live source for pbe/listen, a view.
//
//	file, FIFO, socket ─ Format ─ lte.Receiver of each carrier ─ numbers ─ Subframe ─ cell.Subframe
//
// Only control channels are read; nobody's content is.
package air

import (
	"mpbond/pbe/cell"
	"mpbond/pbe/lte"
)

// Subframe is what was heard in one subframe of one carrier.
type Subframe struct {
	// Cell is the place of the carrier among the inputs.
	Cell cell.ID
	// Number counts subframes without wrapping, as cell.Clock does; carriers of one site
	// have the same numbers.
	Number int64
	// PRB is the width of the carrier.
	PRB uint8
	// Of Subframe its own Cell is who is heard.
	*lte.Subframe
}

// Message is what pbe/cell wants to know of s. Its grants are put into grants, from the
// beginning.
func (s *Subframe) Message(grants []cell.Grant) cell.Subframe {
	grants = grants[:0]
	for i := range s.DCIs[:min(len(s.DCIs), cell.MaxGrants)] {
		grants = append(grants, s.DCIs[i].Grant())
	}
	return cell.Subframe{Cell: s.Cell, Number: s.Number, PRB: s.PRB, Grants: grants}
}
