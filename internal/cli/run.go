// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"mpbond/base/fault"
	"mpbond/base/text"
)

func init() { cobra.EnableTraverseRunHooks = true } // our hook runs even if a subcommand has one

// Program is one program with its subcommands.
type Program struct {
	Name, Short, Long, Example string
	// Commands returns new commands, in the order of the help text.
	Commands func() []*cobra.Command
	// Groups arranges the commands in the overview, which shows only the first paragraph of
	// Long. Without groups the help text is cobra's.
	Groups []Group
}

// Main runs the program with the arguments, streams and signals of this process, and ends
// the process.
func (p Program) Main() {
	signals := slices.DeleteFunc([]os.Signal{os.Interrupt, syscall.SIGTERM}, signal.Ignored) // as under nohup
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	os.Exit(p.Run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// Run runs the program in this process and returns its exit code. It sets the default
// logger of package slog.
func (p Program) Run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root, started := p.Root(stderr)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return ExitOK
	}
	// What fails before a command starts is an error of the command line.
	unstarted := !*started || cmd.ValidateRequiredFlags() != nil || cmd.ValidateFlagGroups() != nil
	if unstarted || fault.Is(err, fault.Usage) && fault.HintOf(err) == "" {
		if unstarted {
			err = explainArgs(cmd, err)
		}
		err = fault.New(fault.Usage, err, fmt.Sprintf("see `%s --help`", cmd.CommandPath()))
	}
	return p.reportError(ctx, stderr, cmd, err)
}

// explainArgs names the missing or unexpected argument if err is about the number of arguments, the
// flags if err is about some that exclude each other, and the format if it is about a time. It
// returns other errors unchanged.
func explainArgs(cmd *cobra.Command, err error) error {
	given, text := cmd.Flags().Args(), err.Error()
	var own interface{ ExitCode() int }
	switch {
	case errors.As(err, &own):
		return err
	case strings.HasPrefix(text, "unknown command") && !cmd.HasSubCommands() && len(given) > 0:
		return fmt.Errorf("`%s` does not take %q", cmd.CommandPath(), given[0])
	case cmd.ValidateFlagGroups() != nil && strings.HasPrefix(text, "if any flags in the group"):
		_, list, _ := strings.Cut(text, "; [")
		list, _, _ = strings.Cut(list, "]")
		return fmt.Errorf("--%s exclude each other", strings.Join(strings.Fields(list), " and --"))
	case strings.Contains(text, ": time: "):
		flag, _, _ := strings.Cut(text, ": time: ")
		return fmt.Errorf("%s: write a time with its unit, like 60s", flag)
	case !strings.Contains(text, "arg(s)"):
		return err
	}
	names := slices.DeleteFunc(strings.Fields(cmd.Use)[1:], func(n string) bool {
		return n == "--" || strings.HasPrefix(n, "[")
	})
	if i := slices.IndexFunc(names, func(n string) bool { return strings.HasPrefix(n, "-") }); i >= 0 {
		names = names[:i] // what follows are flags
	}
	switch {
	case len(given) < len(names):
	case len(given) == 0:
		return err
	default:
		return fmt.Errorf("%q is one argument too many: write `%s`", given[len(given)-1], cmd.UseLine())
	}
	missing := strings.TrimRight(strings.Join(names[len(given):], " and "), ".…")
	return fmt.Errorf("%s is missing: write `%s`", missing, cmd.UseLine())
}

// reportError shows the error that ended cmd, and returns the exit code.
func (p Program) reportError(ctx context.Context, stderr io.Writer, cmd *cobra.Command, err error) int {
	var withStatus interface {
		ExitCode() int // the exit code of the process
		Silent() bool  // whether the command has printed all
	}
	if errors.As(err, &withStatus) {
		if !withStatus.Silent() {
			p.printErrorAndHint(stderr, err, WantsJSON(cmd))
		}
		return withStatus.ExitCode()
	}
	if ctx.Err() != nil && fault.KindOf(err) == fault.Other {
		fmt.Fprintln(stderr, p.Name+": interrupted")
		return ExitInterrupted
	}
	p.printErrorAndHint(stderr, err, WantsJSON(cmd))
	return ExitCodeOf(err)
}

// printErrorAndHint prints err and its hint, as a JSON object on one line if asJSON.
func (p Program) printErrorAndHint(w io.Writer, err error, asJSON bool) {
	if asJSON {
		_ = PrintJSON(w, struct {
			Error string     `json:"error"`
			Kind  fault.Kind `json:"kind"`
			Hint  string     `json:"hint,omitempty"`
		}{err.Error(), fault.KindOf(err), fault.HintOf(err)})
		return
	}
	fmt.Fprintln(w, p.Name+":", text.Lines(err.Error()))
	if hint := fault.HintOf(err); hint != "" {
		fmt.Fprintln(w, "hint:", text.Lines(hint))
	}
}

// Root returns the tree of commands. Started becomes true when the command line is valid and a
// command begins to run.
func (p Program) Root(stderr io.Writer) (root *cobra.Command, started *bool) {
	started = new(bool)
	var level, format string
	root = &cobra.Command{
		Use: p.Name, Short: p.Short, Long: p.Long, Example: p.Example,
		SilenceErrors: true, SilenceUsage: true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			log, err := newProcessLogger(stderr, level, format)
			if err != nil {
				return err
			}
			slog.SetDefault(log)
			*started = true
			return nil
		},
	}
	p.addHelpAndVersion(root)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.PersistentFlags().StringVar(&level, "log-level", "info",
		"log this `LEVEL` and above to standard error: debug, info, warn or error")
	root.PersistentFlags().StringVar(&format, "log-format", "text", "log in this `FORMAT`: text or json")
	CompleteWith(root, "log-level", "debug", "info", "warn", "error")
	CompleteWith(root, "log-format", "text", "json")
	root.AddCommand(p.Commands()...)
	for _, c := range root.Commands() {
		refuseUnknown(c)
	}
	return root, started
}

// addHelpAndVersion sets the help text of the program, and makes --version print the version.
// cobra's own --version needs a template, and a program that uses templates keeps every method of
// every type: it is a quarter larger.
func (p Program) addHelpAndVersion(root *cobra.Command) {
	version := root.Flags().BoolP("version", "v", false, "print the version")
	help := root.HelpFunc()
	root.SetUsageFunc(printCommandUsage)
	root.SetHelpFunc(func(c *cobra.Command, args []string) { // cobra calls it when there is nothing to run
		switch {
		case c == root && *version:
			fmt.Fprintln(c.OutOrStdout(), c.Name(), ThisBuild())
		case c == root && len(p.Groups) > 0:
			p.printOverview(c.OutOrStdout(), c)
		default:
			help(c, args)
		}
	})
}

// refuseUnknown makes an unknown subcommand of c an error. By default cobra shows the help
// text and reports success.
func refuseUnknown(c *cobra.Command) {
	if !c.HasSubCommands() || c.Runnable() {
		return
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		return fault.New(fault.Usage, fmt.Errorf("unknown command %q for %q", args[0], c.CommandPath()),
			fmt.Sprintf("see `%s --help`", c.CommandPath()))
	}
}

// newProcessLogger returns the logger of the process.
func newProcessLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level %q: choose debug, info, warn or error", level)
	}
	options := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, fmt.Errorf("--log-format %q: choose text or json", format)
}
