// SPDX-License-Identifier: Apache-2.0

//go:build router

package engine

import (
	"context"
	"errors"

	"mpbond/base/fault"
	"mpbond/control/fleet"
)

// openNATS refuses: this build has no client for NATS.
func openNATS(context.Context, Config, string) (fleet.Store, error) {
	return nil, fault.New(fault.Unsupported, errors.New("this build for routers has no client for NATS"),
		"run servers of a fleet, and its operator's commands, with the usual build")
}
