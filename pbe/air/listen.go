// SPDX-License-Identifier: Apache-2.0

package air

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"mpbond/base/fault"
	"mpbond/pbe/cell"
)

// Tuning.
const (
	// decodeRound is how much each carrier of files decodes in a round. It keeps several carriers
	// aligned.
	decodeRound = 20 * time.Millisecond
	// maxHeld is how many subframes of one carrier wait for earlier ones of another: as many as a
	// receiver searches for a cell.
	maxHeld = 100
)

// Config configures a Listener.
type Config struct {
	// Inputs are the carriers of one site, the primary one first.
	Inputs []Input
	// Paced reads files at their sample rate, as from a radio.
	Paced bool
	// AllCells finds all cells in files, not only the strongest, for State.
	AllCells bool
	// DropLate also drops samples from pipes that arrive faster than they are decoded, for
	// up-to-date results.
	DropLate bool
	// Stdin is the input for "-".
	Stdin io.Reader
	// OnWarning, if not nil, receives lost samples, silence and doubts. Any goroutine may call it.
	OnWarning func(error)
}

// Listener decodes carriers. Make one with Open.
type Listener struct {
	cfg      Config
	carriers []*carrier
	isLive   bool // samples arrive in real time

	eachMu     sync.Mutex // serialises onSubframe
	onSubframe func(*Subframe)

	mu           sync.Mutex
	newestNumber int64 // newest number of all carriers
	hasNumber    bool
}

// Open opens the inputs and detects missing parameters of files. The caller must call Run, which
// closes the Listener, or Close.
func Open(ctx context.Context, cfg Config) (*Listener, error) {
	if len(cfg.Inputs) == 0 || len(cfg.Inputs) > cell.MaxCells {
		return nil, fault.New(fault.Usage, fmt.Errorf("%d inputs", len(cfg.Inputs)),
			fmt.Sprintf("pass 1 to %d carriers", cell.MaxCells))
	}
	l := &Listener{cfg: cfg, isLive: cfg.Paced}
	for i, in := range cfg.Inputs {
		c, err := l.openCarrier(ctx, cell.ID(i), in)
		if err != nil {
			l.Close()
			return nil, fmt.Errorf("%s: %w", in.Source, err)
		}
		l.carriers = append(l.carriers, c)
		l.isLive = l.isLive || !c.isFile
	}
	return l, nil
}

// Close closes the inputs of a Listener without Run.
func (l *Listener) Close() {
	for _, c := range l.carriers {
		c.input.Close()
	}
}

// Listen opens inputs and calls Run.
func Listen(ctx context.Context, inputs []Input, each func(*Subframe)) error {
	l, err := Open(ctx, Config{Inputs: inputs})
	if err != nil {
		return err
	}
	return l.Run(ctx, each)
}

// Run decodes until the inputs end or ctx does, which is no error. It calls each for one subframe
// at a time; the subframe is valid until each returns, and its messages may be kept. Subframes of
// files are in the order of their numbers; with live inputs this holds for each carrier. If each
// and the decoder are slower than a socket, samples are dropped and counted; files and pipes block.
// It returns an error if a carrier ends without any subframe.
func (l *Listener) Run(ctx context.Context, each func(*Subframe)) error {
	l.onSubframe = each
	defer l.Close()
	if l.isLive {
		l.decodeLive(ctx)
	} else {
		l.decodeFiles(ctx)
	}
	var all []error
	for _, c := range l.carriers {
		if err := c.finalError(ctx); err != nil {
			all = append(all, fmt.Errorf("%s: %w", c.Source, err))
		}
	}
	if len(all) == 1 {
		return all[0]
	}
	return errors.Join(all...)
}

// State returns the state of each carrier. It is safe for concurrent use.
func (l *Listener) State() []State {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []State
	for _, c := range l.carriers {
		all = append(all, c.State)
	}
	return all
}

func (l *Listener) warnAboutCarrier(c *carrier, err error) {
	if l.cfg.OnWarning != nil {
		l.cfg.OnWarning(fmt.Errorf("%s: %w", c.Source, err))
	}
}

// decodeFiles decodes files in rounds.
func (l *Listener) decodeFiles(ctx context.Context) {
	for ctx.Err() == nil {
		var running sync.WaitGroup
		going := false
		for _, c := range l.carriers {
			if !c.ended {
				going = true
				running.Go(func() { c.decodeSubframes(int(decodeRound / time.Millisecond)) })
			}
		}
		running.Wait()
		if !going {
			break
		}
		l.mu.Lock()
		for _, c := range l.carriers {
			for _, h := range c.pending {
				l.assignNumber(c, h)
				c.held = append(c.held, h)
			}
			clear(c.pending)
			c.pending = c.pending[:0]
			c.updateState()
		}
		out := l.takeDueSubframes()
		l.mu.Unlock()
		for _, h := range out {
			l.onSubframe(&h.Subframe)
		}
	}
}

// takeDueSubframes removes and returns the held subframes that no earlier one can precede. mu must
// be held.
func (l *Listener) takeDueSubframes() (out []*receivedSubframe) {
	for {
		var first *carrier
		for _, c := range l.carriers {
			if len(c.held) > 0 && (first == nil || c.held[0].Number < first.held[0].Number) {
				first = c
			}
		}
		if first == nil {
			return out
		}
		n := first.held[0].Number
		for _, c := range l.carriers {
			waits := !c.ended && len(c.held) == 0 && (!c.HasCell || c.lastNumber < n)
			if waits && len(first.held) < maxHeld {
				return out
			}
		}
		out = append(out, first.held[0])
		first.held = slices.Delete(first.held, 0, 1)
	}
}

// assignNumber numbers a subframe: nearest to the number expected from the samples since the last
// one, or at first to that of the other carriers. mu must be held.
func (l *Listener) assignNumber(c *carrier, h *receivedSubframe) {
	sub := int64(c.Rate / 1000)
	switch {
	case c.Subframes > 0:
		c.clock.Expect(c.lastNumber + (h.Start-c.lastStart+sub/2)/sub)
	case l.hasNumber:
		c.clock.Expect(l.newestNumber)
	}
	h.Number = c.clock.Number(uint16(h.SFN), uint8(h.Index))
	if c.Subframes > 0 && (h.Subframe.Subframe.Cell != c.Cell || !h.afterLoss && h.Start-c.lastStart > sub+sub/2) {
		h.resynced = true
	}
	if c.Subframes > 0 && h.Number != c.lastNumber+(h.Start-c.lastStart+sub/2)/sub {
		h.resynced = true // samples were missing without notice
	}
	c.lastNumber, c.lastStart = h.Number, h.Start
	l.hasNumber, l.newestNumber = true, max(l.newestNumber, h.Number)
	c.countSubframe(h)
}
