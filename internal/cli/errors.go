// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"

	"github.com/spf13/cobra"

	"mpbond/base/fault"
)

// Exit codes, a contract with scripts. `mpbond help exit-codes` lists them.
const (
	ExitOK           = 0
	ExitFailure      = 1
	ExitUsage        = 2
	ExitNoConnection = 3
	ExitRefused      = 4
	ExitIntegrity    = 5
	ExitInterrupted  = 130 // 128 + SIGINT, as in shells
)

var exitCodes = map[fault.Kind]int{
	fault.Usage: ExitUsage, fault.Config: ExitUsage,
	fault.NotRunning: ExitNoConnection, fault.Unreachable: ExitNoConnection, fault.Timeout: ExitNoConnection,
	fault.UnknownDevice: ExitRefused, fault.WrongKey: ExitRefused, fault.Permission: ExitRefused,
	fault.Integrity: ExitIntegrity,
}

// ExitCodeOf returns the exit code of a program that ends with err.
func ExitCodeOf(err error) int { return ExitCodeOfKind(fault.KindOf(err)) }

// ExitCodeOfKind returns the exit code of a program that ends with an error of that kind.
func ExitCodeOfKind(kind fault.Kind) int {
	if code, ok := exitCodes[kind]; ok {
		return code
	}
	return ExitFailure
}

// ExitStatus is an error that ends the program with the exit code Code. If Err is nil nothing is
// printed.
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

// Silent reports whether there is nothing left to print.
func (e *ExitStatus) Silent() bool { return e.Err == nil }

// UsageError returns an error of the command line.
func UsageError(format string, args ...any) error {
	return fault.New(fault.Usage, fmt.Errorf(format, args...), "")
}

// AsUsageError marks err as an error of the command line unless it already has a kind. Use it for
// errors about arguments, or about files that arguments name.
func AsUsageError(err error) error {
	if err == nil || !fault.Is(err, fault.Other) {
		return err
	}
	return fault.New(fault.Usage, err, "")
}

// ExplainListenError adds the usual reason why a program cannot listen on a port. Flag names the
// setting of the port.
func ExplainListenError(err error, flag string) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fault.New(fault.AlreadyRunning, err,
			"another program, or another mpbond, uses that port: choose one with "+flag)
	case errors.Is(err, syscall.EACCES):
		return fault.New(fault.Permission, err, "ports below 1024 need root: choose another with "+flag)
	}
	return fault.New(fault.Config, err, "choose another address with "+flag)
}

// OnlyOnLinux returns a command that fails, because it needs Linux. The hint says what to use
// instead.
func OnlyOnLinux(name, short, hint string) *cobra.Command {
	return newRefusingCommand(name, short+" (on Linux only)", "does not work on "+runtime.GOOS, hint)
}

// NotInRouterBuild returns a command that fails, because builds for routers leave it out. The hint
// says what to use instead.
func NotInRouterBuild(name, short, hint string) *cobra.Command {
	return newRefusingCommand(name, short+" (not in the build for routers)",
		"is not in this build for routers: builds without the tag router have it", hint)
}

// newRefusingCommand returns a command that fails whatever its arguments are.
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
