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

// onloadRole stands, in usage, for what is no role: get --onload, put and play.
const onloadRole = "onload"

// onloadTally counts what one of these has this device's links carry, beside others and
// whatever role runs.
type onloadTally struct{ *mydevice.Tally }

func openOnloadTally() (t onloadTally, err error) {
	path, err := usagePath(onloadRole)
	if err != nil {
		return t, err
	}
	return onloadTally{mydevice.OpenTally(path, slog.Default())}, nil
}

// close keeps what was counted. That it cannot is no reason to fail.
func (t onloadTally) close() {
	if err := t.Close(); err != nil {
		slog.Warn("what the links carried is missing in `mpbond usage`", "err", err, "hint", fault.HintOf(err))
	}
}

// helperFinder is find, or else what looks for helpers whose connections are counted.
func (t onloadTally) helperFinder(find func(context.Context) ([]fetch.Device, error)) func(context.Context) ([]fetch.Device, error) {
	if find != nil {
		return find
	}
	return func(ctx context.Context) ([]fetch.Device, error) {
		return findHelpers(ctx, t.LedgerFor(policy.ForPipe))
	}
}

// readOnloadUsage is what these have had the links carry until now, ok if there is anything.
func readOnloadUsage() (u api.Usage, ok bool, err error) {
	path, err := usagePath(onloadRole)
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
	fillUsage(&u, list, namesByID(trust), month)
	return u, true, nil
}

// namesByID are the names of devices, by ID.
func namesByID(trust *identity.Trust) map[string]string {
	names := map[string]string{}
	for _, p := range trust.Peers() {
		names[p.Key.ID().String()] = p.Name
	}
	return names
}
