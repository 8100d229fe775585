// SPDX-License-Identifier: Apache-2.0

package natsstore

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"mpbond/base/fault"
	"mpbond/base/natstest"
	"mpbond/base/waittest"
	"mpbond/control/fleet"
)

// TestListRequests checks that the records of many devices are one request, and that more records than the engine puts
// into one answer are all listed.
func TestListRequests(t *testing.T) {
	t.Parallel()
	c := natstest.Start(t, natstest.Options{Monitor: true})
	s := open(t, c, Config{})
	const servers = 20
	var devices []string
	var g sync.WaitGroup
	for d := range maxPrefixes {
		device := fmt.Sprintf("d%d", d)
		devices = append(devices, device)
		g.Go(func() {
			for n := range servers {
				if _, err := s.Put(t.Context(), fleet.UsageCounts, fmt.Sprintf("%s.eu%d", device, n), []byte("1")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	g.Wait()
	for _, of := range []struct{ devices, requests int }{{1, 1}, {50, 1}, {maxPrefixes, 3}} {
		before, err := c.Requests()
		if err != nil {
			t.Fatal(err)
		}
		list, err := s.ListUnder(t.Context(), fleet.UsageCounts, devices[:of.devices])
		if err != nil || len(list) != of.devices*servers {
			t.Errorf("%d records of %d: %v", len(list), of.devices*servers, err)
		}
		after, err := c.Requests()
		if n := after - before; err != nil || n != int64(of.requests) {
			t.Errorf("%d devices took %d requests, not %d: %v", of.devices, n, of.requests, err)
		}
	}
}

// countDevices writes a count for each of some devices, and returns their IDs.
func countDevices(t testing.TB, s *Store, n int) (devices []string) {
	t.Helper()
	var g errgroup.Group
	g.SetLimit(256)
	for i := range n {
		device := fmt.Sprintf("d%05d", i)
		devices = append(devices, device)
		g.Go(func() error {
			_, err := s.Put(t.Context(), fleet.UsageCounts, device+".eu1", make([]byte, 350))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	return devices
}

// TestListsAtOnce checks that a long list is asked for by some requests at once, is in the order of what was asked for,
// and that one error ends it.
func TestListsAtOnce(t *testing.T) {
	t.Parallel()
	c := natstest.Start(t, natstest.Options{Discreet: true})
	link, url := c.Nodes[0].NewLink(t)
	s, err := Open(t.Context(), Config{URLs: url, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	devices := countDevices(t, s, (maxLists+2)*maxPrefixes)
	link.Cut(true)
	before := s.conn.Stats().OutMsgs
	list, done := []fleet.Record(nil), make(chan error, 1)
	go func() {
		var err error
		list, err = s.ListUnder(t.Context(), fleet.UsageCounts, devices)
		done <- err
	}()
	waittest.Until(t, "as much is asked for as may be", func() bool { return s.conn.Stats().OutMsgs == before+maxLists })
	link.Restore()
	if err := <-done; err != nil || len(list) != len(devices) {
		t.Fatalf("%d records of %d: %v", len(list), len(devices), err)
	}
	chunk := func(r fleet.Record) int {
		return slices.Index(devices, strings.TrimSuffix(r.Key, ".eu1")) / maxPrefixes
	}
	if !slices.IsSortedFunc(list, func(a, b fleet.Record) int { return cmp.Compare(chunk(a), chunk(b)) }) {
		t.Error("the records are not in the order of what was asked for")
	}
	if list, err := s.ListUnder(t.Context(), fleet.UsageCounts, append(devices, "*")); !fault.Is(err, fault.Usage) {
		t.Errorf("%d records: %v", len(list), err)
	}
	ended, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	if list, err := s.ListUnder(ended, fleet.UsageCounts, devices); !fault.Is(err, fault.Unreachable) {
		t.Errorf("%d records without any time: %v", len(list), err)
	}
}

// BenchmarkFarList measures a list of the counts of 10,000 devices over a round trip of 200 ms.
func BenchmarkFarList(b *testing.B) {
	c := natstest.Start(b, natstest.Options{Discreet: true})
	devices := countDevices(b, open(b, c, Config{}), 10_000)
	link := natstest.NewLink(b, strings.TrimPrefix(c.URLs(), "nats://"), 100*time.Millisecond)
	s, err := Open(b.Context(), Config{URLs: "nats://" + link.Addr(), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for b.Loop() {
		list, err := s.ListUnder(b.Context(), fleet.UsageCounts, devices)
		if err != nil || len(list) != len(devices) {
			b.Fatal(len(list), err)
		}
	}
}
