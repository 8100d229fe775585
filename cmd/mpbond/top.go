// SPDX-License-Identifier: Apache-2.0

//go:build !router

package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/gdamore/tcell/v2"
	"github.com/spf13/cobra"

	"mpbond/api"
	"mpbond/api/client"
	"mpbond/base/fault"
	"mpbond/base/text"
	"mpbond/internal/cli"
)

// topInterval is the time between two requests of `mpbond top`. Rates are means over a second.
const topInterval = 500 * time.Millisecond

func topCommand() *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use: "top", Short: "watch devices, subflows and apps live", Args: cobra.NoArgs,
		Long: `Watch devices, subflows and apps live: which device carries what, at which rate, with
a sparkline of the last minutes, what keeps devices from carrying (tiers, batteries,
heat, caps), and the last changes. It asks every mpbond that you run on this machine.
Quit with q, Esc or Ctrl-C.

It needs a terminal. Programs can use mpbond status --watch --json and mpbond events
--json.`,
		Example: `  mpbond top`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cli.IsTerminal(cmd.OutOrStdout()) {
				return fault.New(fault.Usage, fmt.Errorf("top needs a terminal"),
					"use `mpbond status --watch`, with --json for programs")
			}
			sockets := statusSockets(socket)
			if _, err := queryStatus(cmd.Context(), sockets, false); err != nil { // before it takes over the screen
				return err
			}
			screen, err := cli.OpenScreen("use `mpbond status --watch`")
			if err != nil {
				return err
			}
			return runTopScreen(cmd.Context(), screen, sockets)
		},
	}
	cmd.Flags().StringVar(&socket, "socket", "", "watch only the mpbond at this `PATH`")
	return cmd
}

// runTopScreen shows the roles behind sockets until ctx ends or the user quits. It restores the
// screen.
func runTopScreen(ctx context.Context, screen tcell.Screen, sockets []string) error {
	ctx, cancel := context.WithCancel(ctx)
	keys := make(chan tcell.Event)
	snapshots := make(chan topSnapshot)
	changes := make(chan string)
	ended := make(chan struct{}) // gets a value from each goroutine
	go func() { screen.ChannelEvents(keys, ctx.Done()); ended <- struct{}{} }()
	go func() { pollSnapshots(ctx, sockets, snapshots); ended <- struct{}{} }()
	for _, path := range sockets {
		go func() { pollEvents(ctx, path, changes); ended <- struct{}{} }()
	}
	defer func() {
		cancel()
		screen.Fini()
		for range 2 + len(sockets) {
			<-ended
		}
	}()
	var v topView
	for {
		drawScreen(screen, v.drawTopView(screen.Size()))
		select {
		case <-ctx.Done():
			return nil // Ctrl-C is one way to end it
		case l := <-snapshots:
			v.applySnapshot(l)
		case line := <-changes:
			v.addChangeLine(line)
		case e := <-keys:
			switch e := e.(type) {
			case nil: // the channel is closed
				if ctx.Err() == nil {
					return io.ErrUnexpectedEOF // the terminal has gone
				}
				return nil
			case *tcell.EventResize:
				screen.Sync()
			case *tcell.EventKey:
				if e.Key() == tcell.KeyEscape || e.Key() == tcell.KeyCtrlC || e.Rune() == 'q' {
					return nil
				}
			}
		}
	}
}

// topSnapshot is the state of all roles at a moment, or the error of asking them.
type topSnapshot struct {
	at       time.Time
	statuses []api.Status
	err      error

	apps map[string]appTraffic // by stream or flow
}

// pollSnapshots asks the roles at every interval until ctx ends.
func pollSnapshots(ctx context.Context, sockets []string, to chan<- topSnapshot) {
	tick := time.NewTicker(topInterval)
	defer tick.Stop()
	for {
		all, err := queryStatus(ctx, sockets, false)
		apps := queryAppTraffic(ctx, sockets)
		select {
		case to <- topSnapshot{time.Now(), all, err, apps}:
		case <-ctx.Done():
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// pollEvents passes on the changes at one role, and reconnects when it is gone, until ctx ends.
func pollEvents(ctx context.Context, socket string, to chan<- string) {
	c := client.New(socket)
	defer c.Close()
	for {
		for n, err := range c.Events(ctx, client.Now) {
			if err != nil {
				break
			}
			if n.Change == nil || n.Change.Stream != 0 || n.Change.Flow != 0 { // streams and flows are too many
				continue
			}
			select {
			case to <- n.Change.T.Local().Format("15:04:05 ") + text.Printable(describeEvent(*n.Change)):
			case <-ctx.Done():
			}
		}
		select {
		case <-time.After(watchInterval):
		case <-ctx.Done():
			return
		}
	}
}

// drawScreen shows rows on the screen, the first at the top.
func drawScreen(screen tcell.Screen, rows []cli.Row) {
	cli.SetRows(screen, rows)
	screen.Show()
}
