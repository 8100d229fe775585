// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"io"
	"math"
	"time"

	"github.com/gdamore/tcell/v2"

	"mpbond/internal/cli"
	"mpbond/pbe/air"
	"mpbond/pbe/cell"
	"mpbond/pbe/census"
)

// viewEvery is the redraw interval of the view.
const viewEvery = 100 * time.Millisecond

// cellScreen shows a cellView until its context ends or a key quits.
type cellScreen struct {
	view   *cellView
	screen tcell.Screen
	state  func() []air.State
	cancel func()
	ended  chan struct{}
	err    error // valid once ended is closed
}

// startCellScreen shows v on a screen, which it always releases. state returns the states of the
// carriers; stop is called when the view ends.
func startCellScreen(ctx context.Context, screen tcell.Screen, v *cellView, state func() []air.State,
	stop func()) *cellScreen {
	ctx, cancel := context.WithCancel(ctx)
	s := &cellScreen{view: v, screen: screen, state: state, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		s.err = s.runScreenLoop(ctx)
		stop()
	}()
	return s
}

// Add shows a subframe.
func (s *cellScreen) Add(sub *air.Subframe) error {
	s.view.applySubframe(sub)
	return nil
}

// Close marks the end of the input and waits until the user quits, if there is anything to see.
func (s *cellScreen) Close() error {
	if !s.view.markInputEnded() {
		s.cancel()
	}
	<-s.ended
	s.cancel()
	return s.err
}

// runScreenLoop draws the view and handles keys until one of them quits, ctx ends or the terminal
// is gone.
func (s *cellScreen) runScreenLoop(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	keys := make(chan tcell.Event)
	gone := make(chan struct{})
	go func() { s.screen.ChannelEvents(keys, ctx.Done()); close(gone) }()
	defer func() {
		cancel()
		s.screen.Fini()
		<-gone
	}()
	tick := time.NewTicker(viewEvery)
	defer tick.Stop()
	for {
		s.view.setCarrierStates(s.state())
		paintTiles(s.screen, s.view.drawCellView(s.screen.Size()))
		select {
		case <-ctx.Done():
			return nil // Ctrl-C is a normal end
		case <-tick.C:
		case e := <-keys:
			switch e := e.(type) {
			case nil: // no more events
				if ctx.Err() == nil {
					return io.ErrUnexpectedEOF // the terminal is gone
				}
				return nil
			case *tcell.EventResize:
				s.screen.Sync()
			case *tcell.EventKey:
				if s.view.handleViewKey(e) {
					return nil
				}
			}
		}
	}
}

// paintTiles draws rows with tiles on the screen.
func paintTiles(screen tcell.Screen, rows []viewRow) {
	plain := make([]cli.Row, len(rows))
	for y, r := range rows {
		plain[y] = r.Row
	}
	cli.SetRows(screen, plain)
	for y, r := range rows {
		for i, t := range r.tiles {
			style := tcell.StyleDefault
			if t.rnti != 0 {
				style = userTileStyle(t.rnti)
			} else {
				style = style.Dim(true)
			}
			screen.SetContent(r.at+i, y, t.mark, nil, style)
		}
	}
	screen.Show()
}

// userTileStyle returns the style of a user's tile: the user's colour behind black or white text,
// the one that can be read there.
func userTileStyle(r cell.RNTI) tcell.Style {
	red, green, blue := census.UserColour(r)
	linear := func(v uint8) float64 { return math.Pow(float64(v)/255, 2.2) }
	text := tcell.ColorBlack
	if 0.2126*linear(red)+0.7152*linear(green)+0.0722*linear(blue) < darkTile {
		text = tcell.ColorWhite
	}
	return tcell.StyleDefault.Background(tcell.NewRGBColor(int32(red), int32(green), int32(blue))).Foreground(text)
}

// darkTile is the luminance (WCAG 2) below which white text contrasts more than black.
const darkTile = 0.179
