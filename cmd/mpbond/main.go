// Command mpbond bonds the links of several devices. This package stands
// before everything else: it reads flags and files, wires the packages together,
// and turns errors into words and exit codes. One file holds one subcommand.
package main

import (
	"context"
	"encoding/json"
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

// commands lists the subcommands in the order of the help text.
func commands() []*cobra.Command {
	return []*cobra.Command{
		serverCommand(),
		primaryCommand(),
		helperCommand(),
		dualCommand(),
		pairCommand(),
		acceptCommand(),
		devicesCommand(),
		renameCommand(),
		pauseCommand(),
		resumeCommand(),
		revokeCommand(),
		keygenCommand(),
		trustCommand(),
		runCommand(),
		getCommand(),
		putCommand(),
		playCommand(),
		statusCommand(),
		streamsCommand(),
		usageCommand(),
		eventsCommand(),
		topCommand(),
		policyCommand(),
		cellCommand(),
		permitCommand(),
		consoleCommand(),
		doctorCommand(),
		labCommand(),
		expCommand(),
		versionCommand(),
		manCommand(),
	}
}

const rootHelp = `mpbond lets the devices that you own reach the Internet together. Apps run on
the primary; helpers lend it their links; a server at the far end splits and
joins the traffic. Apps and Internet servers notice nothing.

Files are in $MPBOND_HOME; without it in $XDG_CONFIG_HOME/mpbond or
~/.config/mpbond, and for root in /var/lib/mpbond, with the configuration in
/etc/mpbond.

Exit codes
  0  done
  1  failure
  2  wrong command line or configuration
  3  no connection: mpbond is not running, or an address does not answer
  4  refused: a device is unknown or another one, or rights are missing
  5  data is not what it should be
  130  interrupted
mpbond run ends with the exit code of its command.`

const rootExample = `  mpbond server                       # on a VPS: shows a code
  mpbond helper                       # on a spare device: shows a code
  mpbond pair CODE CODE               # on the laptop, with both codes; then
  mpbond primary
  mpbond get https://example.org/big.iso
  mpbond status --why                 # who carries what, at which rate, and why`

// Exit codes, a contract with scripts. The help text tells them.
const (
	exitOK          = 0
	exitFailure     = 1
	exitUsage       = 2
	exitNoConn      = 3
	exitRefused     = 4
	exitIntegrity   = 5
	exitInterrupted = 130 // 128 + SIGINT, as shells have it
)

var exitCodes = map[fault.Kind]int{
	fault.Usage: exitUsage, fault.Config: exitUsage,
	fault.NotRunning: exitNoConn, fault.Unreachable: exitNoConn, fault.Timeout: exitNoConn,
	fault.UnknownDevice: exitRefused, fault.WrongKey: exitRefused, fault.Permission: exitRefused,
	fault.Integrity: exitIntegrity,
}

func main() {
	signals := slices.DeleteFunc([]os.Signal{os.Interrupt, syscall.SIGTERM}, signal.Ignored) // as under nohup
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends the process at once
	os.Exit(execute(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// execute is main with everything passed in: it returns the exit code.
func execute(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root, started := rootCommand(stderr)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	// What fails before a command starts is a fault of the command line.
	unstarted := !*started || cmd.ValidateRequiredFlags() != nil
	if unstarted || fault.Is(err, fault.Usage) && fault.HintOf(err) == "" {
		if unstarted {
			err = explainArgs(cmd, err)
		}
		err = fault.New(fault.Usage, err, fmt.Sprintf("see `%s --help`", cmd.CommandPath()))
	}
	return report(ctx, stderr, cmd, err)
}

// explainArgs says of an error about the number of arguments which one is missing, or
// not taken, and of a time how it is written. Other errors stay as they are.
func explainArgs(cmd *cobra.Command, err error) error {
	given, text := cmd.Flags().Args(), err.Error()
	var own interface{ ExitCode() int }
	switch {
	case errors.As(err, &own):
		return err
	case strings.HasPrefix(text, "unknown command") && !cmd.HasSubCommands() && len(given) > 0:
		return fmt.Errorf("`%s` does not take %q", cmd.CommandPath(), given[0])
	case strings.Contains(text, ": time: "):
		flag, _, _ := strings.Cut(text, ": time: ")
		return fmt.Errorf("%s: write a time with its unit, like 60s", flag)
	case !strings.Contains(text, "arg(s)"):
		return err
	}
	names := slices.DeleteFunc(strings.Fields(cmd.Use)[1:], func(n string) bool { return n == "--" || strings.HasPrefix(n, "[") })
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
	return fmt.Errorf("%s is missing: write `%s`", strings.TrimSuffix(strings.Join(names[len(given):], " and "), "..."), cmd.UseLine())
}

// report shows the error that ended cmd, and chooses the exit code.
func report(ctx context.Context, stderr io.Writer, cmd *cobra.Command, err error) int {
	var own interface {
		ExitCode() int // what to end with
		Silent() bool  // whether all has been said
	}
	if errors.As(err, &own) {
		if !own.Silent() {
			showError(stderr, err, wantsJSON(cmd))
		}
		return own.ExitCode()
	}
	if ctx.Err() != nil && fault.KindOf(err) == fault.Other {
		fmt.Fprintln(stderr, "mpbond: interrupted")
		return exitInterrupted
	}
	showError(stderr, err, wantsJSON(cmd))
	if code, ok := exitCodes[fault.KindOf(err)]; ok {
		return code
	}
	return exitFailure
}

// rootCommand makes the tree of commands. Started becomes true when the
// command line was understood and a command begins to run.
func rootCommand(stderr io.Writer) (root *cobra.Command, started *bool) {
	started = new(bool)
	var level, format string
	root = &cobra.Command{
		Use: "mpbond", Short: "bond the links of several devices", Long: rootHelp, Example: rootExample,
		SilenceErrors: true, SilenceUsage: true,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			log, err := newLogger(stderr, level, format)
			if err != nil {
				return err
			}
			slog.SetDefault(log)
			*started = true
			return nil
		},
	}
	root.Version = thisBuild().String() // makes --version
	root.SetVersionTemplate("{{.Version}}\n")
	cobra.EnableTraverseRunHooks = true // ours runs even if a subcommand has its own
	root.CompletionOptions.HiddenDefaultCmd = true
	root.PersistentFlags().StringVar(&level, "log-level", "info", "what to log to standard error: debug, info, warn or error")
	root.PersistentFlags().StringVar(&format, "log-format", "text", "how to log: text or json")
	completeWith(root, "log-level", "debug", "info", "warn", "error")
	completeWith(root, "log-format", "text", "json")
	root.AddCommand(commands()...)
	for _, c := range root.Commands() {
		refuseUnknown(c)
	}
	return root, started
}

// refuseUnknown makes an unknown subcommand of c an error: cobra shows the help
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

// newLogger makes the logger that roles get by slog.Default, and inject.
func newLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level %q: there are debug, info, warn and error", level)
	}
	options := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, fmt.Errorf("--log-format %q: there are text and json", format)
}

// wantsJSON tells whether cmd was given --json.
func wantsJSON(cmd *cobra.Command) bool {
	f := cmd.Flags().Lookup("json")
	return f != nil && f.Value.String() == "true"
}

// showError prints err and its hint, as an object on one line if asJSON.
func showError(w io.Writer, err error, asJSON bool) {
	if asJSON {
		_ = printJSON(w, struct {
			Error string     `json:"error"`
			Kind  fault.Kind `json:"kind"`
			Hint  string     `json:"hint,omitempty"`
		}{err.Error(), fault.KindOf(err), fault.HintOf(err)})
		return
	}
	fmt.Fprintln(w, "mpbond:", err)
	if hint := fault.HintOf(err); hint != "" {
		fmt.Fprintln(w, "hint:", hint)
	}
}

// printJSON writes v on one line.
func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// usage makes an error of the command line.
func usage(format string, args ...any) error {
	return fault.New(fault.Usage, fmt.Errorf(format, args...), "")
}

// misused makes err, about what was given in the command line or in a file that
// it names, an error of the command line, if it is not a fault already.
func misused(err error) error {
	if err == nil || !fault.Is(err, fault.Other) {
		return err
	}
	return fault.New(fault.Usage, err, "")
}

// oneLine returns text of others as a terminal may show it.
func oneLine(s string) string { return text.Printable(s) }
