// SPDX-License-Identifier: Apache-2.0

package air

import (
	"fmt"
	"io"

	"mpbond/base/fault"
	"mpbond/pbe/cell"
)

// maxHeadWait is how many subframes of a carrier a recording holds back while it waits for the
// first subframe of another.
const maxHeadWait = 1000

// Recorder writes subframes as a recording of control messages (package cell). Its head has the
// width of each cell, so it waits until all cells were received, or one has maxHeadWait subframes.
// It is not safe for concurrent use.
type Recorder struct {
	// Self is the RNTI of the listening device, 0 if unknown.
	Self cell.RNTI
	// Omitted counts subframes that are not in the recording: their cell was received too late, or
	// changed its width.
	Omitted int

	openWriter func(prb [cell.MaxCells]uint8, self cell.RNTI) (recordWriter, error)
	cells      int
	prb        [cell.MaxCells]uint8
	received   [cell.MaxCells]int
	held       []cell.Subframe
	writer     recordWriter
	grants     []cell.Grant
}

// recordWriter is the destination of recordings: a file, or all clients.
type recordWriter interface {
	Write(cell.Subframe) error
	Flush() error
}

// NewRecorder returns a Recorder of that many carriers into w.
func NewRecorder(w io.Writer, carriers int) *Recorder {
	return &Recorder{cells: carriers, openWriter: func(prb [cell.MaxCells]uint8, self cell.RNTI) (recordWriter, error) {
		o, err := cell.NewWriter(w, prb)
		if err == nil && self != 0 {
			err = o.WriteSelf(self)
		}
		return o, err
	}}
}

// Add records a subframe.
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
	receivedCells := 0
	for _, n := range r.received {
		if n > 0 {
			receivedCells++
		}
	}
	if receivedCells < r.cells && r.received[s.Cell] < maxHeadWait {
		return nil
	}
	return r.writeHeadAndHeld()
}

// writeHeadAndHeld writes the head and all held subframes.
func (r *Recorder) writeHeadAndHeld() (err error) {
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

// Close writes held subframes. A recording without subframes has a head without cells.
func (r *Recorder) Close() error {
	if r.writer == nil {
		if err := r.writeHeadAndHeld(); err != nil {
			return err
		}
	}
	if err := r.writer.Flush(); err != nil {
		return err
	}
	if r.Omitted > 0 {
		return fault.New(fault.Integrity,
			fmt.Errorf("%d subframes are not in the recording: their cell was found too late, or changed", r.Omitted),
			"record carriers that are received from the beginning")
	}
	return nil
}
