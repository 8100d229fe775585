package cli

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"

	"mpbond/base/fault"
)

// Exit codes, a contract with scripts. The help text of mpbond lists them.
const (
	ExitOK           = 0
	ExitFailure      = 1
	ExitUsage        = 2
	ExitNoConnection = 3
	ExitRefused      = 4
	ExitIntegrity    = 5
	ExitInterrupted  = 130 // 128 + SIGINT, as shells have it
)

var exitCodes = map[fault.Kind]int{
	fault.Usage: ExitUsage, fault.Config: ExitUsage,
	fault.NotRunning: ExitNoConnection, fault.Unreachable: ExitNoConnection, fault.Timeout: ExitNoConnection,
	fault.UnknownDevice: ExitRefused, fault.WrongKey: ExitRefused, fault.Permission: ExitRefused,
	fault.Integrity: ExitIntegrity,
}

// ExitCodeOf returns the exit code of a program that err ends.
func ExitCodeOf(err error) int { return ExitCodeOfKind(fault.KindOf(err)) }

// ExitCodeOfKind returns the exit code of a program that an error of that kind ends.
func ExitCodeOfKind(kind fault.Kind) int {
	if code, ok := exitCodes[kind]; ok {
		return code
	}
	return ExitFailure
}

// ExitStatus is an error that ends the program with an exit code of its own. If Err is nil
// nothing is printed.
type ExitStatus struct {
	Code int
	Err  error
}

// Error implements error.
func (e *ExitStatus) Error() string {
	if e.Err != nil {
		return e.Err.Error()
	}
	return fmt.Sprintf("exit status %d", e.Code)
}

// Unwrap implements errors.Unwrap.
func (e *ExitStatus) Unwrap() error { return e.Err }

// ExitCode returns the exit code of the process.
func (e *ExitStatus) ExitCode() int { return e.Code }

// Silent reports that there is nothing to print, since the command has printed all.
func (e *ExitStatus) Silent() bool { return e.Err == nil }

// UsageError returns an error of the command line.
func UsageError(format string, args ...any) error {
	return fault.New(fault.Usage, fmt.Errorf(format, args...), "")
}

// AsUsageError makes err an error of the command line, unless its kind is known already.
// It is for errors about arguments, or about the files that they name.
func AsUsageError(err error) error {
	if err == nil || !fault.Is(err, fault.Other) {
		return err
	}
	return fault.New(fault.Usage, err, "")
}

// ExplainListenError explains the usual reasons why a program cannot listen on a port. Flag is what
// sets the port.
func ExplainListenError(err error, flag string) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fault.New(fault.AlreadyRunning, err, "another program, or another mpbond, has that port: choose one with "+flag)
	case errors.Is(err, syscall.EACCES):
		return fault.New(fault.Permission, err, "ports below 1024 need root: choose another with "+flag)
	}
	return fault.New(fault.Config, err, "choose another address with "+flag)
}

// OnlyOnLinux returns a command that says that it works on Linux only, and what to use
// instead.
func OnlyOnLinux(name, short, hint string) *cobra.Command {
	return newRefusingCommand(name, short+" (on Linux only)", "does not work on "+runtime.GOOS, hint)
}

// NotInRouterBuild returns a command that says that builds for routers do not have it, and what
// to use instead.
func NotInRouterBuild(name, short, hint string) *cobra.Command {
	return newRefusingCommand(name, short+" (not in the build for routers)", "is left out of the build for routers: the one without the build tag router has it", hint)
}

// newRefusingCommand returns a command that fails, whatever its arguments.
func newRefusingCommand(name, short, why, hint string) *cobra.Command {
	return &cobra.Command{Use: name, Short: short, DisableFlagParsing: true,
		RunE: func(c *cobra.Command, args []string) error {
			for _, a := range args {
				if a == "--help" || a == "-h" {
					return c.Help()
				}
			}
			return fault.New(fault.Unsupported, fmt.Errorf("%s %s", c.CommandPath(), why), hint)
		}}
}
