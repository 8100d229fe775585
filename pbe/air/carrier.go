// SPDX-License-Identifier: Apache-2.0

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

// State is the state of one carrier.
type State struct {
	// Source, Format and Rate are those of the input, or detected.
	Source string
	Format Format
	Rate   int
	// RateDetected reports that Rate was detected.
	RateDetected bool
	// SwapIQ reports that I and Q are exchanged, SwapDetected that this was detected, against the input's.
	SwapIQ, SwapDetected bool
	// IsLive reports that samples arrive in real time: late ones are dropped.
	IsLive bool
	// HasCell reports that a cell is being decoded. Cell, Offset (in Hz) and SNR (in dB, smoothed)
	// are those of this or the last one.
	HasCell bool
	Cell    lte.Cell
	Offset  float64
	SNR     float64
	// AllCells are all cells found in a file, if Config.AllCells is set, the strongest first. That
	// one is decoded.
	AllCells []lte.Cell
	// Subframes and Messages count decoded ones.
	Subframes, Messages int64
	// Samples counts samples read, and Lost those dropped, in Gaps pieces.
	Samples, Lost, Gaps int64
	// Resyncs counts how often the cell was found again, or another one was.
	Resyncs int
	// Level is the mean power in dB relative to the largest value of the format (1 in cf32).
	// Clipped is the part of samples at the largest value seen.
	Level, Clipped float64
	// ExtraBytes is the number of bytes after the last whole sample.
	ExtraBytes int
}

// receivedSubframe is a subframe before delivery.
type receivedSubframe struct {
	Subframe
	afterLoss bool // samples were dropped before it
	resynced  bool // the cell was lost or changed before it
}

// maxEarlyBytes bounds the samples of a live source that are kept until a cell is found, to
// diagnose why none is.
const maxEarlyBytes = 16 << 20

// requiredMIBs is the number of consistent MIBs that confirm a cell in a live source.
const requiredMIBs = 2

// snrSmoothing is the weight of one subframe in the SNR.
const snrSmoothing = 0.05

// carrier is an open input. The Listener's mu guards State; the rest belongs to the decoding
// goroutine.
type carrier struct {
	State
	id       cell.ID
	input    io.ReadCloser
	isFile   bool
	isPipe   bool        // a full pipe blocks its writer
	file     io.ReaderAt // a file, to read it again
	fileSize int64

	receiver    *lte.Receiver
	resampler   *resampler // of the samples, to the receiver's rate
	atRate      []complex64
	decoder     *parallelDecoder
	buf         []byte
	samples     []complex64
	meter       levelMeter
	samplesRead int64
	early       []byte
	ended       bool
	readErr     error
	extraBytes  int

	// Subframes of the receiver.
	pending   []*receivedSubframe
	afterLoss bool // since the last subframe

	// A cell in a live source is confirmed by its MIBs in two frames.
	onTrial       bool     // not yet confirmed: pending is held back
	neededMIBs    int      // consistent MIBs that confirm it
	confirmed     bool     // a cell was confirmed
	confirmedCell lte.Cell // the last confirmed one

	// State of the numbering, guarded by the Listener's mu.
	held       []*receivedSubframe
	clock      cell.Clock
	lastNumber int64
	lastStart  int64
}

// startReceiver creates the receiver, which appends its subframes to pending.
func (c *carrier) startReceiver() error {
	r, convert, err := newReceiver(c.Rate)
	if err != nil {
		return err
	}
	c.receiver, c.resampler, c.decoder = r, convert, newParallelDecoder(r, runtime.GOMAXPROCS(0))
	r.OnSubframe = func(s *lte.Subframe) { c.pending = append(c.pending, c.copySubframe(s)) }
	return nil
}

// copySubframe copies a subframe of the receiver.
func (c *carrier) copySubframe(s *lte.Subframe) *receivedSubframe {
	copied := *s
	copied.DCIs = slices.Clone(s.DCIs)
	copied.Start = c.resampler.inputSamples(copied.Start)
	h := &receivedSubframe{Subframe: Subframe{Cell: c.id, PRB: uint8(copied.Cell.PRB), Subframe: &copied},
		afterLoss: c.afterLoss}
	c.afterLoss = false
	return h
}

// decodeSubframes reads and decodes n subframes.
func (c *carrier) decodeSubframes(n int) {
	size := c.Format.Size() * (c.Rate / 1000 * n)
	c.buf = slices.Grow(c.buf[:0], size)[:size]
	got, err := io.ReadFull(c.input, c.buf)
	c.feedSamples(c.buf[:got], 0)
	c.decoder.finishAllJobs()
	if err != nil {
		c.closeReceiver(err)
	}
}

// feedSamples decodes all whole samples in raw; lost samples are missing before them.
func (c *carrier) feedSamples(raw []byte, lost int64) {
	if lost > 0 {
		c.decoder.finishAllJobs()
		c.receiver.Feed(c.resampler.appendRest(c.atRate[:0]))
		c.receiver.Skip(c.resampler.outputSamples(lost))
		c.afterLoss = true
	}
	c.extraBytes = len(raw) % c.Format.Size()
	if !c.confirmed && !c.isFile && len(c.early) < maxEarlyBytes {
		c.early = append(c.early, raw...)
	} else if c.confirmed {
		c.early = nil
	}
	c.samples = sampleCode{c.Format, c.SwapIQ}.decodeSamples(c.samples[:0], raw)
	c.meter.addSamples(c.samples)
	c.samplesRead += int64(len(c.samples))
	if c.resampler.in == c.resampler.out {
		c.receiver.Feed(c.samples)
		return
	}
	c.atRate = c.resampler.appendResampled(c.atRate[:0], c.samples)
	c.receiver.Feed(c.atRate)
}

// checkTrial checks, after feeding samples, whether the found cell is real; before has the
// receiver's earlier counts. The 16-bit CRC of a MIB is right by chance now and then, and always in
// data that decodes to zeros, such as arbitrary floats.
func (c *carrier) checkTrial(before lte.Counts) {
	now := c.receiver.Counts()
	current, follows := c.receiver.Cell()
	if now.Found != before.Found || c.onTrial && !follows {
		c.decoder.finishAllJobs()
		c.pending = slices.DeleteFunc(c.pending, func(h *receivedSubframe) bool { // of a false cell
			of := h.Subframe.Subframe.Cell
			return of != current && (!c.confirmed || of != c.confirmedCell)
		})
		c.onTrial = follows && (!c.confirmed || current != c.confirmedCell)
		c.neededMIBs = before.MIBs - before.SFNJumps + requiredMIBs
	}
	if excess := len(c.pending) - maxHeld; c.onTrial && excess > 0 {
		c.pending = slices.Delete(c.pending, 0, excess)
	}
	if c.onTrial && now.MIBs-now.SFNJumps >= c.neededMIBs &&
		(c.confirmed || c.Format != CF32 || looksLikeFormat(c.early, CF32)) {
		c.onTrial, c.confirmed, c.confirmedCell = false, true, current
	}
}

func (c *carrier) closeReceiver(err error) {
	c.ended = true
	if err != io.EOF && err != io.ErrUnexpectedEOF {
		c.readErr = err
	}
	c.receiver.Close()
	c.decoder.finishAllJobs()
}

// countSubframe adds a subframe to the state.
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

// updateState copies the receiver's state.
func (c *carrier) updateState() {
	_, c.HasCell = c.receiver.Cell()
	c.HasCell = c.HasCell && !c.onTrial
	c.Samples, c.ExtraBytes = c.samplesRead, c.extraBytes
	c.Level, c.Clipped = c.meter.meanPowerDB(), c.meter.clippedPart()
}

// finalError returns what was wrong with a carrier that has ended, nil if a context ended it: ctx,
// or that of its input.
func (c *carrier) finalError(ctx context.Context) error {
	if ctx.Err() != nil || errors.Is(c.readErr, context.Canceled) {
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

// explainNoCell returns why no cell was decoded.
func (c *carrier) explainNoCell(ctx context.Context) error {
	if c.file != nil {
		return explainFailure(ctx, io.NewSectionReader(c.file, 0, c.fileSize), sampleCode{c.Format, c.SwapIQ},
			c.Rate, c.receiver.Obstacle())
	}
	err := explainFailure(ctx, io.NewSectionReader(bytes.NewReader(c.early), 0, int64(len(c.early))),
		sampleCode{c.Format, c.SwapIQ}, c.Rate, c.receiver.Obstacle())
	if n := c.receiver.Counts().Found; n > 0 && fault.Is(err, fault.NotFound) {
		return fault.New(fault.NotFound,
			errors.New("a possible cell was not confirmed: its broadcast was decoded only once"),
			"record for longer, and check signal strength, format and rate")
	}
	return err
}

// sampleLossError returns the report of dropped samples.
func sampleLossError(lost int64, rate int) error {
	return fault.New(fault.Limit, fmt.Errorf("%d ms of samples were dropped: decoding is too slow",
		lost*1000/int64(rate)),
		"use a narrower cell, or reduce other load on this machine")
}

// errNoSamples is the report of a silent live source.
var errNoSamples = fault.New(fault.Timeout, errors.New("no samples arrive"),
	"check that the program that writes them is running")

// Warnings returns what users should know of a carrier at its end.
func (s State) Warnings() (all []string) {
	if s.Clipped > clippingWarning {
		all = append(all, fmt.Sprintf("%.0f %% of the samples are clipped: reduce the front end's gain", 100*s.Clipped))
	}
	if s.SwapDetected {
		if s.SwapIQ {
			all = append(all, "I and Q are swapped in this file, and were exchanged: use --swap-iq with live samples")
		} else {
			all = append(all, "I and Q are not swapped in this file: leave out --swap-iq")
		}
	}
	if s.ExtraBytes > 0 {
		all = append(all,
			fmt.Sprintf("%d extra bytes after the last whole sample: the input is truncated, or is not %s",
				s.ExtraBytes, s.Format))
	}
	if s.Lost > 0 {
		all = append(all, fmt.Sprintf("%.3f s of samples were dropped in %d pieces: decoding was too slow",
			float64(s.Lost)/float64(s.Rate), s.Gaps))
	}
	return all
}
