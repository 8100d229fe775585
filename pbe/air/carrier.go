package air

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"

	"mpbond/base/fault"
	"mpbond/pbe/cell"
	"mpbond/pbe/lte"
)

// State is what is known of one carrier.
type State struct {
	// Source, Format and Rate are those of its input, or what was found out.
	Source string
	Format Format
	Rate   int
	// Guessed says that the rate was found out.
	Guessed bool
	// Live says that samples are not waited with: what is too late is dropped.
	Live bool
	// Heard says that a cell is followed now; Cell, Offset (in Hz) and SNR (in dB,
	// smoothed) are of that or the last one.
	Heard  bool
	Cell   lte.Cell
	Offset float64
	SNR    float64
	// There are all cells that were found in a file, if Config.All asks for them, the
	// strongest first, which is the one that is followed.
	There []lte.Cell
	// Subframes and Messages count what was decoded.
	Subframes, Messages int64
	// Samples were read, Lost dropped besides, in Gaps pieces.
	Samples, Lost, Gaps int64
	// Resyncs counts how often the cell was found again, or another one.
	Resyncs int
	// Level is the power in dB of the largest value that the format has (of 1, in cf32),
	// Clipped the part of samples that are cut off there.
	Level, Clipped float64
	// Rest is how many bytes were left at the end that are no whole sample.
	Rest int
}

// heard is a subframe on its way.
type heard struct {
	Subframe
	skipped bool // samples were dropped before it
	again   bool // the cell was lost, or another one, before it
}

// earlyBytes bounds what is kept of a live source until a cell is heard: by that it
// is found out why none is.
const earlyBytes = 16 << 20

// believed is how many MIBs a cell of what is live must have told in step.
const believed = 2

// smooth is how much of what a subframe says of the signal is believed.
const smooth = 0.05

// carrier is one input at work. What State holds is guarded by the Listener's mu; the
// rest belongs to the goroutine that decodes.
type carrier struct {
	State
	place cell.ID
	in    io.ReadCloser
	kept  bool
	pipe  bool        // who writes is kept waiting when it is full
	read  io.ReaderAt // of a file, to look again
	size  int64

	receiver *lte.Receiver
	spread   *spread
	buf      []byte
	samples  []complex64
	meter    levelMeter
	taken    int64 // samples
	early    []byte
	ended    bool
	failed   error // of reading
	rest     int

	// Of the receiver's subframes.
	fresh   []*heard
	skipped bool // since the last

	// Of what is live a cell is believed when its MIB was read in two frames.
	trial  bool     // one is not yet believed: fresh is kept
	needed int      // MIBs in step by which it is
	sure   bool     // one was
	cell   lte.Cell // the last one

	// Of numbers: by the Listener, under mu.
	held      []*heard
	clock     cell.Clock
	last      int64
	lastStart int64
}

// begin makes the receiver; its subframes go into fresh.
func (c *carrier) begin() error {
	r, err := lte.NewReceiver(c.Rate)
	if err != nil {
		return err
	}
	c.receiver, c.spread = r, newSpread(r, runtime.GOMAXPROCS(0))
	r.Heard = func(s *lte.Subframe) { c.fresh = append(c.fresh, c.take(s)) }
	return nil
}

// take makes what goes on of a subframe, which is a copy.
func (c *carrier) take(s *lte.Subframe) *heard {
	own := *s
	own.DCIs = slices.Clone(s.DCIs)
	h := &heard{Subframe: Subframe{Cell: c.place, PRB: uint8(own.Cell.PRB), Subframe: &own}, skipped: c.skipped}
	c.skipped = false
	return h
}

// step reads and decodes n subframes.
func (c *carrier) step(n int) {
	c.buf = slices.Grow(c.buf[:0], c.Format.Size()*c.Rate/1000*n)
	c.buf = c.buf[:c.Format.Size()*c.Rate/1000*n]
	got, err := io.ReadFull(c.in, c.buf)
	c.feed(c.buf[:got], 0)
	c.spread.wait()
	if err != nil {
		c.end(err)
	}
}

// feed decodes whole samples, and what is over; lost samples are missing before.
func (c *carrier) feed(raw []byte, lost int64) {
	if lost > 0 {
		c.spread.wait()
		c.receiver.Skip(lost)
		c.skipped = true
	}
	c.rest = len(raw) % c.Format.Size()
	if !c.sure && !c.kept && len(c.early) < earlyBytes {
		c.early = append(c.early, raw...)
	} else if c.sure {
		c.early = nil
	}
	c.samples = c.Format.Decode(c.samples[:0], raw)
	c.meter.add(c.samples)
	c.taken += int64(len(c.samples))
	c.receiver.Feed(c.samples)
}

// doubt asks, after samples, whether the cell that is followed is one: before them the
// receiver had counted so much. The CRC of a MIB, of 16 bits, is right by chance now and
// then, and always in what decodes to zeros, as floats of nonsense do.
func (c *carrier) doubt(before lte.Counts) {
	now := c.receiver.Counts()
	who, follows := c.receiver.Cell()
	if now.Found != before.Found || c.trial && !follows {
		c.spread.wait()
		c.fresh = slices.DeleteFunc(c.fresh, func(h *heard) bool { // of what was none
			of := h.Subframe.Subframe.Cell
			return of != who && (!c.sure || of != c.cell)
		})
		c.trial = follows && (!c.sure || who != c.cell)
		c.needed = before.MIBs - before.Jumps + believed
	}
	if over := len(c.fresh) - maxHeld; c.trial && over > 0 {
		c.fresh = slices.Delete(c.fresh, 0, over)
	}
	if c.trial && now.MIBs-now.Jumps >= c.needed && (c.sure || c.Format != CF32 || plausible(c.early, CF32)) {
		c.trial, c.sure, c.cell = false, true, who
	}
}

// end closes the receiver.
func (c *carrier) end(err error) {
	c.ended = true
	if err != io.EOF && err != io.ErrUnexpectedEOF {
		c.failed = err
	}
	c.receiver.Close()
	c.spread.wait()
}

// count takes a subframe into the state.
func (c *carrier) count(h *heard) {
	c.Subframes++
	c.Messages += int64(len(h.DCIs))
	if c.Cell, c.Offset = h.Subframe.Subframe.Cell, h.Offset; h.again {
		c.Resyncs++
	}
	if c.Subframes == 1 || h.again {
		c.SNR = h.SNR
	}
	c.SNR += smooth * (h.SNR - c.SNR)
}

// update takes into the state what the receiver knows now.
func (c *carrier) update() {
	_, c.Heard = c.receiver.Cell()
	c.Heard = c.Heard && !c.trial
	c.Samples, c.Rest = c.taken, c.rest
	c.Level, c.Clipped = c.meter.level(), c.meter.clipped()
}

// verdict is what was wrong with a carrier that has ended.
func (c *carrier) verdict(ctx context.Context) error {
	if ctx.Err() != nil {
		return nil
	}
	if c.failed != nil {
		return fmt.Errorf("after %d samples: %w", c.taken, c.failed)
	}
	if c.Subframes > 0 {
		return nil
	}
	return c.why(ctx)
}

// why is why no cell was heard.
func (c *carrier) why(ctx context.Context) error {
	if c.read != nil {
		return explain(ctx, io.NewSectionReader(c.read, 0, c.size), c.Format, c.Rate, c.receiver.Why())
	}
	err := explain(ctx, io.NewSectionReader(bytes.NewReader(c.early), 0, int64(len(c.early))), c.Format, c.Rate, c.receiver.Why())
	if n := c.receiver.Counts().Found; n > 0 && fault.Is(err, fault.NotFound) {
		return fault.New(fault.NotFound, errors.New("what looked like a cell told its broadcast once only, and is not believed"), "listen for longer; is it strong enough, and are format and rate right?")
	}
	return err
}

// loss is what is told of samples that were dropped.
func loss(lost int64, rate int) error {
	return fault.New(fault.Limit, fmt.Errorf("%d ms of samples were dropped, as they come faster than they are decoded", lost*1000/int64(rate)),
		"narrower cells take less; does something else keep this machine busy?")
}

// errQuiet is told of a live source that has nothing to say.
var errQuiet = fault.New(fault.Timeout, errors.New("no samples come"), "does whoever writes them run?")

// Doubts are what somebody should know of a carrier at its end, in words.
func (s State) Doubts() (all []string) {
	if s.Clipped > clipMuch {
		all = append(all, fmt.Sprintf("%.0f %% of the samples are cut off: the front end's gain is too high", 100*s.Clipped))
	}
	if s.Rest > 0 {
		all = append(all, fmt.Sprintf("%d bytes at the end are no whole sample: it was cut off, or is not %s", s.Rest, s.Format))
	}
	if s.Lost > 0 {
		all = append(all, fmt.Sprintf("%.3f s of samples were dropped in %d pieces: they came faster than they were decoded", float64(s.Lost)/float64(s.Rate), s.Gaps))
	}
	return all
}
