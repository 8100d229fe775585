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
	// decodeRound is what each carrier of files decodes before the others go on: several are
	// lined up so, and no one is far ahead.
	decodeRound = 20 * time.Millisecond
	// maxHeld is for how many subframes that one carrier has told another is waited for
	// that may still tell earlier ones: what a receiver looks through for a cell.
	maxHeld = 100
)

// Config is what a Listener listens to.
type Config struct {
	// Inputs are the carriers of one site, the primary one first.
	Inputs []Input
	// Paced reads files at the rate of their samples, as from a radio.
	Paced bool
	// AllCells asks for all cells of files, not only the strongest: State has them.
	AllCells bool
	// DropLate drops what comes faster than it is decoded of pipes, too: for who wants to
	// know of now.
	DropLate bool
	// Stdin is what "-" reads.
	Stdin io.Reader
	// OnWarning, if not nil, is told what somebody should know meanwhile: samples that were
	// lost, silence, doubts. It is called by any goroutine.
	OnWarning func(error)
}

// Listener decodes carriers. Make one with Open.
type Listener struct {
	cfg      Config
	carriers []*carrier
	isLive   bool // samples come as they come

	eachMu     sync.Mutex // of who calls each
	onSubframe func(*Subframe)

	mu           sync.Mutex
	newestNumber int64 // of all carriers
	hasNumber    bool
}

// Open opens the inputs, and finds out what is not said of files. Whoever opens a
// Listener runs it, which closes them, or closes it.
func Open(ctx context.Context, cfg Config) (*Listener, error) {
	if len(cfg.Inputs) == 0 || len(cfg.Inputs) > cell.MaxCells {
		return nil, fault.New(fault.Usage, fmt.Errorf("%d inputs", len(cfg.Inputs)), fmt.Sprintf("1 to %d carriers are listened to", cell.MaxCells))
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

// Close closes the inputs of a Listener that is not run.
func (l *Listener) Close() {
	for _, c := range l.carriers {
		c.input.Close()
	}
}

// Listen opens inputs and runs.
func Listen(ctx context.Context, inputs []Input, each func(*Subframe)) error {
	l, err := Open(ctx, Config{Inputs: inputs})
	if err != nil {
		return err
	}
	return l.Run(ctx, each)
}

// Run decodes until the inputs end or ctx does, which is no error. It calls each for
// one subframe at a time, which is its own again when each returns; the messages in
// it may be kept. Subframes of files come in the order of their numbers; of what is
// live each carrier's do. Where each and the decoder are slower than what comes over a
// socket, samples are dropped and counted; files and pipes are kept waiting. It is an error if a carrier ends, and nothing was
// heard of it.
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

// State tells of each carrier what is known now. It is for any goroutine.
func (l *Listener) State() []State {
	l.mu.Lock()
	defer l.mu.Unlock()
	var all []State
	for _, c := range l.carriers {
		all = append(all, c.State)
	}
	return all
}

func (l *Listener) warn(c *carrier, err error) {
	if l.cfg.OnWarning != nil {
		l.cfg.OnWarning(fmt.Errorf("%s: %w", c.Source, err))
	}
}

// decodeFiles decodes files, each a round at a time.
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
		out := l.takeDue()
		l.mu.Unlock()
		for _, h := range out {
			l.onSubframe(&h.Subframe)
		}
	}
}

// takeDue takes those of the held subframes that no earlier one can come before.
func (l *Listener) takeDue() (out []*receivedSubframe) {
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

// assignNumber makes the number of a subframe that was heard: nearest to what the samples
// since the last one say, at first to what the other carriers are at.
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
		h.resynced = true // samples were missing that nobody has told of
	}
	c.lastNumber, c.lastStart = h.Number, h.Start
	l.hasNumber, l.newestNumber = true, max(l.newestNumber, h.Number)
	c.countSubframe(h)
}
