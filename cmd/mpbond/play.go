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

// String is the result for people.
func (r playResult) String() string {
	s := fmt.Sprintf("%d segments: %s", r.Segments, r.Bytes.Decimal())
	if r.Passed > 0 {
		s += fmt.Sprintf("\n  %d more were left to the player", r.Passed)
	}
	if r.Unused > 0 {
		s += fmt.Sprintf("\n  %s were fetched ahead, and not asked for", r.Unused.Decimal())
	}
	if r.Tunnels > 0 {
		s += fmt.Sprintf("\n  %d encrypted connections, by this device's line alone", r.Tunnels)
	}
	return s + formatShares(r.Devices)
}

func playCommand() *cobra.Command {
	var o playOptions
	cmd := &cobra.Command{
		Use: "play", Short: "fetch videos ahead of a player, over all devices, without a server", Args: cobra.NoArgs,
		Long: `Be the HTTP proxy of a video player on this device, until interrupted. Of videos
and live streams that the player loads by playlists of HLS or DASH, the segments
that come next are fetched ahead over this device's line and those of helpers that
were started with --onload, at once. Neither a server of mpbond nor a running
primary is needed. See docs/howto/onload.md.

This is for http:// alone. What is encrypted, as most sites are, passes through this
device's own line, and nobody looks in: for that there is the bond (mpbond primary).`,
		Example: `  mpbond play
  http_proxy=http://127.0.0.1:7606 mpv http://tv.example.org/live.m3u8
  mpbond play --interface wlan0 --interface wwan0 --json`,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.runProxy(cmd, nil) },
	}
	cmd.Flags().StringVar(&o.listen, "listen", "127.0.0.1:7606", "serve players at this `HOST:PORT` of this device")
	cmd.Flags().StringArrayVar(&o.interfaces, "interface", nil, "use this device's line at the interface `NAME`; may be given several times")
	cmd.Flags().StringVar(&o.scheduler, "scheduler", "", "the item scheduler, for comparisons")
	_ = cmd.Flags().MarkHidden("scheduler")
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print what was done as JSON, at the end")
	cmd.Flags().BoolVarP(&o.quiet, "quiet", "q", false, "print nothing but errors")
	return cmd
}

// runProxy serves players until it is interrupted. Find is findHelpers if it is nil.
func (o playOptions) runProxy(cmd *cobra.Command, find func(context.Context) ([]fetch.Device, error)) error {
	scheduler, err := board.New(cmp.Or(o.scheduler, board.Default))
	if err != nil {
		return err
	}
	if host, _, err := net.SplitHostPort(o.listen); err != nil || host != "localhost" && !net.ParseIP(host).IsLoopback() {
		return cli.UsageError("--listen is an address of this device alone, as 127.0.0.1:7606: whoever reaches the proxy would use its lines")
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
	defer use.close()
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
	fmt.Fprintf(notes, "players on this device: http_proxy=http://%s\nover %s; what is encrypted by %s alone\n", l.Addr(), strings.Join(names, ", "), names[0])
	search := startHelperSearch(cmd.Context(), use.helperFinder(find), len(devices) == 1, notes)
	defer search.stopSearch()
	cfg := playlist.Config{Devices: devices, NewDevices: search.found, Scheduler: scheduler, OnSuspend: reportUntilDone(cmd.Context(), newFailureLog(notes).reportFailure), Log: slog.Default()}
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

// reportUntilDone passes failures on until ctx ends. After that play itself has broken its
// connections, and no device is to blame.
func reportUntilDone(ctx context.Context, report func(string, error)) func(string, error) {
	return func(device string, err error) {
		if ctx.Err() == nil {
			report(device, err)
		}
	}
}
