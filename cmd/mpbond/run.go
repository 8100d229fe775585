// SPDX-License-Identifier: Apache-2.0

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

// Exit codes of `mpbond run` besides the command's own, as those of env(1). A command killed
// by a signal gives 128 + its number, as in a shell.
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
		Short: "run one app over the bond",
		Long: `Run a command and send its TCP connections and UDP datagrams, and those of all
processes that it starts, through the bond of the primary on this machine. The command
is not changed and notices nothing; it keeps its terminal, signals and exit code.

DNS queries (UDP port 53) are sent both directly and through the bond; the first good
answer wins. Traffic to this machine itself and to link-local addresses stays direct.
Processes that outlive the command connect directly from then on. Without nft_tproxy
in the kernel, datagrams stay direct and a warning says so.

The machine needs a route for an address family (a default route on any interface)
before apps try to use it.

It needs root, or CAP_NET_ADMIN and CAP_SYS_ADMIN. The exit code is that of the
command; 128 + N if signal N ended it; 125 if mpbond failed; 126 or 127 if the command
cannot be run or is not found.`,
		Example: `  sudo mpbond run -- curl -O https://example.org/file
  sudo mpbond run -- sudo -u alice firefox
  sudo mpbond run --direct 192.168.0.0/16 -- rsync -a files backup.example.org:`,
		Args: func(c *cobra.Command, args []string) error {
			if err := cobra.MinimumNArgs(1)(c, args); err != nil {
				return &cli.ExitStatus{Code: exitRunFailed, Err: err}
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			return runRedirectedApp(c.Context(), o, args, slog.Default())
		},
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return &cli.ExitStatus{Code: exitRunFailed,
			Err: err}
	})
	f := c.Flags()
	f.SetInterspersed(false) // flags after COMMAND are COMMAND's
	f.Uint16Var(&o.port, "redirect-port", 0, "redirect connections to this `PORT` of the primary; 0: ask it")
	f.StringVar(&o.socket, "socket", "", "ask the primary at this `PATH`")
	f.StringVar(&o.user, "user", "",
		"run COMMAND as this `USER`, as which no other program may run, where cgroups are unusable")
	f.StringVar(&o.label, "label", "", "apply policy rules with label = [\"`LABEL`\"] to COMMAND")
	f.StringSliceVar(&o.direct, "direct", nil, "connect directly to addresses in this `PREFIX`; repeatable")
	return c
}

// runRedirectedApp starts args with its traffic redirected and waits until it ends.
func runRedirectedApp(ctx context.Context, o runOptions, args []string, log *slog.Logger) error {
	cfg := intercept.RedirectConfig{Port: o.port, Label: o.label, Log: log}
	err := intercept.CheckLabel(o.label)
	if err == nil && o.label != "" && o.user != "" {
		err = errors.New("a label needs a control group, and --user uses none: leave one out")
	}
	if err != nil {
		return &cli.ExitStatus{Code: exitRunFailed, Err: cli.UsageError("--label: %v", err)}
	}
	if cfg.Direct, err = parseDirectPrefixes(o.direct); err != nil {
		return &cli.ExitStatus{Code: exitRunFailed, Err: err}
	}
	// A command that does not exist is the most frequent mistake, so it is checked first.
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
	// From here on a signal must not end this process before it has cleaned up.
	signals := make(chan os.Signal, 16)
	for _, s := range forwardedSignals {
		// The command inherits signals that are ignored from the start (nohup).
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
		log.Warn("cleanup failed", "err", err, "hint", "run `sudo mpbond doctor --repair`")
	}
	if status.Code == 0 {
		return nil
	}
	return status
}

// forwardedSignals are the signals that are passed on to the command. SIGQUIT and SIGINT mostly
// come from the keyboard, which sends them to the command too.
var forwardedSignals = []os.Signal{
	unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGHUP, unix.SIGUSR1, unix.SIGUSR2, unix.SIGALRM,
}

// startError returns the exit status for a command that did not start.
func startError(err error) *cli.ExitStatus {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, exec.ErrNotFound), errors.Is(err, exec.ErrDot):
		return &cli.ExitStatus{Code: exitNotFound, Err: err}
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.ENOEXEC):
		return &cli.ExitStatus{Code: exitNotExecutable, Err: err}
	}
	return &cli.ExitStatus{Code: exitRunFailed, Err: err}
}

// startAndWait runs cmd, passes signals on to it, and returns how it ended, as a shell would.
// Signals from the keyboard reach the command by themselves.
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
			cmd.Process.Signal(s) //nolint:errcheck // fails only if the command has just ended
		case <-done:
			ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus)
			switch {
			case !ok:
				return &cli.ExitStatus{Code: exitRunFailed,
					Err: fmt.Errorf("%s ended with an unknown status", cmd.Path)}
			case ws.Signaled():
				return &cli.ExitStatus{Code: 128 + int(ws.Signal()), Err: nil}
			}
			return &cli.ExitStatus{Code: ws.ExitStatus(), Err: nil}
		}
	}
}

// isFromKeyboard reports whether the terminal has sent s to the command too: it sends to all
// processes of the foreground group, which includes this one and the command. It cannot tell a
// signal that was sent only to this process at the same time.
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

// parseDirectPrefixes parses addresses with or without a prefix length.
func parseDirectPrefixes(list []string) ([]netip.Prefix, error) {
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
		return nil, cli.UsageError("--user %q is the user of mpbond itself: choose another one, so that rules "+
			"match only the app", name)
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

// queryTransparentPort asks the primary for its port for redirected connections.
func queryTransparentPort(ctx context.Context, socket string) (uint16, error) {
	c := client.New(socket)
	defer c.Close()
	status, err := c.Status(ctx, false)
	if err != nil {
		return 0, fault.New(fault.KindOf(err), err,
			"start `mpbond primary`, or name it with --socket or --redirect-port")
	}
	ap, err := netip.ParseAddrPort(status.Transparent)
	if err != nil || ap.Port() == 0 {
		return 0, fault.New(fault.NotRunning, errors.New("the running primary accepts no redirected connections"),
			"start it with `mpbond primary --transparent PORT`")
	}
	return ap.Port(), nil
}
