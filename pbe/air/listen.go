package air

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"mpbond/fault"
	"mpbond/pbe/cell"
	"mpbond/pbe/lte"
)

// Input is one carrier.
type Input struct {
	// Source is the path of a file.
	Source string
	// Format is AnyFormat for what the ending of Source says.
	Format Format
	// Rate is in samples per second.
	Rate int
}

// cycle is after how many subframes SFN and index come again.
const cycle = 10240

// Listen decodes the inputs, as carriers of one site, until they end or ctx does.
// It calls each for one subframe at a time, which is its own again when each returns;
// the messages in it may be kept. Subframes of a carrier come in the order of their
// numbers.
func Listen(ctx context.Context, inputs []Input, each func(*Subframe)) error {
	if len(inputs) == 0 || len(inputs) > cell.MaxCells {
		return fault.New(fault.Usage, fmt.Errorf("%d inputs", len(inputs)), fmt.Sprintf("1 to %d carriers are listened to", cell.MaxCells))
	}
	ref := int64(-1)
	for i, in := range inputs {
		if err := one(ctx, cell.ID(i), in, &ref, each); err != nil {
			return fmt.Errorf("%s: %w", in.Source, err)
		}
	}
	return nil
}

// one decodes one input.
func one(ctx context.Context, id cell.ID, in Input, ref *int64, each func(*Subframe)) error {
	if in.Format == AnyFormat {
		in.Format = FormatOf(in.Source)
	}
	if in.Format == AnyFormat {
		return fault.New(fault.Usage, errors.New("the name does not say how samples are written"), "tell the format")
	}
	r, err := lte.NewReceiver(in.Rate)
	if err != nil {
		return err
	}
	f, err := os.Open(in.Source)
	if err != nil {
		return err
	}
	defer f.Close()
	var clock cell.Clock
	shift, begun := int64(0), false
	r.Heard = func(s *lte.Subframe) {
		c, _ := r.Cell()
		n := clock.Number(uint16(s.SFN), uint8(s.Index))
		if !begun && *ref >= 0 { // the same count as the carriers before
			shift = int64(math.Round(float64(*ref-n)/cycle)) * cycle
		}
		if begun = true; *ref < 0 {
			*ref = n
		}
		each(&Subframe{Cell: id, Number: n + shift, PRB: uint8(c.PRB), Subframe: s})
	}
	buf := make([]byte, in.Format.Size()*in.Rate/100)
	var samples []complex64
	for ctx.Err() == nil {
		n, err := io.ReadFull(f, buf)
		samples = in.Format.Decode(samples[:0], buf[:n])
		r.Feed(samples)
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			r.Close()
			return nil
		}
		if err != nil {
			return err
		}
	}
	return ctx.Err()
}
