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
	// Format is AnyFormat to use the one of the Source's ending, or of its SigMF metadata.
	Format Format
	// Rate is in samples per second, 1.4 to 30.72 million; 0 takes it from SigMF metadata, or detects it, in files
	// only.
	Rate int
	// SwapIQ exchanges I and Q. In files it is detected.
	SwapIQ bool
}

// sampleKind describes sources of samples.
var sampleKind = source.Kind{Content: "samples", FileNoun: "a file"}

// openCarrier opens an input.
func (l *Listener) openCarrier(ctx context.Context, number cell.ID, in Input) (*carrier, error) {
	if err := in.fillFromSigMF(); err != nil {
		return nil, err
	}
	c := &carrier{State: State{Source: in.Source, Format: in.Format, Rate: in.Rate, SwapIQ: in.SwapIQ}, id: number}
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
				formatHint)
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
			formatHint)
	}
	candidates, obstacle := lteRates, lte.Obstacle{}
	if c.Rate != 0 {
		candidates = []int{c.Rate}
	}
	for _, swap := range [...]bool{c.SwapIQ, !c.SwapIQ} {
		for _, at := range searchOffsets(c.fileSize) {
			raw, err := readStretch(c.file, at, c.fileSize, c.Format)
			if err != nil {
				return err
			}
			rate, found := searchRates(ctx, sampleCode{c.Format, swap}, raw, candidates)
			if rate != 0 {
				c.RateDetected, c.SwapDetected = c.Rate == 0, swap != c.SwapIQ
				if c.Rate, c.SwapIQ = rate, swap; allCells {
					c.AllCells, err = findAllCells(c.decodeStretch(raw), rate)
				}
				return err
			}
			if swap == c.SwapIQ {
				obstacle = found
			}
		}
	}
	err := explainFailure(ctx, io.NewSectionReader(c.file, 0, c.fileSize), sampleCode{c.Format, c.SwapIQ}, c.Rate,
		obstacle)
	// perhaps elsewhere in the file
	if c.Rate != 0 && (fault.Is(err, fault.NotFound) || obstacle.Reason == lte.UnreadableMIB &&
		fault.Is(err, fault.Unsupported)) {
		return nil
	}
	return err
}

// decodeStretch decodes samples as the carrier's are.
func (c *carrier) decodeStretch(raw []byte) []complex64 {
	return sampleCode{c.Format, c.SwapIQ}.decodeSamples(nil, raw)
}

// findAllCells returns the cells in samples of a rate.
func findAllCells(samples []complex64, rate int) ([]lte.Cell, error) {
	to, err := receiverRate(rate)
	if err != nil {
		return nil, err
	}
	samples = samples[:min(len(samples), int(searchSeconds*float64(rate)))]
	return lte.FindCells(to, newResampler(rate, to).appendResampled(nil, samples))
}
