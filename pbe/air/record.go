package air

import (
	"fmt"
	"io"

	"mpbond/base/fault"
	"mpbond/pbe/cell"
)

// maxHeadWait is for how many subframes of the others a recording waits with its head for
// a carrier of which nothing was heard yet.
const maxHeadWait = 1000

// Recorder writes what is heard as a recording of control messages (package cell). Its
// head says how wide each cell is, so that it waits with it until all were heard, or
// one has told maxHeadWait subframes. It is not safe for concurrent use.
type Recorder struct {
	// Self is what the device that listens is called in its cells, 0 if that is not known.
	Self cell.RNTI
	// Omitted counts subframes that are not in the recording: of cells that were heard too
	// late, or are of another width than before.
	Omitted int

	openWriter func(prb [cell.MaxCells]uint8, self cell.RNTI) (recordWriter, error)
	cells      int
	prb        [cell.MaxCells]uint8
	received   [cell.MaxCells]int
	held       []cell.Subframe
	writer     recordWriter
	grants     []cell.Grant
}

// recordWriter is where whole recordings go: a file, or all who call.
type recordWriter interface {
	Write(cell.Subframe) error
	Flush() error
}

// NewRecorder records so many carriers into w.
func NewRecorder(w io.Writer, carriers int) *Recorder {
	return &Recorder{cells: carriers, openWriter: func(prb [cell.MaxCells]uint8, self cell.RNTI) (recordWriter, error) {
		o, err := cell.NewWriter(w, prb)
		if err == nil && self != 0 {
			err = o.WriteSelf(self)
		}
		return o, err
	}}
}

// Add takes a subframe.
func (r *Recorder) Add(s *Subframe) error {
	m := s.Message(r.grants)
	r.grants = m.Grants
	if r.writer != nil {
		return r.writeSubframe(m)
	}
	if r.received[s.Cell] == 0 {
		r.prb[s.Cell] = s.PRB
	}
	r.received[s.Cell]++
	m.Grants = append([]cell.Grant(nil), m.Grants...)
	r.held = append(r.held, m)
	heard := 0
	for _, n := range r.received {
		if n > 0 {
			heard++
		}
	}
	if heard < r.cells && r.received[s.Cell] < maxHeadWait {
		return nil
	}
	return r.writeHead()
}

// writeHead writes the head and what was held.
func (r *Recorder) writeHead() (err error) {
	if r.writer, err = r.openWriter(r.prb, r.Self); err != nil {
		return err
	}
	for _, m := range r.held {
		if err != nil {
			return err
		}
		err = r.writeSubframe(m)
	}
	r.held = nil
	return err
}

func (r *Recorder) writeSubframe(m cell.Subframe) error {
	if r.prb[m.Cell] != m.PRB {
		r.Omitted++
		return nil
	}
	return r.writer.Write(m)
}

// Close writes what is held. A recording of nothing has a head without cells.
func (r *Recorder) Close() error {
	if r.writer == nil {
		if err := r.writeHead(); err != nil {
			return err
		}
	}
	if err := r.writer.Flush(); err != nil {
		return err
	}
	if r.Omitted > 0 {
		return fault.New(fault.Integrity, fmt.Errorf("%d subframes are not in the recording: their cell was heard too late, or became another one", r.Omitted), "record carriers that are heard from the beginning")
	}
	return nil
}
