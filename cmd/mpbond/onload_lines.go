package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"

	"mpbond/base/fault"
	"mpbond/base/text"
	"mpbond/base/unit"
	"mpbond/internal/cli"
	"mpbond/onload/fetch"
	"mpbond/onload/transfer"
)

// countOf is a number of things, for people.
func countOf(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// helperSearch looks for helpers while items go over the own lines already.
type helperSearch struct {
	found <-chan fetch.Device // closed when there are no more
	stop  context.CancelFunc
	over  sync.WaitGroup
}

// searchHelpers begins it. What comes of it is told to notes; alone tells that there is
// one own line only.
func searchHelpers(ctx context.Context, find func(context.Context) ([]fetch.Device, error), alone bool, notes io.Writer) *helperSearch {
	ctx, stop := context.WithCancel(ctx)
	found := make(chan fetch.Device)
	s := &helperSearch{found: found, stop: stop}
	s.over.Go(func() {
		defer close(found)
		list, err := find(ctx)
		var names []string
		for _, d := range list {
			names = append(names, text.Printable(d.Name))
		}
		switch {
		case ctx.Err() != nil: // all is done without them
		case err != nil:
			line := text.Printable(err.Error())
			if hint := fault.HintOf(err); hint != "" {
				line += ": " + text.Printable(hint)
			}
			fmt.Fprintf(notes, "no helper is found: %s\n", line)
		case len(list) > 0:
			fmt.Fprintf(notes, "over %s too\n", strings.Join(names, ", "))
		case alone:
			fmt.Fprintln(notes, "no helper is found: over this device's own line alone")
		}
		for _, d := range list {
			select {
			case found <- d:
			case <-ctx.Done():
				return
			}
		}
	})
	return s
}

// end gives it up.
func (s *helperSearch) end() {
	s.stop()
	s.over.Wait()
}

// shared lets several goroutines write lines.
type shared struct {
	mu sync.Mutex
	w  io.Writer
}

// Write implements io.Writer.
func (s *shared) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.w.Write(p)
}

// resting tells people once of each device that does not work. Safe for concurrent use.
type resting struct {
	to   io.Writer
	mu   sync.Mutex
	told map[string]bool
}

func newResting(to io.Writer) *resting { return &resting{to: to, told: map[string]bool{}} }

func (r *resting) tell(device string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.told[device] {
		r.told[device] = true
		fmt.Fprintf(r.to, "%s does not work now, and is tried again: %s\n", text.Printable(device), text.Printable(transfer.Reason{Device: device, Err: err}.String()))
	}
}

// onloadBars draws a bar for all, and one for each device.
type onloadBars struct {
	resting *resting
	screen  *mpb.Progress
	total   *mpb.Bar
	devices []*deviceBar
	begun   time.Time
	drawn   bool
}

func newOnloadBars(to, notes io.Writer) *onloadBars {
	b := &onloadBars{screen: cli.NewBars(to), begun: time.Now(), drawn: cli.IsTerminal(to)}
	b.resting = newResting(b.above(notes))
	b.total = cli.NewBar(b.screen, -1, "total", func(n unit.Bytes) string { return unit.RateOf(n, time.Since(b.begun)).String() })
	return b
}

// above is where lines go that the bars must not tear.
func (b *onloadBars) above(w io.Writer) io.Writer {
	if b.drawn && w != io.Discard {
		return b.screen
	}
	return w
}

func (b *onloadBars) draw(p fetch.Progress) {
	b.total.SetTotal(max(0, int64(p.Size)), false)
	b.total.SetCurrent(int64(p.Bytes))
	for i, d := range p.Devices {
		if i == len(b.devices) {
			one := &deviceBar{}
			one.note.Store(new(string))
			one.bar = cli.NewBar(b.screen, -1, d.Device, func(unit.Bytes) string { return *one.note.Load() })
			b.devices = append(b.devices, one)
		}
		note := d.Rate.String()
		if d.Down != nil {
			note = "does not work now"
			b.resting.tell(d.Device, d.Down)
		}
		b.devices[i].note.Store(&note)
		b.devices[i].bar.SetTotal(max(0, int64(p.Size)), false)
		b.devices[i].bar.SetCurrent(int64(d.Bytes))
	}
}

// end leaves the bars on the screen if all went well.
func (b *onloadBars) end(ok bool) {
	b.total.Abort(!ok)
	for _, d := range b.devices {
		d.bar.Abort(!ok)
	}
	b.screen.Wait()
}
