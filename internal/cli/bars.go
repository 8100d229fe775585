// SPDX-License-Identifier: Apache-2.0

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

// barRefresh is the interval between two drawings of the bars.
const barRefresh = 125 * time.Millisecond

// NewBars returns a container for progress bars. Bars are drawn only if w is a terminal.
func NewBars(w io.Writer) *mpb.Progress {
	return mpb.New(mpb.WithOutput(w), mpb.WithWidth(40), mpb.WithRefreshRate(barRefresh))
}

// NewBar adds a bar. After the bar it shows the bytes so far, in the units of formatSize, and note's
// text about them.
func NewBar(
	bars *mpb.Progress, size unit.Bytes, name string, formatSize, note func(unit.Bytes) string,
) *mpb.Bar {
	style := mpb.BarStyle().Lbound("[").Filler("=").Tip(">").Padding(" ").Rbound("]")
	describe := func(s decor.Statistics) string {
		n := unit.Bytes(s.Current)
		return fmt.Sprintf(" %s, %s", formatSize(n), note(n))
	}
	return bars.New(max(0, int64(size)), style,
		mpb.PrependDecorators(decor.Name(text.Printable(name),
			decor.WCSyncSpaceR)), mpb.AppendDecorators(decor.Any(describe)))
}
