// SPDX-License-Identifier: Apache-2.0

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

// formatCount formats a number of things, in the plural unless it is one.
func formatCount(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

// helperSearch searches for helpers while items already use this device's links.
type helperSearch struct {
	found <-chan fetch.Device // closed when there are no more
	stop  context.CancelFunc
	done  sync.WaitGroup
}

// startHelperSearch starts a search and prints its result to notes. alone says that there is only
// one local link.
func startHelperSearch(ctx context.Context, find func(context.Context) ([]fetch.Device, error), alone bool,
	notes io.Writer) *helperSearch {
	ctx, stop := context.WithCancel(ctx)
	found := make(chan fetch.Device)
	s := &helperSearch{found: found, stop: stop}
	s.done.Go(func() {
		defer close(found)
		list, err := find(ctx)
		var names []string
		for _, d := range list {
			names = append(names, text.Printable(d.Name))
		}
		switch {
		case ctx.Err() != nil: // the transfer is complete without helpers
		case err != nil:
			line := text.Printable(err.Error())
			if hint := fault.HintOf(err); hint != "" {
				line += ": " + text.Printable(hint)
			}
			fmt.Fprintf(notes, "no helper found: %s\n", line)
		case len(list) > 0:
			fmt.Fprintf(notes, "also using %s\n", strings.Join(names, ", "))
		case alone:
			fmt.Fprintln(notes, "no helper found: using this device's link only")
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

// stopSearch ends the search and waits for its goroutine.
func (s *helperSearch) stopSearch() {
	s.stop()
	s.done.Wait()
}

// lockedWriter lets several goroutines write lines to w.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

// Write implements io.Writer.
func (w *lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.w.Write(p)
}

// failureLog prints the first failure of each device. Safe for concurrent use.
type failureLog struct {
	to       io.Writer
	mu       sync.Mutex
	reported map[string]bool
}

func newFailureLog(to io.Writer) *failureLog { return &failureLog{to: to, reported: map[string]bool{}} }

// reportFailure prints the first failure of a device.
func (l *failureLog) reportFailure(device string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.reported[device] {
		l.reported[device] = true
		reason := transfer.DeviceError{Device: device, Err: err}
		fmt.Fprintf(l.to, "%s fails, retrying: %s\n", text.Printable(device), text.Printable(reason.String()))
	}
}

// onloadBars draws one bar for the whole transfer and one for each device.
type onloadBars struct {
	failures *failureLog
	screen   *mpb.Progress
	total    *mpb.Bar
	devices  []*deviceBar
	started  time.Time
	visible  bool
}

func newOnloadBars(to, notes io.Writer) *onloadBars {
	b := &onloadBars{screen: cli.NewBars(to), started: time.Now(), visible: cli.IsTerminal(to)}
	b.failures = newFailureLog(b.writerAbove(notes))
	b.total = cli.NewBar(b.screen, -1, "total", unit.Bytes.Decimal, func(n unit.Bytes) string {
		return unit.RateOf(n, time.Since(b.started)).String()
	})
	return b
}

// writerAbove returns a writer for lines above the bars, which must not be torn.
func (b *onloadBars) writerAbove(w io.Writer) io.Writer {
	if b.visible && w != io.Discard {
		return b.screen
	}
	return w
}

func (b *onloadBars) drawProgress(p fetch.Progress) {
	b.total.SetTotal(max(0, int64(p.Size)), false)
	b.total.SetCurrent(int64(p.Bytes))
	for i, d := range p.Devices {
		if i == len(b.devices) {
			one := &deviceBar{}
			one.note.Store(new(string))
			one.bar = cli.NewBar(b.screen, -1, d.Device, unit.Bytes.Decimal,
				func(unit.Bytes) string { return *one.note.Load() })
			b.devices = append(b.devices, one)
		}
		note := d.Rate.String()
		if d.Down != nil {
			note = "fails, retrying"
			b.failures.reportFailure(d.Device, d.Down)
		}
		b.devices[i].note.Store(&note)
		b.devices[i].bar.SetTotal(max(0, int64(p.Size)), false)
		b.devices[i].bar.SetCurrent(int64(d.Bytes))
	}
}

// finishOnloadBars ends the bars. They stay on the screen if ok.
func (b *onloadBars) finishOnloadBars(ok bool) {
	b.total.Abort(!ok)
	for _, d := range b.devices {
		d.bar.Abort(!ok)
	}
	b.screen.Wait()
}
