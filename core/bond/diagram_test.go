// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"fmt"
	"strings"
	"time"

	"mpbond/link/wire"
)

var endNames = [2]string{"opener", "acceptor"}

// entry is an event as kept for people. Without text it is a frame: written by
// end, or arrived there.
type entry struct {
	at       time.Time
	end      int // 0, 1; nobody: the network
	subflow  wire.SubflowID
	arrives  bool
	frame    wire.Type // 0: none
	stream   wire.StreamID
	dir      int // which end sends the bytes
	from, to wire.DataSeq
	text     string
}

// focus names the bytes that a failure concerns: sent by end dir on a stream. The zero focus names
// none.
type focus struct {
	stream   wire.StreamID
	dir      int
	from, to wire.DataSeq
}

func (f focus) has(e *entry) bool {
	return f.stream != 0 && e.stream == f.stream && e.dir == f.dir && e.from <= f.to && f.from <= e.to &&
		(e.from < f.to || e.from == e.to)
}

// diagram keeps what happens.
type diagram struct {
	entries []entry
	left    int // entries beyond maxEntries
}

// maxEntries bounds what is kept; the oldest go first, in blocks.
const maxEntries = 1 << 19

func (n *simNet) addEntry(e entry) {
	if n.diagram == nil {
		return
	}
	e.at = n.now
	d := n.diagram
	if len(d.entries) >= maxEntries {
		d.left += maxEntries / 2
		d.entries = d.entries[:copy(d.entries, d.entries[maxEntries/2:])]
	}
	d.entries = append(d.entries, e)
}

// recordFrame keeps a frame that end writes, or that arrives there.
func (n *simNet) noteFrame(end int, subflow wire.SubflowID, arrives bool, t wire.Type, payload []byte) {
	if n.diagram == nil {
		return
	}
	e := entry{end: end, subflow: subflow, arrives: arrives, frame: t, dir: end}
	if arrives {
		e.dir = 1 - end
	}
	switch t {
	case wire.TypeData:
		if f, err := wire.ParseData(payload); err == nil {
			e.stream, e.from, e.to = f.Stream, f.Seq, f.Seq+wire.DataSeq(len(f.Bytes))
			e.text = fmt.Sprintf("[%d, %d)", e.from, e.to)
		}
	case wire.TypeFin:
		if f, err := wire.ParseFin(payload); err == nil {
			e.stream, e.from, e.to = f.Stream, f.Seq, f.Seq
			e.text = fmt.Sprintf("after %d", e.from)
		}
	case wire.TypeOpen:
		if f, err := wire.ParseOpen(payload); err == nil {
			e.stream = f.Stream
		}
	case wire.TypeOpened:
		if f, err := wire.ParseOpened(payload); err == nil {
			e.stream = f.Stream
		}
	case wire.TypeReset:
		if f, err := wire.ParseReset(payload); err == nil {
			e.stream, e.text = f.Stream, f.Text
		}
	case wire.TypeWindow:
		if f, err := wire.ParseWindow(payload); err == nil {
			e.stream, e.dir, e.text = f.Stream, 1-e.dir, fmt.Sprintf("up to %d", f.Limit)
		}
	case wire.TypeAck:
		if f, err := wire.ParseAck(payload, nil); err == nil {
			for _, a := range f.Subflows {
				e.text += fmt.Sprintf(" %d:%d", a.Subflow, a.Received)
			}
		}
	}
	n.addEntry(e)
}

// lastShown is how many of the last entries are drawn, and mostAbout how many
// of those about the bytes that a failure concerns.
const lastShown, mostAbout = 60, 60

// draw shows the events in two columns with the subflows between them.
func (d *diagram) draw(about focus) string {
	var w strings.Builder
	if about.stream != 0 {
		var list []*entry
		for i := range d.entries {
			if about.has(&d.entries[i]) {
				list = append(list, &d.entries[i])
			}
		}
		fmt.Fprintf(&w, "%d events about bytes %d to %d of stream %d from the %s:\n", len(list), about.from, about.to,
			about.stream, endNames[about.dir])
		drawHead(&w)
		for i, e := range list {
			if len(list) > mostAbout && i >= mostAbout/2 && i < len(list)-mostAbout/2 {
				if i == mostAbout/2 {
					fmt.Fprintf(&w, "%10s  … %d more\n", "", len(list)-mostAbout)
				}
				continue
			}
			e.draw(&w)
		}
	}
	first := max(0, len(d.entries)-lastShown)
	fmt.Fprintf(&w, "the last %d of %d events:\n", len(d.entries)-first, len(d.entries)+d.left)
	drawHead(&w)
	for i := first; i < len(d.entries); i++ {
		d.entries[i].draw(&w)
	}
	return w.String()
}

const column = 40

func drawHead(w *strings.Builder) {
	fmt.Fprintf(w, "%10s  %-*s %-9s %s\n", "time, s", column, "opener", "  subflow", "acceptor")
}

func (e *entry) draw(w *strings.Builder) {
	text := e.text
	if e.frame != 0 {
		text = e.frame.String()
		if e.stream != 0 {
			text += fmt.Sprintf(" %d", e.stream)
		}
		text += " " + strings.TrimSpace(e.text)
	} else if e.stream != 0 {
		text = fmt.Sprintf("stream %d: %s", e.stream, text)
		if e.to > e.from {
			text += fmt.Sprintf(" [%d, %d)", e.from, e.to)
		}
	}
	subflow := "    │    "
	if e.subflow != 0 {
		subflow = fmt.Sprintf("  × %-3d  ", e.subflow) // the subflow itself
		if e.frame != 0 {
			// What is sent leaves its column, what arrives reaches it.
			subflow = [2][2]string{{fmt.Sprintf("─ %3d ·  ", e.subflow), fmt.Sprintf("  · %3d ─", e.subflow)},
				{fmt.Sprintf("◀ %3d ·  ", e.subflow), fmt.Sprintf("  · %3d ▶", e.subflow)}}[btoi(e.arrives)][e.end&1]
		}
	}
	left, right := text, ""
	switch e.end {
	case 1:
		left, right = "", text
	case nobody:
		left, right = "", "── "+text
	}
	fmt.Fprintf(w, "%10.6f  %-*s %s %s\n", e.at.Sub(simStart).Seconds(), column, left, subflow, right)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
