// SPDX-License-Identifier: Apache-2.0

package natsstore

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"mpbond/base/fault"
	"mpbond/base/natstest"
	"mpbond/base/porttest"
	"mpbond/base/waittest"
	"mpbond/control/fleet"
	"mpbond/control/fleet/storetest"
)

func open(t testing.TB, c *natstest.Cluster, cfg Config) *Store {
	t.Helper()
	cfg.URLs, cfg.CA, cfg.Log = c.URLs(), c.CAFile, slog.New(slog.DiscardHandler)
	var s *Store
	waittest.UntilSuccess(t, func() (err error) { // a new cluster has no leader yet
		s, err = Open(t.Context(), cfg)
		return err
	})
	t.Cleanup(s.Close)
	return s
}

func TestContract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) (a, b fleet.Store) {
		c := natstest.Start(t, natstest.Options{})
		return open(t, c, Config{}), open(t, c, Config{})
	})
}

// TestContractCluster runs the suite on a cluster of three nodes with TLS.
func TestContractCluster(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("three nodes for each part of the suite")
	}
	storetest.Run(t, func(t *testing.T) (a, b fleet.Store) {
		c := natstest.Start(t, natstest.Options{Nodes: 3, TLS: true})
		return open(t, c, Config{}), open(t, c, Config{})
	})
}

// TestNodeLost checks that a store of three nodes works while one of them is killed, and that a watch goes on.
func TestNodeLost(t *testing.T) {
	t.Parallel()
	c := natstest.Start(t, natstest.Options{Nodes: 3})
	s := open(t, c, Config{})
	seen := make(chan fleet.Change, 100)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- s.Watch(ctx, fleet.Devices, func(c fleet.Change) { seen <- c }) }()
	for !(<-seen).IsCurrent {
	}
	for i, n := range c.Nodes {
		key := fmt.Sprintf("device-%d", i)
		n.Kill()
		waittest.UntilSuccess(t, func() error { // another node becomes the leader
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := s.Put(ctx, fleet.Devices, key, []byte("1"))
			return err
		})
		for (<-seen).Key != key {
		}
		n.Restart(t)
		awaitCurrent(t, s)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestEngineLost checks that requests fail in time while the engine is away, and work again afterwards, with the
// same watch.
func TestEngineLost(t *testing.T) {
	t.Parallel()
	c := natstest.Start(t, natstest.Options{})
	s := open(t, c, Config{})
	if _, err := s.Put(t.Context(), fleet.Devices, "before", []byte("1")); err != nil {
		t.Fatal(err)
	}
	seen := make(chan fleet.Change, 100)
	go func() { _ = s.Watch(t.Context(), fleet.Devices, func(c fleet.Change) { seen <- c }) }()
	for !(<-seen).IsCurrent {
	}
	c.Nodes[0].Kill()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := s.Put(ctx, fleet.Devices, "during", []byte("1")); !fault.Is(err, fault.Unreachable) {
		t.Errorf("without an engine: %v", err)
	}
	c.Nodes[0].Restart(t)
	waittest.UntilSuccess(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.Put(ctx, fleet.Devices, "after", []byte("1"))
		return err
	})
	for (<-seen).Key != "after" {
	}
}

// TestBadEngines checks the errors for people.
func TestBadEngines(t *testing.T) {
	t.Parallel()
	nothing := natstest.Start(t, natstest.Options{NoJetStream: true})
	plain := natstest.Start(t, natstest.Options{})
	withTLS := natstest.Start(t, natstest.Options{TLS: true})
	closed := natstest.Start(t,
		natstest.Options{Extra: `authorization { users: [ { user: "eu1", password: "right" } ] }`})
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	seed := "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY" // of the documentation of NATS
	host := strings.TrimPrefix(closed.URLs(), "nats://")
	for name, c := range map[string]struct {
		cfg  Config
		want fault.Kind
		text string
	}{
		"nobody listens": {Config{URLs: "nats://" + porttest.FreeAddress(t)}, fault.Unreachable, "does not answer"},
		"no JetStream":   {Config{URLs: nothing.URLs()}, fault.Unsupported, "JetStream"},
		"wrong password": {Config{URLs: "nats://eu1:wrong@" + host}, fault.Permission, "credentials"},
		"no credentials": {Config{URLs: closed.URLs()}, fault.Permission, "credentials"},
		"other key":      {Config{URLs: closed.URLs(), Creds: write("seed", seed)}, fault.Permission, "credentials"},
		"no such file": {Config{URLs: closed.URLs(), Creds: filepath.Join(dir, "none")}, fault.Config,
			"no such file"},
		"not credentials": {Config{URLs: closed.URLs(), Creds: write("text", "hello")}, fault.Config, "no credentials"},
		"no TLS there":    {Config{URLs: strings.Replace(plain.URLs(), "nats:", "tls:", 1)}, fault.Config, "no TLS"},
		"unknown CA":      {Config{URLs: withTLS.URLs()}, fault.WrongKey, "certificate"},
	} {
		t.Run(name, func(t *testing.T) {
			c.cfg.Log = slog.New(slog.DiscardHandler)
			s, err := Open(t.Context(), c.cfg)
			if err == nil {
				s.Close()
				t.Fatal("no error")
			}
			if !fault.Is(err, c.want) || fault.HintOf(err) == "" || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%v (%v; hint %q)", err, fault.KindOf(err), fault.HintOf(err))
			}
			if strings.Contains(err.Error(), "wrong@") || strings.Contains(err.Error(), ":wrong") {
				t.Errorf("the error names the password: %v", err)
			}
		})
	}
}

// TestReplicas checks that a cluster of three nodes keeps three copies.
func TestReplicas(t *testing.T) {
	t.Parallel()
	c := natstest.Start(t, natstest.Options{Nodes: 3})
	s := open(t, c, Config{})
	for _, b := range fleet.Buckets() {
		st, err := s.js.Stream(t.Context(), "KV_"+prefix+string(b))
		if err != nil {
			t.Fatal(err)
		}
		if n := st.CachedInfo().Config.Replicas; n != 3 {
			t.Errorf("bucket %s has %d replicas", b, n)
		}
		if life := st.CachedInfo().Config.MaxAge; life != fleet.RecordLife(b) {
			t.Errorf("records of bucket %s live %v", b, life)
		}
	}
	names := slices.Collect(func(yield func(string) bool) {
		for n := range s.js.StreamNames(t.Context()).Name() {
			if !yield(n) {
				return
			}
		}
	})
	if len(names) != len(fleet.Buckets())+1 {
		t.Errorf("streams %q", names)
	}
}

// TestPermissions checks that a server with the permissions of packaging/fleet/users.conf can do its work, and can
// write neither another server's state nor what only the operator may.
func TestPermissions(t *testing.T) {
	t.Parallel()
	connect := startWithUsers(t, 1, 0)
	op, server := connect("op"), connect("eu1")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen := make(chan fleet.Change, 10)
	done := make(chan error, 1)
	go func() { done <- server.Watch(ctx, fleet.Devices, func(c fleet.Change) { seen <- c }) }()
	for !(<-seen).IsCurrent {
	}
	for _, allowed := range []struct {
		bucket fleet.Bucket
		key    string
	}{{fleet.Devices, "mpb1x"}, {fleet.Devices, "beat.eu1"}, {fleet.Codes, "0123"}, {fleet.Servers, "eu1"},
		{fleet.UsageCounts, "K7QF-3M2A-XT5B-Y2JD.eu1"}} {
		revision, err := server.Put(ctx, allowed.bucket, allowed.key, []byte("1"))
		if err == nil {
			_, err = server.Update(ctx, allowed.bucket, fleet.Record{Key: allowed.key, Value: []byte("2"),
				Revision: revision})
		}
		if err == nil {
			_, err = server.Get(ctx, allowed.bucket, allowed.key)
		}
		if err != nil {
			t.Errorf("%s in %s: %v", allowed.key, allowed.bucket, err)
		}
	}
	if c := <-seen; c.Key != "mpb1x" {
		t.Errorf("the watch reported %+v", c)
	}
	if err := server.AddEvents(ctx, fleet.Event{Kind: "paired"}); err != nil {
		t.Error(err)
	}
	expectDeaf(t, server, op)
	expectDenied(t, server, op, map[string]fleet.Bucket{"eu2": fleet.Servers, "beat.eu2": fleet.Devices,
		"list": fleet.Orders, "drain.eu2": fleet.Orders, "K7QF.eu2": fleet.UsageCounts, "north": fleet.Permits,
		"north.eu1": fleet.Loads})
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// startWithUsers starts an engine of some nodes with the users of packaging/fleet/users.conf and an operator, "op". It
// returns a function that connects as one of them. room is Config.room.
func startWithUsers(t testing.TB, nodes int, room int64) func(user string) *Store {
	t.Helper()
	page, err := os.ReadFile("../../../packaging/fleet/users.conf")
	if err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile(`(?m)^      # ([ {}])`).ReplaceAllString(string(page), "      $1")
	for user, key := range map[string]string{"op": "THE_OPERATOR", "eu1": "EU1", "permits1": "PERMITS1"} {
		nkey := fmt.Sprintf("nkey: %q", "UAREPLACE_BY_THE_KEY_OF_"+key)
		if strings.Count(text, nkey) != 1 {
			t.Fatalf("the file has no entry of %s", user)
		}
		text = strings.Replace(text, nkey, "user: "+user+", password: x", 1)
	}
	c := natstest.Start(t, natstest.Options{Nodes: nodes, Extra: text})
	return func(user string) *Store {
		t.Helper()
		cfg := Config{URLs: strings.ReplaceAll(c.URLs(), "nats://", "nats://"+user+":x@"), room: room,
			Log: slog.New(slog.DiscardHandler)}
		if user != "op" {
			cfg.User = user
		}
		var s *Store
		waittest.UntilSuccess(t, func() (err error) { // a new cluster has no leader yet
			s, err = Open(t.Context(), cfg)
			return err
		})
		t.Cleanup(s.Close)
		return s
	}
}

// expectDeaf checks that a user reads no answers to others.
func expectDeaf(t *testing.T, user, op *Store) {
	t.Helper()
	heard := make(chan *nats.Msg, 10)
	for _, subject := range []string{"_INBOX.>", ">", "_INBOX_eu2.>"} {
		sub, err := user.conn.ChanSubscribe(subject, heard)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = sub.Unsubscribe() }()
	}
	if err := user.conn.Flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := op.Get(t.Context(), fleet.Devices, "mpb1y"); err != fleet.ErrNoRecord {
		t.Fatal(err)
	}
	if err := user.conn.Flush(); err != nil {
		t.Fatal(err)
	}
	select {
	case m := <-heard:
		t.Errorf("it reads what others are answered: %s", m.Subject)
	default:
	}
}

// expectDenied checks that a user may write none of the keys, by what op then finds.
func expectDenied(t *testing.T, user, op *Store, keys map[string]fleet.Bucket) {
	t.Helper()
	for key, b := range keys {
		trying, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := user.Put(trying, b, key, []byte("1"))
		cancel()
		if !fault.Is(err, fault.Permission) {
			t.Errorf("%s in %s: %v", key, b, err)
		}
		if _, err := op.Get(t.Context(), b, key); err != fleet.ErrNoRecord {
			t.Errorf("%s in %s was written: %v", key, b, err)
		}
	}
}

// TestPermitPermissions checks that a permit service with its permissions of packaging/fleet/users.conf can do its
// work, and can neither write the loads of another one nor read or write what servers share.
func TestPermitPermissions(t *testing.T) {
	t.Parallel()
	connect := startWithUsers(t, 1, 0)
	op, service := connect("op"), connect("permits1")
	cells, err := fleet.NewCells(service, "permits1")
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"1", "2"} {
		_, revision, err := cells.ReadPermits(t.Context(), "north")
		if err != nil {
			t.Fatal(err)
		}
		if done, err := cells.ReplacePermits(t.Context(), "north", []byte(text), revision); !done || err != nil {
			t.Fatal(done, err)
		}
	}
	expectDeaf(t, service, op)
	if err := cells.WriteLoad(t.Context(), "north", []byte("1")); err != nil {
		t.Error(err)
	}
	if _, err := op.Put(t.Context(), fleet.Loads, "north.permits2", []byte("2")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen := make(chan string, 10)
	done := make(chan error, 1)
	go func() {
		done <- cells.WatchLoads(ctx, func(service, _ string, load []byte) { seen <- service + string(load) })
	}()
	select {
	case got := <-seen:
		if got != "permits22" {
			t.Errorf("the watch reported %q", got)
		}
	case <-time.After(10 * time.Second):
		t.Error("the watch reports nothing")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	expectDenied(t, service, op, map[string]fleet.Bucket{"north.permits3": fleet.Loads, "mpb1x": fleet.Devices,
		"0123": fleet.Codes, "eu1": fleet.Servers, "list": fleet.Orders, "K7QF.eu1": fleet.UsageCounts})
	if _, err := op.Put(t.Context(), fleet.Devices, "mpb1y", []byte("1")); err != nil {
		t.Fatal(err)
	}
	reading, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	if r, err := service.Get(reading, fleet.Devices, "mpb1y"); err == nil {
		t.Errorf("a permit service reads a device: %s", r.Value)
	}
}

// TestOlderFleet checks that a server works in a fleet that an older version made, without the buckets that it does
// not need, and that their user is told what to do.
func TestOlderFleet(t *testing.T) {
	t.Parallel()
	connect := startWithUsers(t, 1, 0)
	op := connect("op")
	for _, b := range []fleet.Bucket{fleet.Permits, fleet.Loads} {
		if err := op.js.DeleteKeyValue(t.Context(), prefix+string(b)); err != nil {
			t.Fatal(err)
		}
	}
	server := connect("eu1")
	if _, err := server.Put(t.Context(), fleet.Servers, "eu1", []byte("1")); err != nil {
		t.Errorf("a server without the buckets of permit services: %v", err)
	}
	cells, err := fleet.NewCells(connect("permits1"), "permits1")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := cells.ReadPermits(t.Context(), "north"); !fault.Is(err, fault.NotFound) || fault.HintOf(err) == "" {
		t.Errorf("a permit service without its buckets: %v", err)
	}
	connect("op") // makes them
	if cells, err = fleet.NewCells(connect("permits1"), "permits1"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := cells.ReadPermits(t.Context(), "north"); err != nil {
		t.Error(err)
	}
}
