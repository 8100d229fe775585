package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"mpbond/base/text"
	"mpbond/base/unit"
)

// barRefresh is how often bars are drawn.
const barRefresh = 125 * time.Millisecond

// NewBars returns a place for progress bars, which are drawn if w is a terminal.
func NewBars(w io.Writer) *mpb.Progress {
	return mpb.New(mpb.WithOutput(w), mpb.WithWidth(40), mpb.WithRefreshRate(barRefresh))
}

// NewBar adds a bar with a name and, after it, the bytes so far and a note about them.
func NewBar(bars *mpb.Progress, size unit.Bytes, name string, note func(unit.Bytes) string) *mpb.Bar {
	style := mpb.BarStyle().Lbound("[").Filler("=").Tip(">").Padding(" ").Rbound("]")
	describe := func(s decor.Statistics) string {
		n := unit.Bytes(s.Current)
		return fmt.Sprintf(" %s, %s", n.Decimal(), note(n))
	}
	return bars.New(max(0, int64(size)), style,
		mpb.PrependDecorators(decor.Name(text.Printable(name), decor.WCSyncSpaceR)), mpb.AppendDecorators(decor.Any(describe)))
}
