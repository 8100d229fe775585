// SPDX-License-Identifier: Apache-2.0

package natsstore

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"mpbond/base/fault"
	"mpbond/base/natstest"
	"mpbond/base/waittest"
	"mpbond/control/fleet"
)

// nodeOf returns the node that a store is connected to.
func nodeOf(c *natstest.Cluster, s *Store) *natstest.Node {
	for _, n := range c.Nodes {
		if n.URL == s.conn.ConnectedUrl() {
			return n
		}
	}
	return nil
}

// putInTime writes a record of devices within a second, or fails.
func putInTime(t *testing.T, s *Store, key, value string) error {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := s.Put(ctx, fleet.Devices, key, []byte(value))
	return err
}

// awaitCurrent waits until all nodes have the whole bucket of devices.
func awaitCurrent(t *testing.T, s *Store) {
	t.Helper()
	waittest.UntilSuccess(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		kv, err := s.js.Stream(ctx, "KV_"+prefix+string(fleet.Devices))
		if err != nil {
			return err
		}
		for _, r := range kv.CachedInfo().Cluster.Replicas {
			if !r.Current || r.Offline {
				return fmt.Errorf("%s is behind", r.Name)
			}
		}
		return nil
	})
}

// TestNodeIsolated checks that a store whose node is cut off from the others goes on with another node, that a new
// one finds such a node, and that a watch reports all changes.
func TestNodeIsolated(t *testing.T) {
	t.Parallel()
	for _, silent := range []bool{false, true} {
		t.Run(fmt.Sprintf("silent %v", silent), func(t *testing.T) {
			t.Parallel()
			c := natstest.Start(t, natstest.Options{Nodes: 3, Partitions: true})
			s := open(t, c, Config{})
			seen := make(chan fleet.Change, 100)
			go func() { _ = s.Watch(t.Context(), fleet.Devices, func(c fleet.Change) { seen <- c }) }()
			for !(<-seen).IsCurrent {
			}
			first := nodeOf(c, s)
			first.Isolate(silent)
			began := time.Now()
			waittest.UntilSuccess(t, func() error { return putInTime(t, s, "during", "1") })
			if nodeOf(c, s) == first {
				t.Error("the store still uses the node that is cut off")
			}
			t.Logf("the next write took %v", time.Since(began))
			for (<-seen).Key != "during" {
			}
			urls := first.URL // tried first
			for _, n := range c.Nodes {
				if n != first {
					urls += "," + n.URL
				}
			}
			other, err := Open(t.Context(), Config{URLs: urls, Log: slog.New(slog.DiscardHandler), inOrder: true})
			if err != nil {
				t.Fatalf("a new store at the node that is cut off: %v", err)
			}
			defer other.Close()
			first.Rejoin()
			awaitCurrent(t, s)
			if err := putInTime(t, other, "after", "1"); err != nil {
				t.Error(err)
			}
			for (<-seen).Key != "after" {
			}
		})
	}
}

// TestCertificateAndClock checks that a certificate that is not valid now makes people look at the clock.
func TestCertificateAndClock(t *testing.T) {
	err := explainConnectError(fmt.Errorf("tls: %w", x509.CertificateInvalidError{Reason: x509.Expired}), "tls://n1:4222")
	if !fault.Is(err, fault.WrongKey) || !strings.Contains(fault.HintOf(err), "clock") {
		t.Errorf("%v: %s", err, fault.HintOf(err))
	}
}

// TestDiskFull checks that a store goes on when the disk of its node is full, and that the node takes part again when
// it has room and is restarted.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	c := natstest.Start(t, natstest.Options{Nodes: 3, DiskSize: 64 << 20})
	s := open(t, c, Config{})
	full := nodeOf(c, s)
	full.FillDisk(t)
	began := time.Now()
	value := string(make([]byte, 20_000))
	for i := range 50 {
		waittest.UntilSuccess(t, func() error { return putInTime(t, s, fmt.Sprint("device-", i), value) })
	}
	t.Logf("50 writes took %v", time.Since(began))
	other := open(t, c, Config{}) // perhaps at that node
	if err := putInTime(t, other, "other", "1"); err != nil {
		t.Error(err)
	}
	full.FreeDisk(t)
	full.Kill()
	full.Restart(t)
	awaitCurrent(t, other)
	records, err := fleet.List(t.Context(), other, fleet.Devices)
	if err != nil || len(records) != 51 {
		t.Errorf("%d records: %v", len(records), err)
	}
}

// BenchmarkPut measures how many counts of devices three nodes on this machine take in a second, from three servers.
func BenchmarkPut(b *testing.B) {
	c := natstest.Start(b, natstest.Options{Nodes: 3})
	var stores []*Store
	for range 3 {
		stores = append(stores, open(b, c, Config{}))
	}
	value := make([]byte, 300)
	var next atomic.Int64
	b.SetParallelism(48) // writers for each processor
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			n := next.Add(1)
			key := fmt.Sprintf("device-%d.eu%d", n%1000, n%3)
			if _, err := stores[n%3].Put(b.Context(), fleet.UsageCounts, key, value); err != nil {
				b.Error(err)
				return
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "writes/s")
}

// TestOldAnswers checks that a watch ends when an engine has had old records for long, but not when two leaders that
// were cut off have answered, long after each other.
func TestOldAnswers(t *testing.T) {
	t.Parallel()
	c := natstest.Start(t, natstest.Options{})
	s := open(t, c, Config{})
	w := watch{store: s, bucket: fleet.Devices, last: 100, behindSince: time.Now().Add(-2 * leaderTimeout),
		take: func(fleet.Change) {}}
	if err := w.read(t.Context()); err != fleet.ErrReplaced {
		t.Errorf("an engine without the records: %v", err)
	}
	c.Nodes[0].Kill()
	if err := w.read(t.Context()); err == nil || err == fleet.ErrReplaced {
		t.Errorf("without an engine: %v", err)
	}
	c.Nodes[0].Restart(t)
	waittest.Until(t, "the engine answers", func() bool {
		err := w.read(t.Context())
		if err == fleet.ErrReplaced {
			t.Fatal("the watch ends at the first answer")
		}
		return err != nil && strings.Contains(err.Error(), "cut off")
	})
}
