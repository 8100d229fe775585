// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/text"
	"mpbond/base/userfile"
	"mpbond/control/fleet"
	"mpbond/control/fleet/engine"
	"mpbond/internal/cli"
	"mpbond/link/tcp"
	"mpbond/onload/allowance"
	"mpbond/onload/permit"
	"mpbond/pbe/cell"
	celllisten "mpbond/pbe/listen"
)

func permitCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "permit", Short: "grant permits for onloading, as an operator of cells",
		Long: `Grant permits for onloading, as an operator of mobile cells. With permits, helpers
whose owners do not pay for that volume carry data for others only while their
cell has room (docs/howto/onload-helper.md).`,
		Example: `  mpbond-lab permit serve --cell north=load:/run/north.load
  mpbond-lab permit status
  mpbond-lab permit ask permits.example.org:7605 --key mpb1…`,
	}
	cmd.AddCommand(permitServeCommand(), permitAskCommand(), permitStatusCommand())
	return cmd
}

// permitOptions are the options of `permit serve`.
type permitOptions struct {
	listen, threshold string
	cells             []string
	rules             allowance.Rules
	engine            engine.Config // "": the service shares with no other one
	name              string        // among the services that share
}

func permitServeCommand() *cobra.Command {
	o := permitOptions{}
	cmd := &cobra.Command{
		Use: "serve", Short: "grant permits while the load of a cell is below a threshold", Args: cobra.NoArgs,
		Long: `Grant permits to the helpers of the trust file (mpbond trust add NAME --role helper)
while the load of their cell is below a threshold. A permit expires after a while
and must be requested again; valid permits survive restarts. Helpers need this
service's key, which mpbond keygen prints.

A cell's load comes from SOURCE: load:PATH or load:URL, a file or web page with a
number like 0.42 or 42%, read every 2 s; or control messages of the cell, as for
cellwatch capacity: a FIFO, unix:PATH or tcp:HOST:PORT. Their load is the share of
resource blocks that are allocated. A recording is played once, in real time.
No permit is granted if the load is unknown or older than 30 s.

With --fleet several services share permits and loads in the engine of a fleet: they
grant together what one would, and the highest load that one of them knows counts. Give
all the same --threshold, --life and --most. A cell without SOURCE has its load from the
others. While the engine does not answer, nothing is granted or renewed.`,
		Example: `  mpbond-lab permit serve --cell north=load:/run/north.load
  mpbond-lab permit serve --cell north=unix:/run/north.cells --threshold 60% --life 2m
  mpbond-lab permit serve --cell north --fleet tls://n1.example.org --creds permits2.creds --name permits2`,
		RunE: func(cmd *cobra.Command, _ []string) error { return servePermits(cmd.Context(), o) },
	}
	cmd.Flags().StringVar(&o.listen, "listen", ":"+strconv.Itoa(permit.Port), "answer helpers at this `HOST:PORT`")
	cmd.Flags().StringSliceVar(&o.cells, "cell", nil, "serve a cell with this name and source of its load, "+
		"`NAME=SOURCE` (repeatable)")
	cmd.Flags().StringVar(&o.threshold, "threshold", "70%", "grant nothing from this load on")
	cmd.Flags().DurationVar(&o.rules.Life, "life", 5*time.Minute, "let a permit expire after this time")
	cmd.Flags().IntVar(&o.rules.MaxPermits, "most", 16, "grant at most that many permits of a cell at once")
	cmd.Flags().StringVar(&o.engine.Engine, "fleet", "", "share permits and loads with other services in this `ENGINE`: "+
		"nats://HOST:PORT or tls://…, several separated by commas, or file:DIR")
	cmd.Flags().StringVar(&o.engine.Creds, "creds", "", "use the credentials in this `FILE` for the engine")
	cmd.Flags().StringVar(&o.engine.CA, "fleet-ca", "",
		"trust the authority with the certificate in this `FILE` for the engine; empty: those of the system")
	cmd.Flags().StringVar(&o.name, "name", "", "have this `NAME` among the services that share, which no other one has; "+
		"empty: the host name")
	_ = cmd.MarkFlagRequired("cell")
	return cmd
}

// servePermits grants permits until ctx ends.
func servePermits(ctx context.Context, o permitOptions) error {
	var err error
	if o.rules.Threshold, err = permit.ParseLoad(o.threshold); err != nil || o.rules.Threshold == 0 {
		return cli.UsageError("--threshold must be a load like 70%%")
	}
	if o.rules.Life < 10*time.Second || o.rules.Life > allowance.MaxLife || o.rules.MaxPermits < 1 {
		return cli.UsageError("--life must be from 10s to %v, and --most at least 1", allowance.MaxLife)
	}
	isShared := o.engine.Engine != ""
	if !isShared && (o.engine.Creds != "" || o.engine.CA != "" || o.name != "") {
		return cli.UsageError("--creds, --fleet-ca and --name need --fleet")
	}
	if isShared && o.rules.MaxPermits > permit.MaxSharedPermits {
		return cli.UsageError("--most must be at most %d with --fleet", permit.MaxSharedPermits)
	}
	sources, names, err := parseCells(o.cells, isShared)
	if err != nil {
		return err
	}
	key, trust, err := cli.LoadIdentity()
	if err != nil {
		return err
	}
	var s *permit.Service
	if id := (permit.Identity{Key: key, Trust: trust}); isShared {
		store, err := openSharedStore(ctx, o)
		if err != nil {
			return err
		}
		defer store.Close()
		if s, err = newSharedService(ctx, o, id, names, store); err != nil {
			return err
		}
	} else if s, err = newOwnService(o, id, names); err != nil {
		return err
	}
	defer s.Close()
	l, err := tcp.Listen(ctx, o.listen, tcp.Options{})
	if err != nil {
		return cli.ExplainListenError(err, "--listen")
	}
	g, serving := errgroup.WithContext(ctx)
	if isShared {
		g.Go(func() error { s.Share(serving); return nil })
	}
	for name, from := range sources {
		if from != "" {
			g.Go(func() error { return watchCellLoad(serving, s, name, from) })
		}
	}
	g.Go(func() error { return pollTrustFile(serving, trust) })
	g.Go(func() error { return s.Serve(serving, l) })
	slog.Info("permit service started", "address", l.Addr(), "key", key.Public(), "cells",
		slices.Sorted(slices.Values(names)))
	if err := g.Wait(); ctx.Err() == nil {
		return err
	}
	return nil
}

// parseCells parses cells: NAME=SOURCE, with the sources by name, or NAME alone if services share loads.
func parseCells(cells []string, isShared bool) (sources map[string]string, names []string, err error) {
	sources = map[string]string{}
	for _, c := range cells {
		name, from, ok := strings.Cut(c, "=")
		_, isTwice := sources[name]
		if name == "" || ok && from == "" || !ok && !isShared || len(name) > 64 || isTwice {
			return nil, nil, cli.UsageError("--cell %q is not NAME=SOURCE, or is given twice", c)
		}
		if isShared {
			if err := fleet.CheckCell(name); err != nil {
				return nil, nil, err
			}
		}
		if ok {
			if err := checkLoadSource(from); err != nil {
				return nil, nil, err
			}
		}
		sources[name], names = from, append(names, name)
	}
	return sources, names, nil
}

// newOwnService returns a service that shares nothing: it keeps its permits in a file.
func newOwnService(o permitOptions, id permit.Identity, cells []string) (*permit.Service, error) {
	path, err := cli.InHome("permits.jsonl")
	if err != nil {
		return nil, err
	}
	return permit.NewService(id, allowance.NewIssuer(o.rules, cells...), path, slog.Default())
}

// loadPollInterval is how often a load is read, and how soon a failed source is tried again. Tests
// shorten it.
var loadPollInterval = 2 * time.Second

// pollTrustFile reads the trust file each second, so that revoked devices get no permits.
func pollTrustFile(ctx context.Context, trust *identity.Trust) error {
	return pollAtInterval(ctx, time.Second, func() error { return trust.Reload() })
}

// pollAtInterval calls f at once and then at each interval until ctx ends. It logs each new error
// once.
func pollAtInterval(ctx context.Context, wait time.Duration, f func() error) error {
	t := time.NewTicker(wait)
	defer t.Stop()
	for lastError := ""; ; {
		err := f()
		if err == nil {
			lastError = ""
		} else if err.Error() != lastError && ctx.Err() == nil {
			lastError = err.Error()
			slog.Warn("permit service: source failed", "err", err, "hint", fault.HintOf(err))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}

// checkLoadSource returns why a source of loads can never work. A socket, or a file with a number,
// may appear later.
func checkLoadSource(from string) error {
	if strings.HasPrefix(from, "load:") {
		return nil
	}
	if _, err := celllisten.ParseSource(from); err != nil {
		return err
	}
	if strings.HasPrefix(from, "unix:") || strings.HasPrefix(from, "tcp:") {
		return nil
	}
	if _, err := userfile.Stat(from); err != nil {
		return fault.New(fault.NotFound, err, "a load comes from load:PATH, load:URL, unix:PATH, tcp:HOST:PORT, a "+
			"FIFO or a recording")
	}
	return nil
}

// watchCellLoad reports the load of a cell to a service until ctx ends.
func watchCellLoad(ctx context.Context, s *permit.Service, name, from string) error {
	if at, ok := strings.CutPrefix(from, "load:"); ok {
		return pollAtInterval(ctx, loadPollInterval, func() error {
			load, err := permit.ReadLoad(ctx, at)
			if err == nil {
				s.SetLoad(name, load)
			}
			return err
		})
	}
	src, err := celllisten.ParseSource(from)
	if err != nil {
		return err
	}
	played := false
	return pollAtInterval(ctx, loadPollInterval, func() error {
		if played { // once: a recording says nothing about the present
			return nil
		}
		in, kept, err := src.Open(ctx)
		if err != nil {
			return err
		}
		defer in.Close()
		played = kept
		return observeLoad(ctx, in, kept, func(load float64) { s.SetLoad(name, load) })
	})
}

// observeLoad calls report with the load of the cell of control messages, twice a second, until
// they or ctx end. A recording is read in real time.
func observeLoad(ctx context.Context, in io.Reader, recorded bool, report func(float64)) error {
	r, err := cell.NewReader(in)
	if err != nil {
		return err
	}
	var load cell.Load
	var first int64 = -1
	begin, reported := time.Now(), time.Time{}
	for ctx.Err() == nil {
		sub, err := r.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if first < 0 {
			first = sub.Number
		}
		if at := begin.Add(time.Duration(sub.Number-first) * time.Millisecond); recorded &&
			time.Until(at) > 20*time.Millisecond {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(time.Until(at)):
			}
		}
		load.Add(sub)
		if share, known := load.Share(); known && time.Since(reported) > 500*time.Millisecond {
			report(share)
			reported = time.Now()
		}
	}
	return nil
}

// formatAnswer formats an answer for people. An unknown load is omitted.
func formatAnswer(a allowance.Answer) string {
	line := "cell " + text.Printable(a.Cell)
	if a.Granted || a.Load > 0 {
		line += fmt.Sprintf(", load %.0f %%", 100*a.Load)
	}
	if !a.Granted {
		return line + ": not permitted: " + text.Printable(a.Reason)
	}
	return line + fmt.Sprintf(": permitted for %v", a.Life)
}

func permitAskCommand() *cobra.Command {
	var key, in string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "ask HOST:PORT", Short: "request a permit from a service, as this helper would", Args: cobra.ExactArgs(1),
		Example: "  mpbond-lab permit ask permits.example.org:7605 --key mpb1… --cell north",
		Long: `Request a permit from a service once, as this helper would, and print the answer.
A granted permit belongs to this device until it expires. The exit code is 1 if the
request is refused.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			service, err := identity.ParsePublicKey(key)
			if err != nil {
				return err
			}
			own, _, err := cli.LoadIdentity()
			if err != nil {
				return err
			}
			a, err := permit.Client{Key: own, Address: args[0], Service: service, Cell: in}.RequestPermit(cmd.Context())
			if err != nil {
				return err
			}
			if asJSON {
				err = cli.PrintJSON(cmd.OutOrStdout(), struct {
					Granted bool    `json:"granted"`
					Cell    string  `json:"cell"`
					Load    float64 `json:"load"`
					Seconds float64 `json:"seconds"`
					Why     string  `json:"why,omitempty"`
				}{a.Granted, a.Cell, a.Load, a.Life.Seconds(), a.Reason})
			} else {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), formatAnswer(a))
			}
			if err == nil && !a.Granted {
				err = &cli.ExitStatus{Code: cli.ExitFailure}
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.Flags().StringVar(&key, "key", "", "accept only a service with this public `KEY`")
	cmd.Flags().StringVar(&in, "cell", "", "request a permit for this cell (default: the only one of the service)")
	_ = cmd.MarkFlagRequired("key")
	return cmd
}
