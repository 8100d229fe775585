// SPDX-License-Identifier: Apache-2.0

//go:build linux

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"mpbond/internal/cli"
	"mpbond/lab"
)

// labFlags are the flags of the lab's subcommands.
type labFlags struct {
	name, links, pcap string
	asJSON            bool
}

// labCommands returns the commands of emulated networks and experiments in the order of the help
// text.
func labCommands() []*cobra.Command {
	f := &labFlags{}
	all := []*cobra.Command{labDemoCommand(), labFleetCommand(), labRunCommand(f), expCommand(), labReplayCommand(),
		labRandomCommand(),
		labFlowCommand(f), labDualCommand(),
		labBoundCommand(f), labCalibrateCommand(f)}
	for _, c := range []*cobra.Command{labUpCommand(f), labExecCommand(f), labSetCommand(f), labStartCommand(f),
		labRewindCommand(f), labLsCommand(f),
		labStatsCommand(f), labRecordCommand(f), labDownCommand(f)} {
		c.Flags().StringVar(&f.name, "name", lab.DefaultName, "use the lab of this name")
		all = append(all, c)
	}
	return append(all, nodeCommand())
}

// nodeCommand returns the hidden group of programs that the lab runs in emulated nodes and behind
// them. Package lab and tests use its name.
func nodeCommand() *cobra.Command {
	c := &cobra.Command{Use: "lab", Hidden: true}
	c.AddCommand(labRelayCommand(), labStreamsCommand(), labCombineCommand(), labSplitCommand(), labPlayerCommand(),
		labAppCommand(),
		labFlowSinkCommand(), labFlowSourceCommand(),
		plainCommand("daemon", func(context.Context, []string) error { return lab.RunDaemon(os.Stdin, os.Stdout) }),
		plainCommand("guard", func(_ context.Context, args []string) error {
			return lab.RunGuard(os.Stdin, args[0])
		}, "DIR"),
		plainCommand("sink", func(ctx context.Context, args []string) error {
			return lab.RunSink(ctx, args[0])
		}, "ADDRESS"),
		plainCommand("exchange", func(ctx context.Context, args []string) error {
			return lab.RunExchange(ctx, args[0], args[1])
		}, "ADDRESS", "FILE"),
		plainCommand("proxy", func(ctx context.Context, args []string) error {
			return lab.RunProxy(ctx, args[0])
		}, "ADDRESS"),
		plainCommand("probe", func(_ context.Context, args []string) error {
			return lab.RunProbe(args)
		}, "WHAT", "[JOB]"))
	return c
}

// plainCommand returns a hidden command without flags.
func plainCommand(name string, run func(ctx context.Context, args []string) error, args ...string) *cobra.Command {
	least := len(args)
	if least > 0 && args[least-1][0] == '[' {
		least--
	}
	return &cobra.Command{
		Use: strings.Join(append([]string{name}, args...), " "), Hidden: true, Args: cobra.RangeArgs(least, len(args)),
		RunE: func(c *cobra.Command, args []string) error { return run(c.Context(), args) },
	}
}

// loadTopology returns the topology that the arguments or --links describe.
func (f *labFlags) loadTopology(args []string) (*lab.Topology, error) {
	switch {
	case f.links != "" && len(args) == 0:
		t, err := lab.Triangle(f.links)
		return t, cli.AsUsageError(err)
	case f.links == "" && len(args) == 1:
		t, err := lab.LoadTopology(args[0])
		return t, cli.AsUsageError(err)
	}
	return nil, cli.UsageError("give a topology file, or --links PS/HS/pipe[+pipe…][,HS/pipe…] (one of them)")
}

// addLinksFlag adds --links.
func (f *labFlags) addLinksFlag(c *cobra.Command) {
	c.Flags().StringVar(&f.links, "links", "", "use a triangle with these `RATES` in Mbit/s: "+
		"PS/HS/pipe[+pipe…][,HS/pipe…]")
	hideFormerLinksFlag(c, &f.links)
}

// hideFormerLinksFlag adds --house, the former name of --links, as a hidden flag.
func hideFormerLinksFlag(c *cobra.Command, links *string) {
	c.Flags().StringVar(links, "house", *links, "former name of --links")
	_ = c.Flags().MarkHidden("house") // it exists
}

// addTopologyFlags adds --links and --pcap.
func (f *labFlags) addTopologyFlags(c *cobra.Command) {
	f.addLinksFlag(c)
	c.Flags().StringVar(&f.pcap, "pcap", "", "capture the packets at each end of each link in `DIR`")
}

func labUpCommand(f *labFlags) *cobra.Command {
	c := &cobra.Command{
		Use: "up [FILE]", Short: "bring up a network in the background", Args: cobra.MaximumNArgs(1),
		Example: "  mpbond-lab up --links 8/10/5\n  mpbond-lab up net.toml",
		RunE: func(_ *cobra.Command, args []string) error {
			t, err := f.loadTopology(args)
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
	f.addTopologyFlags(c)
	return c
}

func labExecCommand(f *labFlags) *cobra.Command {
	return &cobra.Command{
		Use: "exec NODE -- COMMAND [ARG…]", Short: "run a program in a node", Args: cobra.MinimumNArgs(2),
		Example: "  mpbond-lab exec primary -- ping -c 3 web",
		Long: `Run any program in a node of the lab and return its exit code. The program sees
the network and host names of the lab (NODE, NODE.LINK); everything else is this
machine's.`,
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

func labSetCommand(f *labFlags) *cobra.Command {
	return &cobra.Command{
		Use: "set LINK PROPERTY=VALUE…", Short: "change a link now", Args: cobra.MinimumNArgs(2),
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

// newLabCommand returns a command that does one thing to a lab that is up.
func (f *labFlags) newLabCommand(use, short string, do func(*lab.Lab) error) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.NoArgs, Example: "  mpbond-lab " + use,
		RunE: func(*cobra.Command, []string) error {
			l, err := lab.Open(f.name)
			if err != nil {
				return err
			}
			return do(l)
		},
	}
}

func labStartCommand(f *labFlags) *cobra.Command {
	return f.newLabCommand("start", "start schedules, outages and traces now", (*lab.Lab).Start)
}

func labRewindCommand(f *labFlags) *cobra.Command {
	return f.newLabCommand("rewind", "reset all links and stop their schedules", (*lab.Lab).Rewind)
}

func labDownCommand(f *labFlags) *cobra.Command {
	return f.newLabCommand("down", "end all programs in the lab and remove it", (*lab.Lab).Down)
}

func labLsCommand(f *labFlags) *cobra.Command {
	c := &cobra.Command{
		Use: "ls", Short: "list the labs that are up, and the nodes and links of one", Args: cobra.NoArgs,
		Example: "  mpbond-lab ls",
		RunE: func(c *cobra.Command, _ []string) error {
			names, err := lab.List()
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
			if f.asJSON {
				return json.NewEncoder(out).Encode(struct {
					Lab      string        `json:"lab"`
					Labs     []string      `json:"labs"`
					Topology *lab.Topology `json:"topology"`
					lab.Stats
				}{l.Name, names, l.Topology, s})
			}
			fmt.Fprintf(out, "lab %s (up: %s)\nnodes: %s\n", l.Name, strings.Join(names, " "),
				strings.Join(l.Topology.Nodes(), " "))
			s.Print(out)
			return nil
		},
	}
	c.Flags().BoolVar(&f.asJSON, "json", false, "print JSON")
	return c
}

func labStatsCommand(f *labFlags) *cobra.Command {
	reset := false
	c := &cobra.Command{
		Use: "stats", Short: "print what links carried, their delay and drops, and the emulator's lateness",
		Args:    cobra.NoArgs,
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
			if f.asJSON {
				return json.NewEncoder(c.OutOrStdout()).Encode(s)
			}
			s.Print(c.OutOrStdout())
			return nil
		},
	}
	c.Flags().BoolVar(&f.asJSON, "json", false, "print JSON")
	c.Flags().BoolVar(&reset, "reset", false, "start a new period of lateness and delays")
	return c
}
