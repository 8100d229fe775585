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
	// RateDetected says that the rate was found out.
	RateDetected bool
	// IsLive says that samples are not waited with: what is too late is dropped.
	IsLive bool
	// HasCell says that a cell is followed now; Cell, Offset (in Hz) and SNR (in dB,
	// smoothed) are of that or the last one.
	HasCell bool
	Cell    lte.Cell
	Offset  float64
	SNR     float64
	// AllCells are all cells that were found in a file, if Config.All asks for them, the
	// strongest first, which is the one that is followed.
	AllCells []lte.Cell
	// Subframes and Messages count what was decoded.
	Subframes, Messages int64
	// Samples were read, Lost dropped besides, in Gaps pieces.
	Samples, Lost, Gaps int64
	// Resyncs counts how often the cell was found again, or another one.
	Resyncs int
	// Level is the power in dB of the largest value that the format has (of 1, in cf32),
	// Clipped the part of samples that are cut off there.
	Level, Clipped float64
	// ExtraBytes is how many bytes were left at the end that are no whole sample.
	ExtraBytes int
}

// receivedSubframe is a subframe on its way.
type receivedSubframe struct {
	Subframe
	afterLoss bool // samples were dropped before it
	resynced  bool // the cell was lost, or another one, before it
}

// maxEarlyBytes bounds what is kept of a live source until a cell is heard: by that it
// is found out why none is.
const maxEarlyBytes = 16 << 20

// requiredMIBs is how many MIBs a cell of what is live must have told in step.
const requiredMIBs = 2

// snrSmoothing is how much of what a subframe says of the signal is believed.
const snrSmoothing = 0.05

// carrier is one input at work. What State holds is guarded by the Listener's mu; the
// rest belongs to the goroutine that decodes.
type carrier struct {
	State
	id       cell.ID
	input    io.ReadCloser
	isFile   bool
	isPipe   bool        // who writes is kept waiting when it is full
	file     io.ReaderAt // of a file, to look again
	fileSize int64

	receiver    *lte.Receiver
	decoder     *parallelDecoder
	buf         []byte
	samples     []complex64
	meter       levelMeter
	samplesRead int64 // samples
	early       []byte
	ended       bool
	readErr     error // of reading
	extraBytes  int

	// Of the receiver's subframes.
	pending   []*receivedSubframe
	afterLoss bool // since the last

	// Of what is live a cell is believed when its MIB was read in two frames.
	onTrial       bool     // one is not yet believed: fresh is kept
	neededMIBs    int      // MIBs in step by which it is
	confirmed     bool     // one was
	confirmedCell lte.Cell // the last one

	// Of numbers: by the Listener, under mu.
	held       []*receivedSubframe
	clock      cell.Clock
	lastNumber int64
	lastStart  int64
}

// startReceiver makes the receiver; its subframes go into fresh.
func (c *carrier) startReceiver() error {
	r, err := lte.NewReceiver(c.Rate)
	if err != nil {
		return err
	}
	c.receiver, c.decoder = r, newParallelDecoder(r, runtime.GOMAXPROCS(0))
	r.OnSubframe = func(s *lte.Subframe) { c.pending = append(c.pending, c.copySubframe(s)) }
	return nil
}

// copySubframe makes what goes on of a subframe, which is a copy.
func (c *carrier) copySubframe(s *lte.Subframe) *receivedSubframe {
	own := *s
	own.DCIs = slices.Clone(s.DCIs)
	h := &receivedSubframe{Subframe: Subframe{Cell: c.id, PRB: uint8(own.Cell.PRB), Subframe: &own}, afterLoss: c.afterLoss}
	c.afterLoss = false
	return h
}

// decodeSubframes reads and decodes n subframes.
func (c *carrier) decodeSubframes(n int) {
	c.buf = slices.Grow(c.buf[:0], c.Format.Size()*c.Rate/1000*n)
	c.buf = c.buf[:c.Format.Size()*c.Rate/1000*n]
	got, err := io.ReadFull(c.input, c.buf)
	c.feedSamples(c.buf[:got], 0)
	c.decoder.finishAll()
	if err != nil {
		c.closeReceiver(err)
	}
}

// feedSamples decodes whole samples, and what is over; lost samples are missing before.
func (c *carrier) feedSamples(raw []byte, lost int64) {
	if lost > 0 {
		c.decoder.finishAll()
		c.receiver.Skip(lost)
		c.afterLoss = true
	}
	c.extraBytes = len(raw) % c.Format.Size()
	if !c.confirmed && !c.isFile && len(c.early) < maxEarlyBytes {
		c.early = append(c.early, raw...)
	} else if c.confirmed {
		c.early = nil
	}
	c.samples = c.Format.Decode(c.samples[:0], raw)
	c.meter.addSamples(c.samples)
	c.samplesRead += int64(len(c.samples))
	c.receiver.Feed(c.samples)
}

// checkTrial asks, after samples, whether the cell that is followed is one: before them the
// receiver had counted so much. The CRC of a MIB, of 16 bits, is right by chance now and
// then, and always in what decodes to zeros, as floats of nonsense do.
func (c *carrier) checkTrial(before lte.Counts) {
	now := c.receiver.Counts()
	who, follows := c.receiver.Cell()
	if now.Found != before.Found || c.onTrial && !follows {
		c.decoder.finishAll()
		c.pending = slices.DeleteFunc(c.pending, func(h *receivedSubframe) bool { // of what was none
			of := h.Subframe.Subframe.Cell
			return of != who && (!c.confirmed || of != c.confirmedCell)
		})
		c.onTrial = follows && (!c.confirmed || who != c.confirmedCell)
		c.neededMIBs = before.MIBs - before.SFNJumps + requiredMIBs
	}
	if over := len(c.pending) - maxHeld; c.onTrial && over > 0 {
		c.pending = slices.Delete(c.pending, 0, over)
	}
	if c.onTrial && now.MIBs-now.SFNJumps >= c.neededMIBs && (c.confirmed || c.Format != CF32 || looksLike(c.early, CF32)) {
		c.onTrial, c.confirmed, c.confirmedCell = false, true, who
	}
}

// closeReceiver closes the receiver.
func (c *carrier) closeReceiver(err error) {
	c.ended = true
	if err != io.EOF && err != io.ErrUnexpectedEOF {
		c.readErr = err
	}
	c.receiver.Close()
	c.decoder.finishAll()
}

// countSubframe takes a subframe into the state.
func (c *carrier) countSubframe(h *receivedSubframe) {
	c.Subframes++
	c.Messages += int64(len(h.DCIs))
	if c.Cell, c.Offset = h.Subframe.Subframe.Cell, h.Offset; h.resynced {
		c.Resyncs++
	}
	if c.Subframes == 1 || h.resynced {
		c.SNR = h.SNR
	}
	c.SNR += snrSmoothing * (h.SNR - c.SNR)
}

// updateState takes into the state what the receiver knows now.
func (c *carrier) updateState() {
	_, c.HasCell = c.receiver.Cell()
	c.HasCell = c.HasCell && !c.onTrial
	c.Samples, c.ExtraBytes = c.samplesRead, c.extraBytes
	c.Level, c.Clipped = c.meter.levelDB(), c.meter.clippedPart()
}

// finalError is what was wrong with a carrier that has ended.
func (c *carrier) finalError(ctx context.Context) error {
	if ctx.Err() != nil {
		return nil
	}
	if c.readErr != nil {
		return fmt.Errorf("after %d samples: %w", c.samplesRead, c.readErr)
	}
	if c.Subframes > 0 {
		return nil
	}
	return c.explainNoCell(ctx)
}

// explainNoCell is why no cell was heard.
func (c *carrier) explainNoCell(ctx context.Context) error {
	if c.file != nil {
		return explainFailure(ctx, io.NewSectionReader(c.file, 0, c.fileSize), c.Format, c.Rate, c.receiver.Obstacle())
	}
	err := explainFailure(ctx, io.NewSectionReader(bytes.NewReader(c.early), 0, int64(len(c.early))), c.Format, c.Rate, c.receiver.Obstacle())
	if n := c.receiver.Counts().Found; n > 0 && fault.Is(err, fault.NotFound) {
		return fault.New(fault.NotFound, errors.New("what looked like a cell told its broadcast once only, and is not believed"), "listen for longer; is it strong enough, and are format and rate right?")
	}
	return err
}

// lossError is what is told of samples that were dropped.
func lossError(lost int64, rate int) error {
	return fault.New(fault.Limit, fmt.Errorf("%d ms of samples were dropped, as they come faster than they are decoded", lost*1000/int64(rate)),
		"narrower cells take less; does something else keep this machine busy?")
}

// errNoSamples is told of a live source that has nothing to say.
var errNoSamples = fault.New(fault.Timeout, errors.New("no samples come"), "does whoever writes them run?")

// Warnings are what somebody should know of a carrier at its end, in words.
func (s State) Warnings() (all []string) {
	if s.Clipped > clippingWarning {
		all = append(all, fmt.Sprintf("%.0f %% of the samples are cut off: the front end's gain is too high", 100*s.Clipped))
	}
	if s.ExtraBytes > 0 {
		all = append(all, fmt.Sprintf("%d bytes at the end are no whole sample: it was cut off, or is not %s", s.ExtraBytes, s.Format))
	}
	if s.Lost > 0 {
		all = append(all, fmt.Sprintf("%.3f s of samples were dropped in %d pieces: they came faster than they were decoded", float64(s.Lost)/float64(s.Rate), s.Gaps))
	}
	return all
}
