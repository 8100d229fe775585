package air

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"mpbond/base/fault"
	"mpbond/pbe/cell"
	"mpbond/pbe/lte"
	"mpbond/pbe/source"
)

// Input is one carrier.
type Input struct {
	// Source is the path of a file or FIFO, unix:PATH, tcp:HOST:PORT, or "-".
	Source string
	// Format is AnyFormat for what the ending of Source says.
	Format Format
	// Rate is in samples per second; 0 is found out of a file.
	Rate int
}

// sources have samples.
var sources = source.Kind{What: "samples", Files: "a file"}

// open makes a carrier of an input.
func (l *Listener) open(ctx context.Context, number cell.ID, in Input) (*carrier, error) {
	c := &carrier{State: State{Source: in.Source, Format: in.Format, Rate: in.Rate}, place: number}
	if c.Format == AnyFormat {
		c.Format = FormatOf(in.Source)
	}
	if err := c.connect(ctx, l.cfg.Stdin); err != nil {
		return nil, err
	}
	err := c.ready(ctx, l.cfg.All)
	if err == nil {
		err = c.begin()
	}
	if err != nil {
		c.in.Close()
		return nil, err
	}
	c.Live = l.cfg.Paced || !c.kept
	return c, nil
}

// connect opens the source.
func (c *carrier) connect(ctx context.Context, stdin io.Reader) error {
	if c.Source != "-" {
		src, err := sources.Parse(c.Source)
		if err != nil {
			return err
		}
		if c.in, c.kept, err = src.Open(ctx); err != nil || !c.kept {
			c.pipe = src.File()
			return err
		}
		f, err := os.Open(c.Source)
		if err != nil {
			return err
		}
		c.in = both{c.in, f}
		return c.keep(f)
	}
	if stdin == nil {
		return fault.New(fault.Usage, errors.New("there is no standard input"), "name a file")
	}
	c.in, c.pipe = io.NopCloser(stdin), true
	if f, ok := stdin.(*os.File); ok {
		return c.keep(f)
	}
	return nil
}

// both reads a file, and closes another one with it.
type both struct {
	io.ReadCloser
	other io.Closer
}

func (b both) Close() error { return errors.Join(b.ReadCloser.Close(), b.other.Close()) }

// keep notes that f, if it is a file, has all from the beginning.
func (c *carrier) keep(f *os.File) error {
	st, err := f.Stat()
	if err == nil && st.Mode().IsRegular() {
		c.kept, c.read, c.size = true, f, st.Size()
	}
	return err
}

// ready finds out what is not said, of a file, and who else is there if that is asked
// for; of what is live it must be said.
func (c *carrier) ready(ctx context.Context, others bool) error {
	if !c.kept {
		switch {
		case c.Format == AnyFormat:
			return fault.New(fault.Usage, errors.New("it is not said how samples are written"), "tell it with --format: cf32, sc16 or cu8")
		case c.Rate == 0:
			return fault.New(fault.Usage, errors.New("it is not said how many samples there are in a second"), fmt.Sprintf("tell it with --rate: %s; it is found out of files only", rateNames))
		}
		return nil
	}
	if err := noSamples(c.read, c.size); err != nil {
		return err
	}
	if c.Format == AnyFormat {
		return fault.New(fault.Usage, errors.New("the name does not say how samples are written"), "tell it with --format: cf32, sc16 or cu8")
	}
	tries, there := rates, lte.Obstacle{}
	if c.Rate != 0 {
		tries = []int{c.Rate}
	}
	for _, at := range places(c.size) {
		raw, err := stretch(c.read, at, c.size, c.Format)
		if err != nil {
			return err
		}
		rate, why := search(ctx, c.Format, raw, tries)
		if there = why; rate != 0 {
			c.Guessed, c.Rate = c.Rate == 0, rate
			if others {
				samples := c.Format.Decode(nil, raw)
				c.There, err = lte.Cells(rate, samples[:min(len(samples), int(looked*float64(rate)))])
			}
			return err
		}
	}
	err := explain(ctx, io.NewSectionReader(c.read, 0, c.size), c.Format, c.Rate, there)
	if c.Rate != 0 && (fault.Is(err, fault.NotFound) || there.Reason == lte.Unread && fault.Is(err, fault.Unsupported)) { // somewhere else in it, perhaps
		return nil
	}
	return err
}
