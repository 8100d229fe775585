// SPDX-License-Identifier: Apache-2.0

package natsstore

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"mpbond/base/waittest"
	"mpbond/control/fleet"
)

// openStream opens the stream of a bucket.
func openStream(t *testing.T, s *Store, b fleet.Bucket) jetstream.Stream {
	t.Helper()
	stream, err := s.js.Stream(t.Context(), "KV_"+prefix+string(b))
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

// TestStolenServerMakesConsumers checks that a server's credentials allow one consumer of each bucket, that of its own
// name, and that they touch no other one.
func TestStolenServerMakesConsumers(t *testing.T) {
	t.Parallel()
	connect := startWithUsers(t, 1, 0)
	op, thief := connect("op"), connect("eu1")
	for _, b := range fleet.Buckets() {
		filter := "$KV." + prefix + string(b) + ".>"
		other, err := openStream(t, op, b).CreateConsumer(t.Context(), jetstream.ConsumerConfig{Name: "eu2",
			FilterSubject: filter, InactiveThreshold: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		stream := openStream(t, thief, b)
		for _, cfg := range []jetstream.ConsumerConfig{{FilterSubject: filter}, {Name: "eu1-2", FilterSubject: filter},
			{Durable: "eu3", FilterSubject: filter}, {Durable: "eu4"}, {Name: "eu1", FilterSubject: filter}} {
			trying, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			_, _ = stream.CreateConsumer(trying, cfg)
			cancel()
		}
		trying, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_ = stream.DeleteConsumer(trying, "eu2")
		cancel()
		if _, err := thief.js.AccountInfo(t.Context()); err != nil { // what was sent before has been read
			t.Fatal(err)
		}
		if _, err := other.Info(t.Context()); err != nil {
			t.Errorf("%s: the consumer of another server: %v", b, err)
		}
		info, err := openStream(t, op, b).Info(t.Context())
		if err != nil || info.State.Consumers != 2 {
			t.Errorf("%s has %d consumers: %v", b, info.State.Consumers, err)
		}
	}
}

// TestAnswersForOthers checks that the engine writes no answer where the user that has asked may not write. A user may
// name any subject for answers, and the answer may be a record of its own.
func TestAnswersForOthers(t *testing.T) {
	t.Parallel()
	for _, nodes := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
			t.Parallel()
			connect := startWithUsers(t, nodes, 0)
			op, thief := connect("op"), connect("eu1")
			const own = "$KV." + prefix + "servers.eu1"
			for _, request := range []string{own, "mpbond.events", "$JS.API.INFO", "$JS.API.STREAM.INFO.KV_mpbond-servers",
				"$JS.API.DIRECT.GET.KV_mpbond-servers." + own} {
				for _, leaf := range []string{"", "leaf."} {
					for _, subject := range []string{"$KV.mpbond-servers.eu2", "$KV.mpbond-orders.list",
						"$JS.API.STREAM.DELETE.KV_mpbond-codes", "$JS.API.STREAM.PURGE.KV_mpbond-servers"} {
						if _, err := thief.Put(t.Context(), fleet.Servers, "eu1", nil); err != nil { // an empty request
							t.Fatal(err)
						}
						if err := thief.conn.PublishRequest(request, leaf+subject, nil); err != nil {
							t.Fatal(err)
						}
					}
				}
				if _, err := thief.conn.Request(request, nil, 10*time.Second); err != nil { // those before are answered
					t.Fatal(err)
				}
			}
			openStream(t, op, fleet.Codes)
			for key, b := range map[string]fleet.Bucket{"eu2": fleet.Servers, "list": fleet.Orders} {
				if r, err := op.Get(t.Context(), b, key); !errors.Is(err, fleet.ErrNoRecord) {
					t.Errorf("%s in %s is %q: %v", key, b, r.Value, err)
				}
			}
			if _, err := op.Get(t.Context(), fleet.Servers, "eu1"); err != nil {
				t.Errorf("the bucket was emptied: %v", err)
			}
		})
	}
}

// TestWatchOfEarlierProcess checks that a server's watch reports all records although the consumer of an earlier
// process, which has read them, is still there.
func TestWatchOfEarlierProcess(t *testing.T) {
	t.Parallel()
	connect := startWithUsers(t, 1, 0)
	op := connect("op")
	if _, err := op.Put(t.Context(), fleet.Devices, "mpb1x", []byte("1")); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		server := connect("eu1")
		seen := make(chan fleet.Change, 10)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- server.Watch(ctx, fleet.Devices, func(c fleet.Change) { seen <- c }) }()
		waittest.Until(t, "the watch has reported the device", func() bool {
			select {
			case c := <-seen:
				return c.Key == "mpb1x"
			default:
				return false
			}
		})
		server.conn.Close() // as if the process was killed
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// BenchmarkWrites measures how many writes three nodes take from 256 writers of the operator, and of a server: those
// pass from its account to that of the operator.
func BenchmarkWrites(b *testing.B) {
	connect := startWithUsers(b, 3, 0)
	for _, user := range []string{"op", "eu1"} {
		s := connect(user)
		b.Run(user, func(b *testing.B) {
			var g errgroup.Group
			g.SetLimit(256)
			for i := range b.N {
				g.Go(func() error {
					_, err := s.Put(b.Context(), fleet.UsageCounts, fmt.Sprintf("d%d.eu1", i%10_000), make([]byte, 350))
					return err
				})
			}
			if err := g.Wait(); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "writes/s")
		})
	}
}
