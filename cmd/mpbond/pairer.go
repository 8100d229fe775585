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

// pairer pairs for those who ask the API, as `mpbond pair` does: one request at
// a time, which goes on when who has asked is gone.
type pairer struct {
	self pairing.Self

	mu    sync.Mutex
	ctx   context.Context // of run; nil before and after it
	state api.Pairing     // its list is replaced, never changed
	wg    sync.WaitGroup
}

// enablePairing has a role take codes, and tell other devices about.
func (r *role) enablePairing(key *identity.Key, about wire.PairIdentity) {
	r.pairs = &pairer{self: r.pairingIdentity(key, about)}
}

// pairingIdentity is this device for those that it is paired with.
func (r *role) pairingIdentity(key *identity.Key, about wire.PairIdentity) pairing.Self {
	return pairing.Self{Key: key, Trust: r.trust, About: func() wire.PairIdentity { return about }}
}

// servePairing has requests taken until ctx ends, which ends what is under way.
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
		return api.Pairing{}, fault.New(fault.AlreadyRunning, errors.New("another pairing is under way"), "wait until it has ended")
	}
	ctx, began := p.ctx, time.Now()
	p.state = newPairing(began, len(codes))
	p.wg.Go(func() {
		err := pairAll(ctx, p.self, codes, r.As, p.recordDevice)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.state.State = pairingState(err)
	})
	return p.state, nil
}

// newPairing is a Pairing of so many devices that begins.
func newPairing(began time.Time, devices int) api.Pairing {
	return api.Pairing{State: api.PairRunning, Began: began, Devices: slices.Repeat([]api.PairedDevice{{State: api.PairCalling}}, devices)}
}

// pairingState is the state of a Pairing that has ended.
func pairingState(err error) string {
	if err != nil {
		return api.PairFailed
	}
	return api.PairDone
}

// recordDevice writes down what has become of a device.
func (p *pairer) recordDevice(i int, d api.PairedDevice) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state.Devices = slices.Clone(p.state.Devices)
	p.state.Devices[i] = d
}

func (p *pairer) currentPairing() api.Pairing {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.state
	if now.Devices == nil {
		now.Devices = []api.PairedDevice{}
	}
	return now
}

// apiHandlers is what the role's API has of it.
func (p *pairer) apiHandlers() *api.PairingManager {
	return &api.PairingManager{Pair: p.startPairing, Current: p.currentPairing}
}
