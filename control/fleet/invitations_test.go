// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"flag"
	"log/slog"
	"runtime"
	"slices"
	"testing"
	"time"

	"mpbond/base/fault"
	"mpbond/base/natstest"
	"mpbond/base/unit"
	"mpbond/base/waittest"
	"mpbond/control/fleet"
	"mpbond/control/fleet/natsstore"
	"mpbond/link/pairing"
)

var invitations = flag.Int("invitations", 200, "make this number of codes in TestInvitations")

// TestInvitations makes many codes and prints what one costs. It checks that a code among them lets a device in, and
// that the status answers, in normal time, that servers need no memory for codes, and that codes end with their lives.
func TestInvitations(t *testing.T) {
	t.Run("files", func(t *testing.T) {
		w := newWorld(t)
		w.inviteMany(nil)
	})
	t.Run("NATS", func(t *testing.T) {
		w := newWorld(t)
		c := natstest.Start(t, natstest.Options{Nodes: 3})
		w.open = func() (b *breakable) {
			waittest.UntilSuccess(t, func() error {
				s, err := natsstore.Open(t.Context(), natsstore.Config{URLs: c.URLs(),
					Log: slog.New(slog.DiscardHandler)})
				if err == nil {
					t.Cleanup(s.Close)
					b = &breakable{Store: s}
				}
				return err
			})
			return b
		}
		w.store = w.open()
		w.Operator = fleet.NewOperator(w.store, w.key)
		w.must(w.Init(t.Context(), "acme"))
		w.must(w.AddServer(t.Context(), fleet.Server{Name: "eu1", Key: newKey(t).Public(),
			Addresses: []string{"eu1:7600"}}))
		w.inviteMany(c.Nodes)
	})
}

// heapInUse returns the memory that this process uses.
func heapInUse() unit.Bytes {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return unit.Bytes(m.HeapAlloc)
}

// inviteMany makes codes on the engine of a world, and uses some.
func (w *world) inviteMany(nodes []*natstest.Node) {
	engine := func() (sum unit.Bytes) {
		for _, n := range nodes {
			sum += n.Memory(w) / unit.Bytes(len(nodes))
		}
		return sum
	}
	a := w.join("eu1", nil)
	w.awaitReady(a)
	const used = 20
	var codes []pairing.Code
	take := func(c pairing.Code, _ time.Time) error {
		if len(codes) < used || len(codes) == *invitations {
			codes = append(codes, c)
		}
		return nil
	}
	heap, memory, began := heapInUse(), engine(), time.Now()
	w.must(w.InviteMany(w.Context(), fleet.InviteTerms{Life: time.Hour}, *invitations, take))
	each := time.Since(began) / time.Duration(*invitations)
	w.Logf("%d codes, %v each; the process grew by %v, a node by %v", *invitations, each, heapInUse()-heap,
		engine()-memory)
	if grown := heapInUse() - heap; grown > 5*unit.MB+100*unit.Bytes(*invitations) {
		w.Errorf("the process grew by %v", grown)
	}
	var times []time.Duration
	for _, c := range codes {
		began := time.Now()
		if _, err := a.Registration(w.Context(), c.ID()); err != nil {
			w.Fatal(err)
		}
		if _, err := (device{newKey(w)}).enroll(w.Context(), a, c); err != nil {
			w.Fatal(err)
		}
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	began = time.Now()
	v, err := fleet.ReadStatus(w.Context(), w.store)
	status := time.Since(began)
	if err != nil || v.Problem != nil || len(v.Servers) == 0 {
		w.Errorf("status %+v: %v", v, err)
	}
	w.Logf("a code lets a device in within %v (median; at most %v), the status takes %v", times[used/2],
		times[used-1], status)
	if times[used/2] > time.Second || status > 2*time.Second {
		w.Error("that is too slow")
	}
	w.awaitEnd()
}

// awaitEnd makes codes that end soon, and waits until they and no others have ended.
func (w *world) awaitEnd() {
	before, err := fleet.List(w.Context(), w.store, fleet.Codes)
	w.must(err)
	var short []pairing.Code
	w.must(w.InviteMany(w.Context(), fleet.InviteTerms{Life: 2 * time.Second}, max(*invitations/10, 1),
		func(c pairing.Code, _ time.Time) error { short = append(short, c); return nil }))
	for _, c := range short {
		waittest.Until(w, "the code has ended", func() bool {
			_, err := w.store.Get(w.Context(), fleet.Codes, c.ID())
			return err == fleet.ErrNoRecord
		})
	}
	began := time.Now()
	list, err := fleet.List(w.Context(), w.store, fleet.Codes)
	if err != nil || len(list) != len(before) {
		w.Errorf("%d codes are left, of %d: %v", len(list), len(before), err)
	}
	w.Logf("%d codes ended; to list the others took %v", len(short), time.Since(began))
}

// TestInviteTooMany checks the bound of codes at once.
func TestInviteTooMany(t *testing.T) {
	w := newWorld(t)
	err := w.InviteMany(t.Context(), fleet.InviteTerms{Life: time.Hour}, fleet.MaxInvites+1,
		func(pairing.Code, time.Time) error { t.Error("it made a code"); return nil })
	if !fault.Is(err, fault.Limit) || fault.HintOf(err) == "" {
		t.Errorf("%v: %s", err, fault.HintOf(err))
	}
}
