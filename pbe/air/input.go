// SPDX-License-Identifier: Apache-2.0

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
	// Format is AnyFormat to use the one of the Source's ending.
	Format Format
	// Rate is in samples per second; 0 detects it, in files only.
	Rate int
}

// sampleKind describes sources of samples.
var sampleKind = source.Kind{Content: "samples", FileNoun: "a file"}

// openCarrier opens an input.
func (l *Listener) openCarrier(ctx context.Context, number cell.ID, in Input) (*carrier, error) {
	c := &carrier{State: State{Source: in.Source, Format: in.Format, Rate: in.Rate}, id: number}
	if c.Format == AnyFormat {
		c.Format = FormatOf(in.Source)
	}
	if err := c.openSampleSource(ctx, l.cfg.Stdin); err != nil {
		return nil, err
	}
	err := c.detectInput(ctx, l.cfg.AllCells)
	if err == nil {
		err = c.startReceiver()
	}
	if err != nil {
		c.input.Close()
		return nil, err
	}
	c.IsLive = l.cfg.Paced || !c.isFile
	return c, nil
}

// openSampleSource opens the source of the carrier's samples: standard input, a file, a pipe or a
// server.
func (c *carrier) openSampleSource(ctx context.Context, stdin io.Reader) error {
	if c.Source != "-" {
		src, err := sampleKind.Parse(c.Source)
		if err != nil {
			return err
		}
		if c.input, c.isFile, err = src.Open(ctx); err != nil || !c.isFile {
			c.isPipe = src.IsPath()
			return err
		}
		f, err := os.Open(c.Source)
		if err != nil {
			return err
		}
		c.input = fileAndReader{c.input, f}
		return c.noteRegularFile(f)
	}
	if stdin == nil {
		return fault.New(fault.Usage, errors.New("there is no standard input"), "pass a file instead of \"-\"")
	}
	c.input, c.isPipe = io.NopCloser(stdin), true
	if f, ok := stdin.(*os.File); ok {
		return c.noteRegularFile(f)
	}
	return nil
}

// fileAndReader closes a second handle of a file together with the first.
type fileAndReader struct {
	io.ReadCloser
	other io.Closer
}

func (b fileAndReader) Close() error { return errors.Join(b.ReadCloser.Close(), b.other.Close()) }

// noteRegularFile records f if it is a regular file, which has all samples at once.
func (c *carrier) noteRegularFile(f *os.File) error {
	st, err := f.Stat()
	if err == nil && st.Mode().IsRegular() {
		c.isFile, c.file, c.fileSize = true, f, st.Size()
	}
	return err
}

// detectInput detects missing parameters and, if allCells is set, all cells in a file. Live sources
// need explicit parameters.
func (c *carrier) detectInput(ctx context.Context, allCells bool) error {
	if !c.isFile {
		switch {
		case c.Format == AnyFormat:
			return fault.New(fault.Usage, errors.New("the format of the samples is unknown"),
				"set --format: cf32, sc16 or cu8")
		case c.Rate == 0:
			return fault.New(fault.Usage, errors.New("the sample rate is unknown"),
				fmt.Sprintf("set --rate: %s; it is detected in files only", rateNames))
		}
		return nil
	}
	if err := checkNotSamples(c.file, c.fileSize); err != nil {
		return err
	}
	if c.Format == AnyFormat {
		return fault.New(fault.Usage, errors.New("the name's ending is not that of a sample format"),
			"set --format: cf32, sc16 or cu8")
	}
	candidates, obstacle := lteRates, lte.Obstacle{}
	if c.Rate != 0 {
		candidates = []int{c.Rate}
	}
	for _, at := range searchOffsets(c.fileSize) {
		raw, err := readStretch(c.file, at, c.fileSize, c.Format)
		if err != nil {
			return err
		}
		rate, found := searchRates(ctx, c.Format, raw, candidates)
		if obstacle = found; rate != 0 {
			c.RateDetected, c.Rate = c.Rate == 0, rate
			if allCells {
				samples := c.Format.Decode(nil, raw)
				c.AllCells, err = lte.FindCells(rate, samples[:min(len(samples), int(searchSeconds*float64(rate)))])
			}
			return err
		}
	}
	err := explainFailure(ctx, io.NewSectionReader(c.file, 0, c.fileSize), c.Format, c.Rate, obstacle)
	// perhaps elsewhere in the file
	if c.Rate != 0 && (fault.Is(err, fault.NotFound) || obstacle.Reason == lte.UnreadableMIB &&
		fault.Is(err, fault.Unsupported)) {
		return nil
	}
	return err
}
