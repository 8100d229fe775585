// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/natstest"
	"mpbond/base/unit"
	"mpbond/base/waittest"
	"mpbond/control/fleet"
	"mpbond/control/fleet/natsstore"
	"mpbond/link/pairing"
)

var (
	historyTime = flag.Duration("history", 15*time.Second, "run TestHistory for this time")
	historySeed = flag.Uint64("history.seed", 0, "seed of TestHistory; 0: a new one")
)

// history is a fleet of three servers on three nodes of NATS, with clients and faults, and what was seen of it.
type history struct {
	*testing.T
	cluster  *natstest.Cluster
	hasDisks bool // of the nodes
	operator *fleet.Operator
	store    fleet.Store // of the operator
	servers  []*historyServer

	mu       sync.Mutex
	rng      *rand.Rand
	codes    []pairing.Code
	enrolled map[string][]identity.PublicKey  // devices by the ID of the code that let them in
	devices  []identity.PublicKey             // enrolled and not revoked
	revoked  map[identity.PublicKey]time.Time // when the revocation was confirmed by all servers
	unknown  map[identity.PublicKey]bool      // devices whose enrolment ended with an error of the engine
	done     map[string]int                   // operations by name and result
	list     []fleet.Device                   // all devices at the end
}

// historyServer is one server: its membership ends and begins again, what it carries stays.
type historyServer struct {
	name    string
	dir     string
	mu      sync.Mutex
	member  *fleet.Member
	store   *breakable
	stop    func()
	usage   map[string]*fleet.DeviceUsage // by device; as the server's file has it
	changed map[string]bool
}

// historyDisk is the size of the disk of a node: that of many histories.
const historyDisk = 256 << 20

// TestHistory pairs and revokes devices and counts what they carry, while nodes of the engine are killed, paused and
// cut off from each other, their disks are full, and servers are cut off and restarted. Then it checks what was seen:
// each code was used once, a device was served nowhere a second after its revocation was confirmed, and the counts are
// exact.
func TestHistory(t *testing.T) {
	t.Parallel()
	seed := *historySeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("%v, -history.seed %d", *historyTime, seed)
	options := natstest.Options{Nodes: 3, Partitions: true}
	if natstest.CanMount() {
		options.DiskSize = historyDisk
	} else {
		t.Log("no disk is full: that needs root and nsenter (package util-linux)")
	}
	h := &history{T: t, cluster: natstest.Start(t, options), hasDisks: options.DiskSize > 0,
		rng:      rand.New(rand.NewPCG(seed, 1)),
		enrolled: map[string][]identity.PublicKey{}, revoked: map[identity.PublicKey]time.Time{},
		unknown: map[identity.PublicKey]bool{}, done: map[string]int{}}
	h.store = h.open()
	h.operator = fleet.NewOperator(h.store, newKey(t))
	waittest.UntilSuccess(t, func() error { return h.operator.Init(t.Context(), "acme") })
	for _, name := range []string{"eu1", "eu2", "us1"} {
		err := h.operator.AddServer(t.Context(), fleet.Server{Name: name, Key: newKey(t).Public(),
			Addresses: []string{name + ":7600"}})
		if err != nil {
			t.Fatal(err)
		}
		s := &historyServer{name: name, dir: t.TempDir(), usage: map[string]*fleet.DeviceUsage{},
			changed: map[string]bool{}}
		h.servers = append(h.servers, s)
		h.startServer(s)
	}
	defer func() {
		for _, s := range h.servers {
			s.stop()
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), *historyTime)
	defer cancel()
	var g sync.WaitGroup
	for range 20 {
		g.Go(func() { h.runClient(ctx) })
	}
	g.Go(func() { h.runFaults(ctx) })
	g.Go(func() { h.runChecks(ctx) })
	g.Wait()
	h.heal()
	h.check()
}

func (h *history) open() *natsstore.Store {
	var s *natsstore.Store
	waittest.UntilSuccess(h, func() (err error) {
		s, err = natsstore.Open(h.Context(), natsstore.Config{URLs: h.cluster.URLs(),
			Log: slog.New(slog.DiscardHandler)})
		return err
	})
	h.Cleanup(s.Close)
	return s
}

// startServer starts the membership of a server.
func (h *history) startServer(s *historyServer) {
	store := &breakable{Store: h.open()}
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.usage { // the file is read at the start
		s.changed[id] = true
	}
	m, err := fleet.NewMember(store, fleet.MemberConfig{Server: fleet.Server{Name: s.name, Key: newKey(h).Public()},
		CacheFile: filepath.Join(s.dir, "cache"), Log: slog.New(slog.DiscardHandler), Usage: s.takeUsage})
	if err != nil {
		h.Error(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	s.member, s.store = m, store
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			h.Errorf("%s: %v", s.name, err)
		}
	})
}

// takeUsage returns what has changed in the server's counts.
func (s *historyServer) takeUsage() (list []fleet.DeviceUsage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id := range s.changed {
		list = append(list, *s.usage[id])
	}
	clear(s.changed)
	return list
}

// carry counts bytes of a device.
func (s *historyServer) carry(id string, n unit.Bytes) {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := s.usage[id]
	if u == nil {
		u = &fleet.DeviceUsage{Device: id, Day: daysAgo(0)}
		s.usage[id] = u
	}
	u.Month.Down, u.All.Down = u.Month.Down+n, u.All.Down+n
	s.changed[id] = true
}

func (s *historyServer) current() *fleet.Member {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.member
}

// intN returns a random number below n.
func (h *history) intN(n int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.rng.IntN(n)
}

// note counts an operation and its result.
func (h *history) note(what string, err error) {
	if err != nil {
		what += ": " + string(fault.KindOf(err))
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.done[what]++
}

// runClient does what operators, devices and servers do, in random order.
func (h *history) runClient(ctx context.Context) {
	for ctx.Err() == nil {
		switch n := h.intN(100); {
		case n < 20:
			code, _, err := h.operator.Invite(ctx, fleet.InviteTerms{Life: time.Hour})
			if h.note("invite", err); err == nil {
				h.mu.Lock()
				h.codes = append(h.codes, code)
				h.mu.Unlock()
			}
		case n < 45:
			h.enroll(ctx)
		case n < 50:
			h.revoke(ctx)
		default:
			h.mu.Lock()
			var id string
			if len(h.devices) > 0 {
				id = h.devices[h.rng.IntN(len(h.devices))].ID().String()
			}
			h.mu.Unlock()
			if id != "" {
				h.servers[h.intN(len(h.servers))].carry(id, unit.Bytes(1+h.intN(100_000)))
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(h.intN(40)) * time.Millisecond):
		}
	}
}

// enroll has two devices use one code at once, at two servers.
func (h *history) enroll(ctx context.Context) {
	h.mu.Lock()
	if len(h.codes) == 0 {
		h.mu.Unlock()
		return
	}
	code := h.codes[h.rng.IntN(len(h.codes))] // perhaps a used one
	first, second := h.rng.IntN(len(h.servers)), h.rng.IntN(len(h.servers))
	h.mu.Unlock()
	var g sync.WaitGroup
	for _, at := range []int{first, second} {
		g.Go(func() {
			key := newKey(h).Public()
			claim, err := code.SignClaim(key)
			if err == nil {
				_, err = h.servers[at].current().Enroll(ctx, code.ID(), pairing.Enrollee{Key: key, Name: "x",
					Claim: claim})
			}
			h.note("enroll", err)
			h.mu.Lock()
			defer h.mu.Unlock()
			switch {
			case err == nil:
				h.enrolled[code.ID()] = append(h.enrolled[code.ID()], key)
				h.devices = append(h.devices, key)
			case !fault.Is(err, fault.UnknownDevice):
				h.unknown[key] = true
			}
		})
	}
	g.Wait()
}

// revoke revokes a device.
func (h *history) revoke(ctx context.Context) {
	h.mu.Lock()
	if len(h.devices) < 10 {
		h.mu.Unlock()
		return
	}
	i := h.rng.IntN(len(h.devices))
	key := h.devices[i]
	h.devices = append(h.devices[:i], h.devices[i+1:]...)
	h.mu.Unlock()
	_, behind, err := h.operator.Revoke(ctx, key, 20*time.Second)
	if err == nil && len(behind) > 0 {
		err = fault.New(fault.Timeout, fmt.Errorf("%v", behind), "")
	}
	if h.note("revoke", err); err == nil {
		h.mu.Lock()
		h.revoked[key] = time.Now()
		h.mu.Unlock()
	}
}

// runChecks looks all the time whether a server serves a device whose revocation was confirmed a second ago.
func (h *history) runChecks(ctx context.Context) {
	t := time.NewTicker(50 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		h.mu.Lock()
		var list []identity.PublicKey
		for key, at := range h.revoked {
			if time.Since(at) > time.Second {
				list = append(list, key)
			}
		}
		h.mu.Unlock()
		for _, s := range h.servers {
			m := s.current()
			for _, key := range list {
				if m.Allowed(identity.RolePrimary)(key) && !m.IsStale() {
					h.Errorf("%s serves the revoked device %v", s.name, key.ID())
				}
			}
		}
		h.note("check", nil)
	}
}

// runFaults makes faults, one at a time.
func (h *history) runFaults(ctx context.Context) {
	wait := func(least, most time.Duration) {
		select {
		case <-ctx.Done():
		case <-time.After(least + time.Duration(h.intN(int(most-least)))):
		}
	}
	for {
		if wait(time.Second, 3*time.Second); ctx.Err() != nil {
			return
		}
		node, s := h.cluster.Nodes[h.intN(3)], h.servers[h.intN(3)]
		kinds := 6
		if h.hasDisks {
			kinds++
		}
		switch h.intN(kinds) {
		case 0:
			h.note("node killed", nil)
			node.Kill()
			wait(time.Second, 5*time.Second)
			node.Restart(h)
		case 1:
			h.note("node paused", nil)
			node.Pause()
			wait(time.Second, 6*time.Second)
			node.Resume()
		case 2:
			h.note("server cut off", nil)
			s.store.lose(true)
			wait(time.Second, 15*time.Second)
			s.store.lose(false)
		case 3:
			h.note("server restarted", nil)
			s.stop()
			h.startServer(s)
		case 4, 5:
			silent := h.intN(2) == 0
			h.note(fmt.Sprintf("node isolated, silent %v", silent), nil)
			node.Isolate(silent)
			wait(time.Second, 15*time.Second)
			node.Rejoin()
		case 6:
			h.note("disk full", nil)
			node.FillDisk(h)
			wait(time.Second, 5*time.Second)
			node.FreeDisk(h)
			node.Kill() // it has ended its part until it is restarted
			node.Restart(h)
		}
	}
}

// heal waits until all servers know everything that the engine had when it began, and until the fleet counts what they
// carried, within a hundredth. A node that was cut off a moment ago may still show what it knew before.
func (h *history) heal() {
	began := time.Now()
	waittest.UntilSuccess(h, func() error {
		ctx, cancel := context.WithTimeout(h.Context(), 5*time.Second)
		defer cancel()
		list, damaged, err := fleet.ReadDevices(ctx, h.store)
		if err != nil || damaged > 0 {
			return fmt.Errorf("%d damaged records: %w", damaged, err)
		}
		for _, s := range h.servers {
			st := s.member.Status()
			if st.Age < 0 || st.Age >= time.Since(began) || st.Devices != len(list) {
				return fmt.Errorf("%s: %+v, of %d devices", s.name, st, len(list))
			}
		}
		rows, err := fleet.ReadUsage(ctx, h.store)
		if err != nil {
			return err
		}
		counted := unit.Bytes(0)
		for _, r := range rows {
			counted += r.All.Down
		}
		// Small changes are written with later ones.
		if carried := h.carried(); counted > carried || counted < carried-carried/100 {
			return fmt.Errorf("the fleet counts %d bytes, and the servers carried %d", counted, carried)
		}
		h.list = list
		return nil
	})
}

// carried returns the bytes that all servers have carried.
func (h *history) carried() (sum unit.Bytes) {
	for _, s := range h.servers {
		s.mu.Lock()
		for _, u := range s.usage {
			sum += u.All.Down
		}
		s.mu.Unlock()
	}
	return sum
}

// check checks the history.
func (h *history) check() {
	h.Logf("operations: %v", h.done)
	list := h.list
	there := map[identity.PublicKey]bool{}
	for _, d := range list {
		there[d.Key] = true
	}
	used := 0
	for code, keys := range h.enrolled {
		used += len(keys)
		if len(keys) > 1 {
			h.Errorf("code %s let %d devices in", code, len(keys))
		}
		for _, key := range keys {
			if !there[key] {
				h.Errorf("device %v is lost", key.ID())
			}
		}
	}
	late := 0
	for key := range h.unknown {
		if there[key] {
			late++
		}
	}
	if len(list) > used+late {
		h.Errorf("%d devices, of %d that were enrolled and %d of unknown result", len(list), used, late)
	}
	for key := range h.revoked {
		for _, s := range h.servers {
			if s.member.Allowed(identity.RolePrimary)(key) {
				h.Errorf("%s serves the revoked device %v", s.name, key.ID())
			}
		}
	}
	carried := h.carried()
	h.Logf("%d codes, %d devices (%d after an error), %d revocations confirmed, %v carried", len(h.codes), len(list),
		late,
		len(h.revoked), carried)
}
