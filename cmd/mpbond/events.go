// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"mpbond/api"
	"mpbond/api/client"
	"mpbond/base/fault"
	"mpbond/base/text"
	"mpbond/core/trace"
	"mpbond/internal/cli"
)

type eventsOptions struct {
	socket string
	asJSON bool
	all    bool
}

func eventsCommand() *cobra.Command {
	var o eventsOptions
	cmd := &cobra.Command{
		Use: "events", Short: "show changes as they happen: devices, pipes, subflows, streams", Args: cobra.NoArgs,
		Long: `Show changes as they happen: devices and pipes that appear and disappear, subflows
that join, fall silent, move to another pipe or end, streams and datagram flows
that open and close. It follows every mpbond that you run on this machine, until
interrupted. If one of them ends it ends too, with exit code 3.

With --json each event is one object on one line. An object with missed_events
counts events that were lost because this program was too slow or they were too old.`,
		Example: `  mpbond events
  mpbond events --all --json | jq 'select(.kind == "subflow_down")'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return followEvents(cmd.Context(), cmd.OutOrStdout(), o)
		},
	}
	cmd.Flags().StringVar(&o.socket, "socket", "", "follow only the mpbond at this `PATH`")
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print JSON, one line for each event")
	cmd.Flags().BoolVar(&o.all, "all", false, "print earlier events first, as far as they are kept")
	return cmd
}

// followEvents prints the events of all roles that run here. It returns nil when ctx ends, and the
// error of the first role that ends.
func followEvents(ctx context.Context, w io.Writer, o eventsOptions) error {
	sockets, roles := []string{}, []string{}
	for _, path := range statusSockets(o.socket) {
		c := client.New(path)
		s, err := c.Status(ctx, false)
		c.Close()
		switch {
		case err == nil:
			sockets, roles = append(sockets, path), append(roles, s.Role)
		case o.socket != "" || !fault.Is(err, fault.NotRunning):
			return err
		}
	}
	if len(sockets) == 0 {
		return notRunningError()
	}
	interrupted := ctx.Done()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var all sync.WaitGroup
	var mu sync.Mutex // of w
	for i := range sockets {
		all.Go(func() {
			cancel(streamRoleEvents(ctx, sockets[i], o.all, func(n client.Update) error {
				mu.Lock()
				defer mu.Unlock()
				return printEvent(w, roles[i], n, o.asJSON)
			}))
		})
	}
	all.Wait()
	select {
	case <-interrupted:
		return nil // Ctrl-C is the normal end
	default:
		return context.Cause(ctx)
	}
}

// streamRoleEvents calls show for each event of the role at a socket, until ctx ends or show fails.
func streamRoleEvents(ctx context.Context, socket string, all bool, show func(client.Update) error) error {
	c := client.New(socket)
	defer c.Close()
	after := client.Now
	if all {
		after = 0
	}
	for n, err := range c.Events(ctx, after) {
		if err == nil {
			err = show(n)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// eventJSON is an event as --json prints it.
type eventJSON struct {
	Role string `json:"role"`
	*api.Event
	MissedEvents uint64 `json:"missed_events,omitempty"`
}

func printEvent(w io.Writer, role string, n client.Update, asJSON bool) error {
	if n.Change == nil && n.Position.MissedEvents == 0 {
		return nil
	}
	switch {
	case asJSON && n.Change != nil:
		return cli.PrintJSON(w, eventJSON{Role: role, Event: n.Change})
	case asJSON:
		return cli.PrintJSON(w, eventJSON{Role: role, MissedEvents: n.Position.MissedEvents})
	case n.Change == nil:
		_, err := fmt.Fprintf(w, "%s: %d events were missed here\n", role, n.Position.MissedEvents)
		return err
	}
	_, err := fmt.Fprintf(w, "%s  %s: %s\n", n.Change.T.Local().Format("15:04:05.000"), role,
		text.Printable(describeEvent(*n.Change)))
	return err
}

// describeEvent describes an event in one line for people.
func describeEvent(e api.Event) string {
	because := ""
	if e.Reason != "" {
		because = " (" + e.Reason + ")"
	}
	switch trace.Kind(e.Kind) {
	case trace.DeviceUp:
		return e.Device + " is connected"
	case trace.DeviceDown:
		return e.Device + " is away"
	case trace.DeviceAdded:
		return e.Device + " is trusted as " + e.Text
	case trace.DeviceRenamed:
		return e.Text + " is renamed to " + e.Device
	case trace.DeviceRemoved:
		return e.Device + " is no longer trusted"
	case trace.DevicePaused:
		return e.Device + " is paused"
	case trace.DeviceResumed:
		return e.Device + " is resumed"
	case trace.DeviceSuspended:
		return e.Device + " is suspended: " + e.Reason
	case trace.DeviceUnsuspended:
		return e.Device + " is no longer suspended"
	case trace.SubflowUp:
		return fmt.Sprintf("subflow %d by %s joined%s", e.Subflow, e.Device, because)
	case trace.SubflowDown:
		return fmt.Sprintf("subflow %d by %s ended%s", e.Subflow, e.Device, because)
	case trace.SubflowSilent:
		return fmt.Sprintf("subflow %d is silent, %v are sent over others", e.Subflow, e.Bytes)
	case trace.PipeUp:
		return fmt.Sprintf("pipe with %s at %s is ready", e.Device, e.Text)
	case trace.PipeDown:
		if e.Subflow != 0 {
			return fmt.Sprintf("pipe of subflow %d with %s broke", e.Subflow, e.Device)
		}
		return fmt.Sprintf("pipe with %s ended%s", e.Device, because)
	case trace.PipeMoved:
		text := fmt.Sprintf("subflow %d by %s moved to the pipe at %s%s", e.Subflow, e.Device, e.Text, because)
		if e.GapMs > 0 {
			text += fmt.Sprintf(", after %v", time.Duration(e.GapMs*float64(time.Millisecond)).Round(time.Millisecond))
		}
		return text
	case trace.PolicyChanged:
		return "policy loaded from " + e.Text + because
	case trace.CapWarning:
		return e.Device + " is nearly at its cap: " + e.Text
	case trace.CapReached:
		return e.Device + ": " + e.Text
	case trace.CapCleared:
		return e.Device + " has room again: " + e.Text
	case trace.CellReceived:
		return "senders get cell feedback for " + e.Device
	case trace.CellLost:
		return "senders get no cell feedback for " + e.Device + ": " + e.Reason
	case trace.CellRenamed:
		return fmt.Sprintf("the cells of %s call this device %s, found by what arrives", e.Device, e.Text)
	case trace.Handoff:
		return fmt.Sprintf("cell %s serves %s now (%s)", e.Text, e.Device, e.Reason)
	case trace.PolicyRefused:
		return "policy not changed: " + e.Text
	case trace.RelayUp:
		return fmt.Sprintf("subflow %d of %s to %s is relayed", e.Relay, e.Device, e.Text)
	case trace.RelayDown:
		return fmt.Sprintf("subflow %d of %s ended, %v relayed%s", e.Relay, e.Device, e.Bytes, because)
	case trace.StreamOpen:
		return fmt.Sprintf("stream %d to %s opened", e.Stream, e.Text)
	case trace.StreamClassChanged:
		return fmt.Sprintf("stream %d changed to mode %s", e.Stream, e.Text)
	case trace.StreamClose:
		return fmt.Sprintf("stream %d closed, %v received%s", e.Stream, e.Bytes, because)
	case trace.FlowOpen:
		return fmt.Sprintf("datagram flow %d opened", e.Flow)
	case trace.FlowMove:
		return fmt.Sprintf("datagram flow %d moved to subflow %d%s", e.Flow, e.Subflow, because)
	case trace.FlowClose:
		return fmt.Sprintf("datagram flow %d closed, %d datagrams%s", e.Flow, e.Count, because)
	}
	return fmt.Sprintf("%s %s %s%s", e.Kind, e.Device, e.Text, because)
}
