// SPDX-License-Identifier: Apache-2.0

//go:build !router

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"mpbond/base/text"
	"mpbond/control/policy"
	"mpbond/internal/cli"
	"mpbond/onload/board"
	"mpbond/onload/fetch"
	"mpbond/onload/playlist"
)

type playOptions struct {
	listen, scheduler string
	interfaces        []string
	asJSON, quiet     bool
}

// playResult is what `mpbond play --json` prints.
type playResult struct {
	playlist.Result
	Devices []onloadShare `json:"devices"`
}

// String formats the result for people.
func (r playResult) String() string {
	s := fmt.Sprintf("%d segments: %s", r.Segments, r.Bytes.Decimal())
	if r.Passed > 0 {
		s += fmt.Sprintf("\n  %d more passed through to the player", r.Passed)
	}
	if r.Unused > 0 {
		s += fmt.Sprintf("\n  %s were fetched ahead and never requested", r.Unused.Decimal())
	}
	if r.Tunnels > 0 {
		s += fmt.Sprintf("\n  %d encrypted connections, over this device's link only", r.Tunnels)
	}
	return s + formatShares(r.Devices)
}

func playCommand() *cobra.Command {
	var o playOptions
	cmd := &cobra.Command{
		Use: "play", Short: "fetch videos ahead of a player over all devices, without a server", Args: cobra.NoArgs,
		Long: `Run an HTTP proxy for a video player on this device, until interrupted. When the
player loads a video or live stream by an HLS or DASH playlist, the proxy fetches the
next segments ahead, over this device's link and those of helpers that run with
--onload, at once. It needs neither a bonding server nor a running primary. See
docs/howto/onload.md.

It works for http:// only. Encrypted connections, which most sites use, pass through
this device's link unread: use the bond (mpbond primary) for them.`,
		Example: `  mpbond play
  http_proxy=http://127.0.0.1:7606 mpv http://tv.example.org/live.m3u8
  mpbond play --interface wlan0 --interface wwan0 --json`,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.runPlayerProxy(cmd, nil) },
	}
	cmd.Flags().StringVar(&o.listen, "listen", "127.0.0.1:7606", "serve players at this loopback `HOST:PORT`")
	cmd.Flags().StringArrayVar(&o.interfaces, "interface", nil,
		"use the network interface `NAME` of this device; repeatable")
	cmd.Flags().StringVar(&o.scheduler, "scheduler", "", "choose the item scheduler, for comparisons")
	_ = cmd.Flags().MarkHidden("scheduler")
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print the result as JSON at the end")
	cmd.Flags().BoolVarP(&o.quiet, "quiet", "q", false, "print only errors")
	return cmd
}

// runPlayerProxy serves players until it is interrupted. A nil find means findHelpers.
func (o playOptions) runPlayerProxy(cmd *cobra.Command, find func(context.Context) ([]fetch.Device, error)) error {
	scheduler, err := board.New(cmp.Or(o.scheduler, board.Default))
	if err != nil {
		return err
	}
	if host, _, err := net.SplitHostPort(o.listen); err != nil || host != "localhost" &&
		!net.ParseIP(host).IsLoopback() {
		return cli.UsageError("--listen must be a loopback address like 127.0.0.1:7606: others could use this " +
			"device's links")
	}
	l, err := new(net.ListenConfig).Listen(cmd.Context(), "tcp", o.listen)
	if err != nil {
		return cli.ExplainListenError(err, "--listen")
	}
	defer l.Close()
	use, err := openOnloadTally()
	if err != nil {
		return err
	}
	defer use.closeOnloadTally()
	devices, err := openLocalLinks(o.interfaces, use.LedgerFor(policy.ForDirect))
	if err != nil {
		return err
	}
	notes := io.Writer(&lockedWriter{w: cmd.ErrOrStderr()})
	if o.quiet {
		notes = io.Discard
	}
	var names []string
	for _, d := range devices {
		names = append(names, text.Printable(d.Name))
	}
	fmt.Fprintf(notes, "players on this device: http_proxy=http://%s\nusing %s; for encrypted connections only %s\n",
		l.Addr(), strings.Join(names, ", "), names[0])
	search := startHelperSearch(cmd.Context(), use.helperFinder(find), len(devices) == 1, notes)
	defer search.stopSearch()
	cfg := playlist.Config{Devices: devices, NewDevices: search.found, Scheduler: scheduler,
		OnSuspend: reportUntilDone(cmd.Context(), newFailureLog(notes).reportFailure), Log: slog.Default()}
	if own, ok := devices[0].Transport.(*http.Transport); ok {
		cfg.Dial = own.DialContext
	}
	p, err := playlist.New(cfg)
	if err != nil {
		return err
	}
	r, err := p.Serve(cmd.Context(), l)
	if err != nil {
		return err
	}
	out := playResult{Result: r}
	out.Devices, _ = computeShares(r.Devices)
	switch {
	case o.asJSON:
		return cli.PrintJSON(cmd.OutOrStdout(), out)
	case !o.quiet:
		cmd.PrintErrln(out)
	}
	return nil
}

// reportUntilDone passes failures on until ctx ends. Later failures are caused by play itself,
// which closes its connections.
func reportUntilDone(ctx context.Context, report func(string, error)) func(string, error) {
	return func(device string, err error) {
		if ctx.Err() == nil {
			report(device, err)
		}
	}
}
