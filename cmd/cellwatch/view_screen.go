package main

import (
	"context"
	"io"
	"time"

	"github.com/gdamore/tcell/v2"

	"mpbond/internal/cli"
	"mpbond/pbe/air"
	"mpbond/pbe/census"
)

// viewEvery is how often the view of cells is drawn.
const viewEvery = 100 * time.Millisecond

// cellScreen shows a cellView until its context ends or a key says so.
type cellScreen struct {
	view   *cellView
	screen tcell.Screen
	state  func() []air.State
	cancel func()
	ended  chan struct{}
	err    error // once it has ended
}

// showCells shows v on a screen, which it gives back in any case; state tells of the
// carriers, and stop is called when a key ends it.
func showCells(ctx context.Context, screen tcell.Screen, v *cellView, state func() []air.State, stop func()) *cellScreen {
	ctx, cancel := context.WithCancel(ctx)
	s := &cellScreen{view: v, screen: screen, state: state, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		s.err = s.runScreen(ctx)
		stop()
	}()
	return s
}

// Add shows a subframe.
func (s *cellScreen) Add(sub *air.Subframe) error {
	s.view.addSubframe(sub)
	return nil
}

// Close says that nothing more comes, and waits until who looks at it has seen enough,
// if there is anything to be seen.
func (s *cellScreen) Close() error {
	if !s.view.setEnded() {
		s.cancel()
	}
	<-s.ended
	s.cancel()
	return s.err
}

func (s *cellScreen) runScreen(ctx context.Context) error {
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
		s.view.setStates(s.state())
		paintTiles(s.screen, s.view.drawRows(s.screen.Size()))
		select {
		case <-ctx.Done():
			return nil // Ctrl-C is one way to end it
		case <-tick.C:
		case e := <-keys:
			switch e := e.(type) {
			case nil: // there are no more
				if ctx.Err() == nil {
					return io.ErrUnexpectedEOF // the terminal has gone
				}
				return nil
			case *tcell.EventResize:
				s.screen.Sync()
			case *tcell.EventKey:
				if s.view.handleKey(e) {
					return nil
				}
			}
		}
	}
}

// paintTiles puts rows with tiles on the screen.
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
				red, green, blue := census.UserColour(t.rnti)
				style = style.Background(tcell.NewRGBColor(int32(red), int32(green), int32(blue))).Foreground(tcell.ColorBlack)
			} else {
				style = style.Dim(true)
			}
			screen.SetContent(r.at+i, y, t.mark, nil, style)
		}
	}
	screen.Show()
}
