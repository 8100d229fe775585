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

	mu  sync.Mutex
	ctx context.Context // of run; nil before and after it
	now api.Pairing     // its list is replaced, never changed
	wg  sync.WaitGroup
}

// pairsAs has a role take codes, and tell other devices about.
func (r *role) pairsAs(key *identity.Key, about wire.PairAbout) {
	r.pairs = &pairer{self: r.pairSelf(key, about)}
}

// pairSelf is this device for those that it is paired with.
func (r *role) pairSelf(key *identity.Key, about wire.PairAbout) pairing.Self {
	return pairing.Self{Key: key, Trust: r.trust, About: func() wire.PairAbout { return about }}
}

// run has requests taken until ctx ends, which ends what is under way.
func (p *pairer) run(ctx context.Context) error {
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

func (p *pairer) pair(r api.PairRequest) (api.Pairing, error) {
	codes, err := parseCodes(r.Codes)
	if err != nil {
		return api.Pairing{}, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.ctx == nil:
		return api.Pairing{}, fault.New(fault.NotRunning, errors.New("mpbond is starting or ending"), "try again")
	case p.now.State == api.PairRunning:
		return api.Pairing{}, fault.New(fault.AlreadyRunning, errors.New("another pairing is under way"), "wait until it has ended")
	}
	ctx, began := p.ctx, time.Now()
	p.now = pairingOf(began, len(codes))
	p.wg.Go(func() {
		err := pairAll(ctx, p.self, codes, r.As, p.note)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.now.State = pairState(err)
	})
	return p.now, nil
}

// pairingOf is a Pairing of so many devices that begins.
func pairingOf(began time.Time, devices int) api.Pairing {
	return api.Pairing{State: api.PairRunning, Began: began, Devices: slices.Repeat([]api.PairedDevice{{State: api.PairCalling}}, devices)}
}

// pairState is the state of a Pairing that has ended.
func pairState(err error) string {
	if err != nil {
		return api.PairFailed
	}
	return api.PairDone
}

// note writes down what has become of a device.
func (p *pairer) note(i int, d api.PairedDevice) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now.Devices = slices.Clone(p.now.Devices)
	p.now.Devices[i] = d
}

func (p *pairer) current() api.Pairing {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.now
	if now.Devices == nil {
		now.Devices = []api.PairedDevice{}
	}
	return now
}

// api is what the role's API has of it.
func (p *pairer) api() *api.Pairer { return &api.Pairer{Pair: p.pair, Current: p.current} }
