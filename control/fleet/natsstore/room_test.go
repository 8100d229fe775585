// SPDX-License-Identifier: Apache-2.0

package natsstore

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/natstest"
	"mpbond/base/waittest"
	"mpbond/control/fleet"
	"mpbond/link/pairing"
)

// TestStolenServerFillsBuckets checks that a server's credentials fill no bucket beyond its bound, and that the
// operator sees which ones are full. A revocation reaches a server while the thief goes on writing.
func TestStolenServerFillsBuckets(t *testing.T) {
	t.Parallel()
	for _, nodes := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
			t.Parallel()
			const room = 16 << 20 // what the operator makes free suffices the thief for longer than one write takes
			connect := startWithUsers(t, nodes, room)
			key := newKey(t)
			store := connect("op")
			op := fleet.NewOperator(store, key)
			if err := op.Init(t.Context(), "acme"); err != nil {
				t.Fatal(err)
			}
			device := enrollOne(t, op, connect("eu1"))
			thief := connect("eu1")
			for b, text := range map[fleet.Bucket]string{fleet.UsageCounts: "%d.eu1", fleet.Codes: "%d",
				fleet.Devices: "%d"} {
				if size := fillBucket(t, thief, b, text, junkSize); size < room/2 || size > room {
					t.Errorf("%s has taken %d bytes", b, size)
				}
			}
			for range 100 {
				if err := thief.AddEvents(t.Context(), fleet.Event{Kind: "junk", Text: strings.Repeat("x", 1000)}); err != nil {
					t.Fatalf("events leave no room for others: %v", err)
				}
			}
			store.MakeRoom(t.Context())
			v, err := fleet.ReadStatus(t.Context(), store)
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range fleet.Buckets() {
				isFull := b == fleet.UsageCounts || b == fleet.Codes || b == fleet.Devices
				if !fault.Is(v.Problem, fault.Limit) || strings.Contains(v.Problem.Error(), prefix+string(b)) != isFull {
					t.Errorf("bucket %s is full: %v, and the status says %v", b, isFull, v.Problem)
				}
			}
			if size := fillBucket(t, thief, fleet.Devices, "again-%d", junkSize); size == 0 {
				t.Error("the operator has made no room")
			}
			fillBucket(t, thief, fleet.Devices, "rest-%d", 10) // not even a ruling has room then
			stop := writeOn(t, thief)
			behind, err := []string(nil), error(nil)
			if _, behind, err = op.Revoke(t.Context(), device, time.Minute); err != nil {
				t.Error(err)
			}
			stop()
			if len(behind) > 0 {
				t.Errorf("the revocation did not reach %q", behind)
			}
			for i := range 2 * maxRaises {
				fillBucket(t, thief, fleet.Devices, fmt.Sprintf("%d-%%d", i), junkSize)
				store.MakeRoom(t.Context())
			}
			if _, err := store.Put(t.Context(), fleet.Devices, "last", make([]byte, junkSize)); !fault.Is(err, fault.Limit) {
				t.Errorf("a record beyond all bounds: %v", err)
			}
			for b, want := range map[fleet.Bucket]int64{fleet.UsageCounts: room, fleet.Codes: room, fleet.Devices: 2 * room} {
				st, err := store.js.Stream(t.Context(), "KV_"+prefix+string(b))
				if err != nil || st.CachedInfo().Config.MaxBytes != want {
					t.Errorf("the bound of %s is not %d: %v", b, want, err)
				}
			}
		})
	}
}

const junkSize = 32 << 10

// fillBucket writes records of each bytes into a bucket until one is refused. It returns the size of those before.
func fillBucket(t *testing.T, s *Store, b fleet.Bucket, key string, each int) (size int) {
	t.Helper()
	for i := 0; ; i++ {
		_, err := s.Put(t.Context(), b, fmt.Sprintf(key, i), make([]byte, each))
		switch {
		case fault.Is(err, fault.Limit):
			return size
		case err != nil:
			t.Fatalf("%d bytes of junk in %s: %v", size, b, err)
		}
		size += each
	}
}

// writeOn writes junk into the bucket of devices, whatever is refused, until stop.
func writeOn(t *testing.T, s *Store) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var g sync.WaitGroup
	g.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			_, _ = s.Put(ctx, fleet.Devices, fmt.Sprintf("on-%d", i), make([]byte, 1000))
		}
	})
	return func() { cancel(); g.Wait() }
}

// enrollOne runs a server until the test ends, and returns the key of a device that it has let in.
func enrollOne(t *testing.T, op *fleet.Operator, store fleet.Store) identity.PublicKey {
	t.Helper()
	self := fleet.Server{Name: "eu1", Key: newKey(t).Public(), Addresses: []string{"eu1.example.org:7600"}}
	if err := op.AddServer(t.Context(), self); err != nil {
		t.Fatal(err)
	}
	m, err := fleet.NewMember(store, fleet.MemberConfig{Server: self, Version: "test",
		Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	waittest.Until(t, "the server knows the devices", func() bool { return m.Status().Age >= 0 })
	code, _, err := op.Invite(t.Context(), fleet.InviteTerms{Life: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	key := newKey(t).Public()
	claim, err := code.SignClaim(key)
	if err == nil {
		_, err = m.Enroll(t.Context(), code.ID(), pairing.Enrollee{Key: key, Name: "phone", Claim: claim})
	}
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newKey(t *testing.T) *identity.Key {
	t.Helper()
	key, err := identity.Generate()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestRoomOfOlderFleet checks that the operator gives bounds and lives to what an older version made without them,
// lowers no bound, and that a server does neither.
func TestRoomOfOlderFleet(t *testing.T) {
	t.Parallel()
	connect := startWithUsers(t, 1, 0)
	js := connect("op").js
	names := []string{eventStream}
	for _, b := range fleet.Buckets() {
		names = append(names, "KV_"+prefix+string(b))
	}
	// each calls f with each stream
	each := func(f func(jetstream.StreamConfig)) {
		t.Helper()
		for _, name := range names {
			st, err := js.Stream(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			f(st.CachedInfo().Config)
		}
	}
	set := func(bound int64) {
		each(func(cfg jetstream.StreamConfig) {
			cfg.MaxBytes = bound
			if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
		})
	}
	set(-1)
	counts, err := js.Stream(t.Context(), "KV_"+prefix+string(fleet.UsageCounts))
	if err != nil {
		t.Fatal(err)
	}
	cfg := counts.CachedInfo().Config
	cfg.MaxAge = 0
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	connect("eu1")
	each(func(cfg jetstream.StreamConfig) {
		if cfg.MaxBytes > 0 {
			t.Errorf("a server has bounded %s", cfg.Name)
		}
	})
	op := connect("op")
	if v := op.CheckRoom(t.Context()); v != nil {
		t.Errorf("buckets without a bound: %v", v)
	}
	each(func(cfg jetstream.StreamConfig) {
		if cfg.MaxBytes > 0 {
			t.Errorf("an operator who reads has bounded %s", cfg.Name)
		}
	})
	op.MakeRoom(t.Context())
	sum := int64(0)
	each(func(cfg jetstream.StreamConfig) {
		if cfg.MaxBytes <= 0 || cfg.MaxMsgSize != fleet.MaxValue {
			t.Errorf("%s has the bounds %d and %d", cfg.Name, cfg.MaxBytes, cfg.MaxMsgSize)
		}
		sum += cfg.MaxBytes
	})
	if info, err := counts.Info(t.Context()); err != nil || info.Config.MaxAge != fleet.UsageLife {
		t.Errorf("counts live %v: %v", info.Config.MaxAge, err)
	}
	if sum > 2100<<20 {
		t.Errorf("a fleet reserves %d MB: the texts say 2.1 GB", sum>>20)
	}
	const raised = 1 << 30
	set(raised)
	op.MakeRoom(t.Context())
	each(func(cfg jetstream.StreamConfig) {
		if cfg.MaxBytes != raised {
			t.Errorf("the bound of %s is %d now", cfg.Name, cfg.MaxBytes)
		}
	})
}

// TestNoRoom checks that the operator is told when an engine has no room for a fleet: all of its nodes, or one of
// three. Buckets are not made with one replica instead.
func TestNoRoom(t *testing.T) {
	t.Parallel()
	const storage = 10 << 30 // of a node
	for _, nodes := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
			t.Parallel()
			c := natstest.Start(t, natstest.Options{Nodes: nodes, Discreet: true})
			conn, err := nats.Connect(c.URLs())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			js, err := jetstream.New(conn)
			if err != nil {
				t.Fatal(err)
			}
			create := func(name string, room int64, replicas int) error {
				_, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{name},
					MaxBytes: room, Replicas: replicas})
				return err
			}
			waittest.UntilSuccess(t, func() error { return create("other", storage*3/4, 1) })
			waittest.Until(t, "all nodes know that one has no room", func() bool {
				err := create("probe", storage/2, nodes)
				if err == nil {
					err = js.DeleteStream(t.Context(), "probe")
				}
				return isFull(err)
			})
			_, err = Open(t.Context(), Config{URLs: c.Nodes[0].URL, room: storage / 2, Log: slog.New(slog.DiscardHandler)})
			if !fault.Is(err, fault.Limit) || !strings.Contains(fault.HintOf(err), "max_file_store") {
				t.Errorf("%v; %s", err, fault.HintOf(err))
			}
		})
	}
}

// TestRoomIsAskedAtOnce checks that the room of all buckets is asked for without waiting for an answer in between.
func TestRoomIsAskedAtOnce(t *testing.T) {
	t.Parallel()
	c := natstest.Start(t, natstest.Options{Discreet: true})
	link, url := c.Nodes[0].NewLink(t)
	s, err := Open(t.Context(), Config{URLs: url, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	link.Cut(true)
	before := s.conn.Stats().OutMsgs
	done := make(chan error, 1)
	go func() { done <- s.CheckRoom(t.Context()) }()
	waittest.Until(t, "all buckets are asked for", func() bool {
		return s.conn.Stats().OutMsgs >= before+uint64(len(fleet.Buckets()))
	})
	link.Restore()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
