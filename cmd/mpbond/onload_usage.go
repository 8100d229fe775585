// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"
	"os"
	"time"

	"mpbond/api"
	"mpbond/base/fault"
	"mpbond/base/identity"
	mydevice "mpbond/control/device"
	"mpbond/control/policy"
	"mpbond/internal/cli"
	"mpbond/onload/fetch"
)

// onloadRole is the role, in usage, of commands that are no role: get --onload, put and play.
const onloadRole = "onload"

// onloadTally counts the bytes that get --onload, put or play sends over this device's links. Other
// commands and roles may count at the same time.
type onloadTally struct{ *mydevice.Tally }

func openOnloadTally() (t onloadTally, err error) {
	path, err := roleUsagePath(onloadRole)
	if err != nil {
		return t, err
	}
	return onloadTally{mydevice.OpenTally(path, slog.Default())}, nil
}

// closeOnloadTally saves the counts. A failure is only logged.
func (t onloadTally) closeOnloadTally() {
	if err := t.Close(); err != nil {
		slog.Warn("onload usage not saved: `mpbond usage` misses it", "err", err, "hint", fault.HintOf(err))
	}
}

// helperFinder returns find, or if it is nil a search for helpers that counts their connections.
func (t onloadTally) helperFinder(find func(context.Context) ([]fetch.Device,
	error)) func(context.Context) ([]fetch.Device, error) {
	if find != nil {
		return find
	}
	return func(ctx context.Context) ([]fetch.Device, error) {
		return findHelpers(ctx, t.LedgerFor(policy.ForPipe))
	}
}

// readOnloadUsage returns the usage of these commands so far. ok is false if there is none.
func readOnloadUsage() (u api.Usage, ok bool, err error) {
	path, err := roleUsagePath(onloadRole)
	if err != nil {
		return u, false, err
	}
	list, err := mydevice.ReadRecords(path)
	if err != nil || len(list) == 0 {
		return u, false, err
	}
	trust, err := cli.OpenTrust()
	if err != nil {
		return u, false, err
	}
	u.Role = onloadRole
	u.Name, _ = os.Hostname()
	month := func(_ string, day time.Time) (from, until time.Time) { return policy.Month(day, 1) }
	addUsageRows(&u, list, deviceNamesByID(trust), month)
	return u, true, nil
}

// deviceNamesByID returns the names of trusted devices by ID.
func deviceNamesByID(trust *identity.Trust) map[string]string {
	names := map[string]string{}
	for _, p := range trust.Peers() {
		names[p.Key.ID().String()] = p.Name
	}
	return names
}
