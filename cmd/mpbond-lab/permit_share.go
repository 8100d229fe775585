// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"log/slog"
	"os"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/natsconn"
	"mpbond/control/fleet"
	"mpbond/control/fleet/engine"
	"mpbond/onload/permit"
)

// sharedName returns the name of a service among those that share.
func (o permitOptions) sharedName() string {
	host, _ := os.Hostname()
	return cmp.Or(o.name, identity.DeriveName(host))
}

// openSharedStore opens the engine that services share. One that does not answer is tried again later.
func openSharedStore(ctx context.Context, o permitOptions) (fleet.Store, error) {
	open := func(ctx context.Context) (fleet.Store, error) {
		c := o.engine
		c.User = o.sharedName()
		return engine.Open(ctx, c, "mpbond-lab permit serve "+c.User)
	}
	store, err := open(ctx)
	if fault.Is(err, fault.Unreachable) {
		slog.Warn("the engine does not answer: no permits are granted meanwhile", "err", err, "hint", fault.HintOf(err))
		return fleet.Late(open, natsconn.HideSecrets(o.engine.Engine)), nil
	}
	return store, err
}

// newSharedService returns a service that shares its cells with others in an engine.
func newSharedService(
	ctx context.Context,
	o permitOptions,
	id permit.Identity,
	names []string,
	store fleet.Store,
) (*permit.Service, error) {
	cells, err := fleet.NewCells(store, o.sharedName())
	if err != nil {
		return nil, err
	}
	s := permit.NewSharedService(id, o.rules, names, cells, slog.Default())
	err = s.CheckShared(ctx, names[0])
	if fault.Is(err, fault.Unreachable) || fault.Is(err, fault.Timeout) {
		err = nil // the engine may answer later
	}
	return s, err
}
