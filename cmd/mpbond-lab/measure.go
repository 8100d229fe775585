// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"mpbond/base/unit"
	"mpbond/core/sched"
	"mpbond/internal/cli"
	"mpbond/lab"
	"mpbond/lab/exp"
	"mpbond/onload/board"
)

// screenWidth is the width of tables, in columns.
const screenWidth = 100

// runOptions are the options of "run".
type runOptions struct {
	*labFlags
	lab.RunSpec
	schemes, get, put, drive string
	network                  string
	items                    int
}

// randomPathTimes is how many times as long as the fastest single path others may take, to be
// measured over a random network.
const randomPathTimes = 3

func labRunCommand(f *labFlags) *cobra.Command {
	o := runOptions{labFlags: f}
	c := &cobra.Command{
		Use: "run [FILE]", Short: "measure transfers over an emulated network", Args: cobra.MaximumNArgs(1),
		Example: "  mpbond-lab run --links 8/10/5 --get 2MB --reps 5",
		Long: `Bring up a network, measure transfers between the nodes primary and web with curl
and nginx, and take it down again. Schemes are interleaved.

Schemes:

    single[:HELPER]     one path: the direct one, or that through HELPER
    mptcp               kernel MPTCP; helpers are NAT routers
    mptcp:own           kernel MPTCP over the primary's links to the server
    mptcp[:…]:cc=NAME   with this congestion control: of the kernel, or lia, olia or
                        balia, which couple the subflows and need BPF
    mptcp:direct[:subflows=2]
                        kernel MPTCP over the direct path
    mptcp:ratio=P[/P…]  one TCP connection for each path with a fixed share of
                        the bytes: of the direct path, of helper1, …
    combine[:CHUNK]     HTTP byte ranges from a common queue; helpers are HTTP
                        proxies
    relay[:copy]        a TCP relay in Go on the server, over the direct path;
                        with copy it reads and writes instead of splicing
    mpbond[:OPTION…]    mpbond. Options: a scheduler; noreinject; direct (no
                        helpers); subflows=N; feedback=MODE; if=LINK[+LINK…]
                        (direct subflows over these links); udp (subflows over
                        UDP; it needs if=); cc=NAME (congestion control: of the
                        kernel, like cubic or bbr; over UDP our own cubic, bbr,
                        copa, or pbe, which listens to the cells of mobile
                        networks)
    onload[:SCHEDULER]  mpbond get --onload, or put, without a server
    page                uploads over a helper's page, without a client

With mptcp, mpbond and onload, :helpers=N uses the first N helpers only.

Schedulers of mpbond:
` + strings.Join(sched.Names(), ", ") + `
(ratio:0.6 sets the direct subflow's share). Schedulers of onload:
` + strings.Join(board.Names(), ", ") + `.

A transfer in which the emulator was late, or a program waited for a processor for
over 50 ms, is marked disturbed, discarded and repeated.

Changes, at times after the start of the client:

    --at 2s:hs1.rate=1Mbit/s   change a link (LINK[.up|.down].PROPERTY=VALUE)
    --at 3s:kill=helper1       kill the programs in a node
    --at 3s:off=helper1        drop all packets of its links`,
		RunE: func(c *cobra.Command, args []string) error {
			p, err := o.buildRunSpec(args)
			if err != nil {
				return err
			}
			if o.network != "" {
				if !c.Flags().Changed("scheme") {
					paths, err := p.SinglePaths(randomPathTimes)
					if err != nil {
						return err
					}
					p.Schemes = append([]string{"mpbond", "mptcp"}, paths...)
				}
				fmt.Fprint(c.ErrOrStderr(), p.DescribeNetwork())
			}
			return runTransferSpec(c, p, f.asJSON)
		},
	}
	f.addTopologyFlags(c)
	c.Flags().StringVar(&o.schemes, "scheme", "single,mptcp,mpbond", "compare these `SCHEMES`")
	c.Flags().StringVar(&o.get, "get", "", "download that many `BYTES` (512KB, 10MB)")
	c.Flags().StringVar(&o.put, "put", "", "upload that many `BYTES`")
	c.Flags().StringVar(&o.drive, "drive", "", "transfer for 30 s over the recorded drive `NAME` instead, as the "+
		"bench does")
	c.Flags().StringVar(&o.network, "network", "", "transfer over a random network, `KIND/SEED` with a kind of "+
		strings.Join(lab.RandomKinds, ", ")+", as rows n1 to n3 of exp do; without --scheme with mpbond, mptcp and the "+
		"single paths that can be the fastest")
	c.Flags().IntVar(&o.Streams, "streams", 1, "make this `NUMBER` of downloads at once")
	c.Flags().IntVar(&o.items, "items", 0,
		"move this `NUMBER` of files in one transfer, like segments of a video or photos")
	c.Flags().IntVar(&o.Objects, "objects", 0, "move this `NUMBER` of objects of that size one after the other over one "+
		"connection, and report the first (cold) and the others (warm) apart")
	c.Flags().IntVar(&o.Reps, "reps", 1, "make this `NUMBER` of transfers of each scheme")
	c.Flags().Uint64Var(&o.Seed, "seed", 1, "seed the file's content with this `NUMBER`")
	c.Flags().StringArrayVar(&o.At, "at", nil, "make a change at a time, `TIME:WHAT`; repeatable")
	c.Flags().DurationVar(&o.Ping, "ping", 0, "send a small packet at this `INTERVAL` over each link between "+
		"primary and server, and report its delays")
	c.Flags().StringVar(&o.Trace, "trace", "", "keep the output and events of programs in `DIR`")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print one JSON object per transfer")
	cli.GroupFlags(c, "Network", "links", "drive", "at")
	cli.GroupFlags(c, "Transfers", "scheme", "get", "put", "items", "streams", "reps", "seed")
	cli.GroupFlags(c, "Output", "json", "ping", "pcap", "trace")
	return c
}

// buildRunSpec returns the spec of the transfers.
func (o runOptions) buildRunSpec(args []string) (p lab.RunSpec, err error) {
	p = o.RunSpec
	for scheme := range strings.SplitSeq(o.schemes, ",") {
		p.Schemes = append(p.Schemes, lab.CanonicalScheme(scheme))
	}
	p.Pcap = o.pcap
	if p.Reps <= 0 {
		return p, cli.UsageError("--reps must be over 0")
	}
	if o.network != "" {
		if len(args) > 0 || o.get+o.put+o.links+o.drive != "" || o.Objects+o.items > 0 {
			return p, cli.UsageError("--network excludes FILE, --links, --drive, --get, --put, --objects and --items")
		}
		drawn, err := lab.ParseRandomSpec(o.network)
		p.Topology, p.Size, p.Upload, p.Objects = drawn.Topology, drawn.Size, drawn.Upload, drawn.Objects
		return p, cli.AsUsageError(err)
	}
	if o.drive != "" {
		if len(args) > 0 || o.get+o.put+o.links != "" {
			return p, cli.UsageError("--drive excludes FILE, --links, --get and --put")
		}
		ride, err := lab.DriveSpec(o.drive)
		p.Topology, p.Size, p.Upload, p.Length = ride.Topology, ride.Size, ride.Upload, ride.Length
		return p, cli.AsUsageError(err)
	}
	if p.Topology, err = o.loadTopology(args); err != nil {
		return p, err
	}
	if p.Upload = o.put != ""; p.Upload == (o.get != "") {
		return p, cli.UsageError("give --get BYTES or --put BYTES")
	}
	if p.Size, err = unit.ParseBytes(o.get + o.put); err != nil || p.Size <= 0 {
		return p, cli.AsUsageError(cmp.Or(err, errors.New("the size must be over 0")))
	}
	if o.Objects > 0 && o.items > 0 {
		return p, cli.UsageError("--objects excludes --items")
	}
	if o.items > 0 {
		p.Items, p.Size = slices.Repeat([]unit.Bytes{p.Size}, o.items), 0
	}
	return p, nil
}

func labBoundCommand(f *labFlags) *cobra.Command {
	var size string
	var put bool
	c := &cobra.Command{
		Use: "bound [FILE]", Short: "print the fluid bound of a transfer", Args: cobra.MaximumNArgs(1),
		Example: "  mpbond-lab bound --links 8/10/5 --bytes 2MB",
		RunE: func(c *cobra.Command, args []string) error {
			t, err := f.loadTopology(args)
			if err != nil {
				return err
			}
			n, err := unit.ParseBytes(size)
			if err != nil {
				return cli.AsUsageError(err)
			}
			d, err := lab.Bound(t, n, put)
			if err != nil {
				return err
			}
			if cli.WantsJSON(c) {
				return cli.PrintJSON(c.OutOrStdout(), struct {
					Seconds float64 `json:"seconds"`
				}{d.Seconds()})
			}
			fmt.Fprintf(c.OutOrStdout(), "%.3f\n", d.Seconds())
			return nil
		},
	}
	f.addLinksFlag(c)
	c.Flags().StringVar(&size, "bytes", "10MB", "set the size of the transfer")
	c.Flags().BoolVar(&put, "put", false, "compute the bound of an upload")
	c.Flags().Bool("json", false, "print JSON")
	return c
}

func labCalibrateCommand(f *labFlags) *cobra.Command {
	rates := []string{"1Mbit/s", "10Mbit/s", "50Mbit/s", "100Mbit/s"}
	length := 5 * time.Second
	c := &cobra.Command{
		Use: "calibrate", Short: "measure the accuracy of the emulator on this machine", Args: cobra.NoArgs,
		Example: "  mpbond-lab calibrate --length 5s",
		Long: `Load six emulated links at once with TCP, at several rates. Measure the rates of
the links and the one-way delay that the emulator adds to datagrams on a seventh.
Fit means: rates within 0.5 % (1 % from 100 Mbit/s on), an added delay of at most
0.5 ms (p99), and no disturbance.`,
		RunE: func(c *cobra.Command, _ []string) error {
			return runCalibration(c, rates, length, f.asJSON)
		},
	}
	c.Flags().StringSliceVar(&rates, "rates", rates, "set the rates of each link")
	c.Flags().DurationVar(&length, "length", length, "measure for this time at each rate")
	c.Flags().BoolVar(&f.asJSON, "json", false, "print one JSON object per rate")
	return c
}

func runCalibration(c *cobra.Command, rates []string, length time.Duration, asJSON bool) error {
	var all []lab.Calibration
	for _, text := range rates {
		rate, err := unit.ParseRate(text)
		if err != nil {
			return cli.AsUsageError(err)
		}
		r, err := lab.Calibrate(c.Context(), rate, length)
		if err != nil {
			return err
		}
		if all = append(all, r); asJSON {
			if err := json.NewEncoder(c.OutOrStdout()).Encode(r); err != nil {
				return err
			}
		}
	}
	if asJSON {
		return nil
	}
	return lab.PrintCalibrations(c.OutOrStdout(), all)
}

func labRelayCommand() *cobra.Command {
	var copies bool
	c := &cobra.Command{
		Use: "relay LISTEN TARGET", Hidden: true, Args: cobra.ExactArgs(2),
		RunE: func(c *cobra.Command, args []string) error { return lab.Relay(c.Context(), args[0], args[1], copies) },
	}
	c.Flags().BoolVar(&copies, "copy", false, "read and write instead of splicing")
	return c
}

func labCombineCommand() *cobra.Command {
	var l lab.CombineClient
	c := &cobra.Command{
		Use: "combine URL", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			l.URL = args[0]
			return l.Run(c.Context(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	c.Flags().Int64Var(&l.Chunk, "chunk", 256<<10, "bytes of a range")
	c.Flags().DurationVar(&l.Length, "length", 0, "end after that time")
	c.Flags().StringArrayVar(&l.Proxies, "proxy", nil, "HTTP proxy at `HOST:PORT` (repeatable)")
	return c
}

func labSplitCommand() *cobra.Command {
	var parts []string
	c := &cobra.Command{
		Use: "split URL", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			l := lab.SplitClient{URL: args[0]}
			for _, text := range parts {
				p, err := lab.ParseSplitPart(text)
				if err != nil {
					return cli.AsUsageError(err)
				}
				l.Parts = append(l.Parts, p)
			}
			return l.Run(c.Context(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	c.Flags().StringArrayVar(&parts, "part", nil, "fetch a part over a connection, as local `ADDRESS=BYTES` "+
		"(repeatable)")
	return c
}

func labPlayerCommand() *cobra.Command {
	var p lab.Player
	c := &cobra.Command{
		Use: "player VIDEO", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := json.Unmarshal([]byte(args[0]), &p); err != nil {
				return cli.AsUsageError(err)
			}
			return p.Run(c.Context(), c.OutOrStdout())
		},
	}
	c.Flags().StringVar(&p.SOCKS, "socks5-hostname", "", "go through the proxy at `HOST:PORT`") // as in curl
	c.Flags().BoolVar(&p.MPTCP, "mptcp", false, "ask the kernel for MPTCP")
	c.Flags().Int64Var(&p.Chunk, "chunk", 0, "fetch in ranges of that many bytes")
	c.Flags().StringArrayVar(&p.Proxies, "proxy", nil, "HTTP proxy at `HOST:PORT`, for ranges (repeatable)")
	return c
}

func labAppCommand() *cobra.Command {
	var a lab.AppClient
	c := &cobra.Command{
		Use: "app SCRIPT", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := json.Unmarshal([]byte(args[0]), &a); err != nil {
				return cli.AsUsageError(err)
			}
			return a.Run(c.Context(), c.InOrStdin(), c.OutOrStdout())
		},
	}
	c.Flags().StringVar(&a.SOCKS, "socks5-hostname", "", "go through the proxy at `HOST:PORT`") // as in curl
	c.Flags().BoolVar(&a.MPTCP, "mptcp", false, "ask the kernel for MPTCP")
	return c
}

func labStreamsCommand() *cobra.Command {
	var s lab.Streams
	c := &cobra.Command{
		Use: "streams URL", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			s.URL = args[0]
			return s.Run(c.Context(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	c.Flags().StringVar(&s.SOCKS, "socks5-hostname", "", "go through the proxy at `HOST:PORT`") // as in curl
	c.Flags().IntVar(&s.N, "streams", 1, "downloads at once")
	return c
}

// checkProduct checks the program mpbond if one of the schemes runs it.
func checkProduct(ctx context.Context, schemes ...string) error {
	if !slices.ContainsFunc(schemes, lab.RunsProduct) {
		return nil
	}
	return lab.CheckProduct(ctx, cli.Version)
}

// runTransferSpec runs a spec. It prints each transfer as it ends and, without JSON, a summary.
func runTransferSpec(c *cobra.Command, p lab.RunSpec, asJSON bool) error {
	out := c.OutOrStdout()
	var results []lab.Result
	if err := p.Check(); err != nil {
		return cli.AsUsageError(err)
	}
	if err := checkProduct(c.Context(), p.Schemes...); err != nil {
		return err
	}
	err := lab.Run(c.Context(), p, func(r lab.Result) {
		results = append(results, r)
		if asJSON {
			_ = cli.PrintJSON(out, r)
		} else {
			r.Print(out)
		}
	})
	if err != nil {
		return err
	}
	all := exp.SummarizeSchemes(p.Schemes, results)
	if !asJSON {
		if err := exp.SchemeTable("", all).PrintWithin(out, screenWidth); err != nil {
			return err
		}
	}
	for _, s := range all {
		switch {
		case s.Failed > 0:
			return fmt.Errorf("%d transfers of %s failed", s.Failed, s.Scheme)
		case s.N < p.Reps:
			return fmt.Errorf("%d transfers of %s stayed disturbed: the machine is too busy to measure", p.Reps-s.N,
				s.Scheme)
		}
	}
	return nil
}
