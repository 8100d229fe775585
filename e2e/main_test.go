// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"testing"

	"mpbond/e2e/rig"
	"mpbond/lab"
)

// TestMain adds the programs that tests of this package run in nodes to those of package rig.
func TestMain(m *testing.M) { rig.Main(m, runProgram) }

// runProgram runs a program of this package in a node.
func runProgram(args []string) error {
	switch args[0] {
	case "hold", "streams":
		n, err := strconv.Atoi(args[1])
		if err != nil {
			return err
		}
		if args[0] == "hold" {
			return holdStreams(n, args[2], args[3], os.Stdin, os.Stdout)
		}
		return lab.Streams{URL: args[3], N: n, SOCKS: args[2]}.Run(context.Background(), os.Stdout, os.Stderr)
	case "exhaust", "idle", "crowd":
		return runAttack(args)
	case "portal":
		return http.ListenAndServe(args[1], http.HandlerFunc(portalPage))
	case "services":
		return runServices()
	case "onload":
		return onloadURL(args[1], args[2])
	case "ping":
		return runPing(args[1], args[2])
	case "meddle":
		return runMeddler(args[1], args[2])
	case "false-helper":
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		return runFalseHelper(ctx, os.Getenv("MPBOND_HOME"), args[1], args[2])
	case "probe":
		return probeAddress(args[1], args[2])
	}
	return fmt.Errorf("unknown program %q", args)
}
