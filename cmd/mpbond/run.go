//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"os/user"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"mpbond/api"
	"mpbond/api/client"
	"mpbond/base/fault"
	"mpbond/internal/cli"
	"mpbond/node/intercept"
)

// Exit codes of `mpbond run` besides the command's own, as env(1) has them. A
// command killed by a signal gives 128 + its number, as in a shell.
const (
	exitRunFailed     = 125 // mpbond itself failed
	exitNotExecutable = 126
	exitNotFound      = 127
)

type runOptions struct {
	port   uint16
	socket string
	user   string
	direct []string
	label  string
}

func runCommand() *cobra.Command {
	var o runOptions
	c := &cobra.Command{
		Use:   "run [flags] -- COMMAND [ARGUMENT...]",
		Short: "Run one app over the bond",
		Long: `Runs a command whose TCP connections and UDP datagrams, and those of all
processes it starts, go through the bond of the primary on this machine. The
command itself is not changed and notices nothing; its terminal, signals and
exit code are its own.

DNS queries (UDP port 53) go both ways at once, directly and through the bond;
the first good answer wins. What goes to this machine itself and to link-local
addresses stays direct. Processes that outlive the command connect directly
from then on. Without nft_tproxy in the kernel, datagrams stay direct, and a
warning says so.

The machine needs a route for an address family (a default route on any
interface) before apps try to use it.

Needs root, or CAP_NET_ADMIN and CAP_SYS_ADMIN. Exit code: that of the command;
128 + N if signal N ended it; 125 if mpbond failed; 126 or 127 if the command
cannot be run or is not found.`,
		Example: `  mpbond run -- curl -O https://example.org/file
  mpbond run -- sudo -u alice firefox
  mpbond run --direct 192.168.0.0/16 -- rsync -a files backup.example.org:`,
		Args: func(c *cobra.Command, args []string) error {
			if err := cobra.MinimumNArgs(1)(c, args); err != nil {
				return &cli.ExitStatus{Code: exitRunFailed, Err: err}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			return runApp(c.Context(), o, args, slog.Default())
		},
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &cli.ExitStatus{Code: exitRunFailed, Err: err} })
	f := c.Flags()
	f.SetInterspersed(false) // flags behind COMMAND are COMMAND's
	f.Uint16Var(&o.port, "redirect-port", 0, "`PORT` where the primary takes redirected connections; 0: ask it")
	f.StringVar(&o.socket, "socket", "", "ask the primary at this `PATH`")
	f.StringVar(&o.user, "user", "", "run COMMAND as this user and recognise it by that, where cgroups are unusable; no other program may run as this `USER`")
	f.StringVar(&o.label, "label", "", "what the policy file calls COMMAND: rules with label = [\"`LABEL`\"] are for it")
	f.StringSliceVar(&o.direct, "direct", nil, "`PREFIX` of addresses that stay direct; may be repeated")
	return c
}

// runApp starts args with its traffic redirected and waits for it.
func runApp(ctx context.Context, o runOptions, args []string, log *slog.Logger) error {
	cfg := intercept.RedirectConfig{Port: o.port, Label: o.label, Log: log}
	err := intercept.CheckLabel(o.label)
	if err == nil && o.label != "" && o.user != "" {
		err = errors.New("a label is on a control group, which --user does without")
	}
	if err != nil {
		return &cli.ExitStatus{Code: exitRunFailed, Err: cli.UsageError("--label: %v", err)}
	}
	if cfg.Direct, err = parsePrefixes(o.direct); err != nil {
		return &cli.ExitStatus{Code: exitRunFailed, Err: err}
	}
	// Before anything is set up: a command that cannot be found is the most
	// frequent mistake.
	cmd := exec.Command(args[0], args[1:]...)
	if cmd.Err != nil {
		return startError(cmd.Err)
	}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if o.user != "" {
		if cmd.SysProcAttr.Credential, err = lookupCredential(o.user); err != nil {
			return &cli.ExitStatus{Code: exitRunFailed, Err: err}
		}
		cfg.User = &cmd.SysProcAttr.Credential.Uid
	}
	if cfg.Port == 0 {
		if o.socket == "" {
			o.socket = api.SocketPath("primary")
		}
		if cfg.Port, err = queryTransparentPort(ctx, o.socket); err != nil {
			return &cli.ExitStatus{Code: exitRunFailed, Err: err}
		}
	}
	// From here on signals must not end this process before it has cleaned up.
	signals := make(chan os.Signal, 16)
	for _, s := range forwardedSignals {
		// One ignored from the start (nohup) the command must inherit so.
		if !signal.Ignored(s) {
			signal.Notify(signals, s)
		}
	}
	defer signal.Stop(signals)
	redirect, err := intercept.NewRedirect(cfg)
	if err != nil {
		return &cli.ExitStatus{Code: exitRunFailed, Err: err}
	}
	redirect.Apply(cmd.SysProcAttr)
	status := startAndWait(cmd, signals)
	if err := redirect.Close(); err != nil {
		log.Warn("cleaning up", "err", err)
	}
	if status.Code == 0 {
		return nil
	}
	return status
}

// forwardedSignals are the signals which the command gets. SIGQUIT and SIGINT come
// from the keyboard mostly and then reach it without help.
var forwardedSignals = []os.Signal{
	unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM,
}

// startError tells why a command did not start.
func startError(err error) *cli.ExitStatus {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, exec.ErrNotFound), errors.Is(err, exec.ErrDot):
		return &cli.ExitStatus{Code: exitNotFound, Err: err}
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.ENOEXEC):
		return &cli.ExitStatus{Code: exitNotExecutable, Err: err}
	}
	return &cli.ExitStatus{Code: exitRunFailed, Err: err}
}

func startAndWait(cmd *exec.Cmd, signals <-chan os.Signal) *cli.ExitStatus {
	if err := cmd.Start(); err != nil {
		return startError(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	for {
		select {
		case s := <-signals:
			if isFromKeyboard(s) {
				continue
			}
			cmd.Process.Signal(s) //nolint:errcheck // fails only if it has just ended
		case <-done:
			ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
			switch {
			case !ok:
				return &cli.ExitStatus{Code: exitRunFailed, Err: fmt.Errorf("%s ended in an unknown way", cmd.Path)}
			case ws.Signaled():
				return &cli.ExitStatus{Code: 128 + int(ws.Signal()), Err: nil}
			}
			return &cli.ExitStatus{Code: ws.ExitStatus(), Err: nil}
		}
	}
}

// isFromKeyboard tells whether the terminal has sent s to the command too: to
// all processes of the foreground group, of which this and the command are two.
// A signal sent only to this process meanwhile is mistaken for one of these.
func isFromKeyboard(s os.Signal) bool {
	if s != unix.SIGINT && s != unix.SIGQUIT {
		return false
	}
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// parsePrefixes reads addresses with or without a prefix length.
func parsePrefixes(list []string) ([]netip.Prefix, error) {
	var ps []netip.Prefix
	for _, s := range list {
		p, err := netip.ParsePrefix(s)
		if a, aerr := netip.ParseAddr(s); aerr == nil && a.Zone() == "" {
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		if err != nil {
			return nil, cli.UsageError("--direct %q: give an address or a prefix like 192.168.0.0/16", s)
		}
		ps = append(ps, p)
	}
	return ps, nil
}

// lookupCredential looks up a user by name or number.
func lookupCredential(name string) (*syscall.Credential, error) {
	u, err := user.Lookup(name)
	if err != nil {
		if u, err = user.LookupId(name); err != nil {
			return nil, cli.UsageError("--user %q: there is no such user", name)
		}
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("--user %q: %w", name, err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, fmt.Errorf("--user %q: %w", name, err)
	}
	if int(uid) == os.Geteuid() {
		return nil, cli.UsageError("--user %q is who you are: the rules could not tell the app from mpbond; choose a user of its own", name)
	}
	cred := &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	groups, err := u.GroupIds()
	if err != nil {
		return nil, fmt.Errorf("groups of %q: %w", name, err)
	}
	for _, g := range groups {
		if n, err := strconv.ParseUint(g, 10, 32); err == nil {
			cred.Groups = append(cred.Groups, uint32(n))
		}
	}
	return cred, nil
}

// queryTransparentPort asks the primary where it takes redirected connections.
func queryTransparentPort(ctx context.Context, socket string) (uint16, error) {
	c := client.New(socket)
	defer c.Close()
	status, err := c.Status(ctx, false)
	if err != nil {
		return 0, fault.New(fault.KindOf(err), err, "start `mpbond primary`, or tell where it is with --socket or --redirect-port")
	}
	ap, err := netip.ParseAddrPort(status.Transparent)
	if err != nil || ap.Port() == 0 {
		return 0, fault.New(fault.NotRunning, errors.New("the running primary takes no redirected connections"),
			"start it with a port for them: mpbond primary --transparent PORT")
	}
	return ap.Port(), nil
}
