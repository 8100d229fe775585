//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"mpbond/internal/cli"
	"mpbond/lab"
)

// labFlags are shared by the lab's subcommands.
type labFlags struct {
	name, house, pcap string
	json              bool
}

// labCommands returns the commands of emulated networks and experiments, in the order of
// the help text.
func labCommands() []*cobra.Command {
	f := &labFlags{}
	all := []*cobra.Command{labDemo(), labRun(f), cli.MovedCommand("bench", "mpbond-lab exp run bench"), expCommand(), labReplay(), labFlow(f), labDual(), labBound(f), labCalibrate(f)}
	for _, c := range []*cobra.Command{labUp(f), labExec(f), labSet(f), labStart(f), labRewind(f), labLs(f), labStats(f), labRecord(f), labDown(f)} {
		c.Flags().StringVar(&f.name, "name", lab.DefaultName, "name of the lab")
		all = append(all, c)
	}
	return append(all, nodeCommand())
}

// nodeCommand returns the hidden group of what the lab runs in emulated nodes and behind
// them. Package lab and tests name it.
func nodeCommand() *cobra.Command {
	c := &cobra.Command{Use: "lab", Hidden: true}
	c.AddCommand(labDaemon(), labGuard(), labSink(), labRelay(), labStreams(), labCombine(), labSplit(), labPlayer(), labProxy(), labProbe(), labFlowSink(), labFlowSource())
	return c
}

// topology reads what the arguments and --house name.
func (f *labFlags) topology(args []string) (*lab.Topology, error) {
	switch {
	case f.house != "" && len(args) == 0:
		t, err := lab.House(f.house)
		return t, cli.AsUsageError(err)
	case f.house == "" && len(args) == 1:
		t, err := lab.Load(args[0])
		return t, cli.AsUsageError(err)
	}
	return nil, cli.UsageError("name a topology file, or --house PS/HS/pipe[+pipe…][,HS/pipe…] (one of them)")
}

func (f *labFlags) houseFlag(c *cobra.Command) {
	c.Flags().StringVar(&f.house, "house", "", "built-in topology: rates in Mbit/s as PS/HS/pipe[+pipe…][,HS/pipe…]")
}

func (f *labFlags) topologyFlags(c *cobra.Command) {
	f.houseFlag(c)
	c.Flags().StringVar(&f.pcap, "pcap", "", "capture the packets at each end of each link into `DIR`")
}

func labUp(f *labFlags) *cobra.Command {
	c := &cobra.Command{
		Use: "up [FILE]", Short: "Bring a network up in the background", Args: cobra.MaximumNArgs(1),
		Example: "  mpbond-lab up --house 8/10/5\n  mpbond-lab up net.toml",
		RunE: func(_ *cobra.Command, args []string) error {
			t, err := f.topology(args)
			if err != nil {
				return err
			}
			l, err := lab.Up(t, lab.Options{Name: f.name, Pcap: f.pcap})
			if err != nil {
				return err
			}
			for _, w := range l.Warnings {
				fmt.Fprintln(os.Stderr, "warning:", w)
			}
			return nil
		},
	}
	f.topologyFlags(c)
	return c
}

func labExec(f *labFlags) *cobra.Command {
	return &cobra.Command{
		Use: "exec NODE -- COMMAND [ARG…]", Short: "Run a program in a node", Args: cobra.MinimumNArgs(2),
		Example: "  mpbond-lab exec primary -- ping -c 3 web",
		Long: `Run any program in a node of the lab. Its exit code is passed on. The program
sees the network and host names of the lab (NODE, NODE.LINK), everything else
is this machine's.`,
		RunE: func(_ *cobra.Command, args []string) error {
			l, err := lab.Open(f.name)
			if err != nil {
				return err
			}
			cmd, err := l.Command(context.Background(), args[0], args[1:]...)
			if err != nil {
				return err
			}
			if cmd.Err != nil {
				return fmt.Errorf("%w (nsenter is in the package util-linux)", cmd.Err)
			}
			return fmt.Errorf("run nsenter: %w", syscall.Exec(cmd.Path, cmd.Args, os.Environ()))
		},
	}
}

func labSet(f *labFlags) *cobra.Command {
	return &cobra.Command{
		Use: "set LINK PROPERTY=VALUE…", Short: "Change a link now", Args: cobra.MinimumNArgs(2),
		Example: "  mpbond-lab set pipe1 rate=1Mbit/s",
		Long: `Change a link now. Properties: rate (8Mbit/s, unlimited, 0 holds the queue),
delay, jitter, loss (0.01 or 1%), reorder (a share of
packets that overtake three others), queue (bytes), outage (on, off: a silent
black hole), dir (up: from the link's first end, down; absent: both).`,
		RunE: func(_ *cobra.Command, args []string) error {
			dir := ""
			var props []string
			for _, kv := range args[1:] {
				if d, ok := strings.CutPrefix(kv, "dir="); ok {
					dir = d
				} else {
					props = append(props, kv)
				}
			}
			l, err := lab.Open(f.name)
			if err != nil {
				return err
			}
			return cli.AsUsageError(l.Set(args[0], dir, props...))
		},
	}
}

func labStart(f *labFlags) *cobra.Command {
	return &cobra.Command{
		Use: "start", Short: "Make now the time zero of schedules, outages and traces", Args: cobra.NoArgs,
		Example: "  mpbond-lab start",
		RunE: func(*cobra.Command, []string) error {
			l, err := lab.Open(f.name)
			if err != nil {
				return err
			}
			return l.Start()
		},
	}
}

func labRewind(f *labFlags) *cobra.Command {
	return &cobra.Command{
		Use: "rewind", Short: "Return all links to their beginning and stop their schedules", Args: cobra.NoArgs,
		Example: "  mpbond-lab rewind",
		RunE: func(*cobra.Command, []string) error {
			l, err := lab.Open(f.name)
			if err != nil {
				return err
			}
			return l.Rewind()
		},
	}
}

func labDown(f *labFlags) *cobra.Command {
	return &cobra.Command{
		Use: "down", Short: "End all programs in the lab and take it away", Args: cobra.NoArgs,
		Example: "  mpbond-lab down",
		RunE: func(*cobra.Command, []string) error {
			l, err := lab.Open(f.name)
			if err != nil {
				return err
			}
			return l.Down()
		},
	}
}

func labLs(f *labFlags) *cobra.Command {
	c := &cobra.Command{
		Use: "ls", Short: "List the labs that are up, and this lab's nodes and links", Args: cobra.NoArgs,
		Example: "  mpbond-lab ls",
		RunE: func(c *cobra.Command, _ []string) error {
			names, err := lab.Names()
			if err != nil {
				return err
			}
			l, err := lab.Open(f.name)
			if err != nil && len(names) > 0 && !c.Flags().Changed("name") {
				l, err = lab.Open(names[0])
			}
			if err != nil {
				return err
			}
			s, err := l.Stats(false)
			if err != nil {
				return err
			}
			out := c.OutOrStdout()
			if f.json {
				return json.NewEncoder(out).Encode(struct {
					Lab      string        `json:"lab"`
					Labs     []string      `json:"labs"`
					Topology *lab.Topology `json:"topology"`
					lab.Stats
				}{l.Name, names, l.Topology, s})
			}
			fmt.Fprintf(out, "lab %s (up: %s)\nnodes: %s\n", l.Name, strings.Join(names, " "), strings.Join(l.Topology.Nodes(), " "))
			printLinks(out, s)
			return nil
		},
	}
	c.Flags().BoolVar(&f.json, "json", false, "print JSON")
	return c
}

func labStats(f *labFlags) *cobra.Command {
	reset := false
	c := &cobra.Command{
		Use: "stats", Short: "Print what the links carried and dropped, its delay, and how late the emulator was", Args: cobra.NoArgs,
		Example: "  mpbond-lab stats --json",
		RunE: func(c *cobra.Command, _ []string) error {
			l, err := lab.Open(f.name)
			if err != nil {
				return err
			}
			s, err := l.Stats(reset)
			if err != nil {
				return err
			}
			if f.json {
				return json.NewEncoder(c.OutOrStdout()).Encode(s)
			}
			printLinks(c.OutOrStdout(), s)
			return nil
		},
	}
	c.Flags().BoolVar(&f.json, "json", false, "print JSON")
	c.Flags().BoolVar(&reset, "reset", false, "begin a new period of lateness and delays")
	return c
}

func printLinks(out io.Writer, s lab.Stats) {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "LINK\tFROM\tTO\tRATE\tDELAY\tQUEUE\tDELIVERED\tPACKETS\tDROPS queue/loss/outage\tONE WAY p50/p95/p99/max, ms")
	for _, l := range s.Links {
		for dir, st := range l.Lines {
			rate, queue := st.Rate.String(), st.Queue.String()
			if st.Rate < 0 {
				rate = "unlimited"
			}
			if !l.Shaped {
				rate, queue = "veth", "-"
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d/%d/%d\t%s\n", l.Name, l.Ends[dir], l.Ends[1-dir], rate, st.Delay, queue,
				st.Count.Delivered.Bytes, st.Count.Delivered.Packets, st.Count.QueueDrops.Packets, st.Count.LossDrops.Packets, st.Count.OutageDrops.Packets, oneWay(st.Delays))
		}
	}
	w.Flush()
	for _, n := range s.LTE {
		printLTE(out, n)
	}
	lt := s.Lateness
	fmt.Fprintf(out, "lateness of %d packets: p50 %v, p99 %v, p99.9 %v, max %v", lt.Packets, lt.P50, lt.P99, lt.P999, lt.Max.Round(time.Microsecond))
	if lt.Disturbed {
		fmt.Fprint(out, ": DISTURBED")
	}
	if !s.Realtime {
		fmt.Fprint(out, " (no real-time priority)")
	}
	fmt.Fprintln(out)
}

// oneWay are delays in ms, or nothing.
func oneWay(d lab.Delays) string {
	if d.Packets == 0 {
		return "-"
	}
	ms := func(v time.Duration) string { return fmt.Sprintf("%.1f", v.Seconds()*1000) }
	return ms(d.P50) + "/" + ms(d.P95) + "/" + ms(d.P99) + "/" + ms(d.Max)
}

func printLTE(out io.Writer, n lab.LTEStats) {
	fmt.Fprintf(out, "lte %s, subframe %d: control messages at %s, truth at %s", n.Name, n.Number, n.Messages, n.Truth)
	if n.Missed > 0 || n.Dropped > 0 {
		fmt.Fprintf(out, " (%d subframes missed, %d hearers dropped)", n.Missed, n.Dropped)
	}
	fmt.Fprintln(out)
	for i, c := range n.Samples {
		fmt.Fprintf(out, "  samples of carrier %d at %s, %d a second", i, c.Socket, c.Rate)
		if c.Silent > 0 {
			fmt.Fprintf(out, " (%d subframes were silence)", c.Silent)
		}
		fmt.Fprintln(out)
	}
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "USER\tRNTI\tSIGNAL\tCARRIERS\tWAITING\tC_p\tC_f")
	for _, u := range n.Users {
		name := u.Name
		if !u.Link {
			name += " (model)"
		}
		fmt.Fprintf(w, "%s\t%#x\t%.1f dB\t%d\t%s\t%s\t%s\n", name, uint16(u.RNTI), u.SINR, u.Carriers, u.Waiting, u.Physical, u.Fair)
	}
	w.Flush()
}

func labDaemon() *cobra.Command {
	return &cobra.Command{
		Use: "daemon", Hidden: true, Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error { return lab.Daemon(os.Stdin, os.Stdout) },
	}
}

func labGuard() *cobra.Command {
	return &cobra.Command{
		Use: "guard DIR", Hidden: true, Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return lab.Guard(os.Stdin, args[0]) },
	}
}
