// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"mpbond/api"
	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/link/pairing"
	"mpbond/link/wire"
)

// pairer pairs devices for the API, like `mpbond pair`. It serves one request at a time, which goes
// on even if its caller disconnects.
type pairer struct {
	self pairing.Self

	mu    sync.Mutex
	ctx   context.Context // of servePairing; nil before and after it
	state api.Pairing     // its list is copied on write
	wg    sync.WaitGroup
}

// enablePairing lets the role's API pair devices. about describes this device to them.
func (r *role) enablePairing(key *identity.Key, about wire.PairIdentity) {
	r.pairs = &pairer{self: r.pairingIdentity(key, about)}
}

// pairingIdentity returns the identity of this device for pairing.
func (r *role) pairingIdentity(key *identity.Key, about wire.PairIdentity) pairing.Self {
	return pairing.Self{Key: key, Trust: r.trust, About: func() wire.PairIdentity { return about },
		CheckFleet: checkFleet(r.trust), JoinFleet: joinFleet(r.trust)}
}

// servePairing accepts requests until ctx ends, which also ends a running one.
func (p *pairer) servePairing(ctx context.Context) error {
	p.mu.Lock()
	p.ctx = ctx
	p.mu.Unlock()
	<-ctx.Done()
	p.mu.Lock()
	p.ctx = nil
	p.mu.Unlock()
	p.wg.Wait()
	return nil
}

// startPairing begins to pair the devices of the codes in the background.
func (p *pairer) startPairing(r api.PairRequest) (api.Pairing, error) {
	codes, err := parseCodes(r.Codes)
	if err != nil {
		return api.Pairing{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.ctx == nil:
		return api.Pairing{}, fault.New(fault.NotRunning, errors.New("mpbond is starting or ending"), "try again")
	case p.state.State == api.PairRunning:
		return api.Pairing{}, fault.New(fault.AlreadyRunning, errors.New("another pairing is running"),
			"wait until it has ended")
	}
	ctx, began := p.ctx, time.Now()
	p.state = newPairing(began, len(codes))
	p.wg.Go(func() {
		err := pairAllDevices(ctx, p.self, codes, r.As, p.recordDevice)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.state.State = pairingState(err)
	})
	return p.state, nil
}

// newPairing returns the initial state of a pairing with so many devices.
func newPairing(began time.Time, devices int) api.Pairing {
	return api.Pairing{State: api.PairRunning, Began: began,
		Devices: slices.Repeat([]api.PairedDevice{{State: api.PairCalling}}, devices)}
}

// pairingState returns the final state of a pairing.
func pairingState(err error) string {
	if err != nil {
		return api.PairFailed
	}
	return api.PairDone
}

// recordDevice stores the new state of a device.
func (p *pairer) recordDevice(i int, d api.PairedDevice) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.Devices = slices.Clone(p.state.Devices)
	p.state.Devices[i] = d
}

// currentPairing returns the state of the pairing that is running or has ended last.
func (p *pairer) currentPairing() api.Pairing {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.state
	if now.Devices == nil {
		now.Devices = []api.PairedDevice{}
	}
	return now
}

// pairingHandlers returns the functions that the role's API calls.
func (p *pairer) pairingHandlers() *api.PairingManager {
	return &api.PairingManager{Pair: p.startPairing, Current: p.currentPairing}
}
