// SPDX-License-Identifier: Apache-2.0

package natsstore

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"mpbond/control/fleet"
)

// Watch implements fleet.Store. It reads the stream behind the bucket by a consumer of its own, since the library's
// watch may stay silent after the node with its consumer has ended. The consumer of a server or permit service has that
// name, and its credentials allow no other one: so each has one watch of a bucket at a time.
func (s *Store) Watch(ctx context.Context, b fleet.Bucket, take func(fleet.Change)) error {
	w := watch{store: s, bucket: b, take: take}
	for began := time.Now(); ; {
		err := w.read(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == fleet.ErrReplaced:
			return err
		case err != nil && !w.isCurrent && w.last == 0 && time.Since(began) > setupTimeout:
			return s.explain(err) // nothing was reported: the caller decides
		}
		if errors.Is(err, jetstream.ErrConsumerDeleted) && s.user != "" {
			s.log.Warn("another program took over this watch: do two run with the same name?", "bucket", b, "name", s.user)
		}
		s.log.Debug("watching the fleet's engine again", "bucket", b, "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(reconnectWait):
		}
	}
}

// watch is a watch of a bucket.
type watch struct {
	store     *Store
	bucket    fleet.Bucket
	take      func(fleet.Change)
	last      uint64 // the newest revision reported; 0: none
	isCurrent bool   // IsCurrent was reported
	// behindSince is since when each answer of the engine has said that its newest revision is below last; zero: the last
	// one did not, or there was none.
	behindSince time.Time
	// created is when the stream was made that was read; zero: none was.
	created time.Time
}

// leaderTimeout is how long a leader may be cut off from the other nodes before it knows that it leads no more, 10 s,
// and some more.
const leaderTimeout = 15 * time.Second

// idleCheck is how long a watch may be silent before it asks whether its consumer still exists.
const idleCheck = 3 * time.Second

// pullBatch is how many changes a watch asks for at once. The next batch is asked for when half of them are there, so a
// round trip of 200 ms bounds it to 10,000 a second, which is more than a server checks.
const pullBatch = 4000

// read reports changes until ctx ends or the consumer is lost.
func (w *watch) read(ctx context.Context) error {
	name := prefix + string(w.bucket)
	starting, cancel := context.WithTimeout(ctx, idleCheck)
	defer cancel()
	stream, err := w.store.js.Stream(starting, "KV_"+name)
	if err != nil {
		w.behindSince = time.Time{} // the next answer may be of another leader
		return err
	}
	cfg := jetstream.ConsumerConfig{Name: w.store.user, FilterSubject: "$KV." + name + ".>",
		AckPolicy: jetstream.AckNonePolicy, DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy, MemoryStorage: true,
		Replicas: 1, InactiveThreshold: time.Minute}
	info := stream.CachedInfo()
	if !w.created.IsZero() && !info.Created.Equal(w.created) {
		return fleet.ErrReplaced
	}
	if info.State.LastSeq >= w.last {
		w.behindSince = time.Time{}
	} else if w.behindSince.IsZero() {
		w.behindSince = time.Now()
	}
	switch {
	case w.behindSince.IsZero():
	case time.Since(w.behindSince) > leaderTimeout:
		return fleet.ErrReplaced
	default:
		return errors.New("a leader that is cut off has answered")
	}
	if w.created = info.Created; w.isCurrent {
		cfg.DeliverPolicy, cfg.OptStartSeq = jetstream.DeliverByStartSequencePolicy, w.last+1
	}
	if cfg.Name != "" { // one of an earlier watch may still be there
		err := stream.DeleteConsumer(starting, cfg.Name)
		if err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
			return err
		}
	}
	c, err := stream.CreateConsumer(starting, cfg)
	if err != nil {
		return err
	}
	defer func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = stream.DeleteConsumer(ending, c.CachedInfo().Name) // else it ends by itself
	}()
	if c.CachedInfo().NumPending == 0 {
		w.reportCurrent()
	}
	messages, err := c.Messages(jetstream.PullHeartbeat(time.Second), jetstream.PullExpiry(10*time.Second),
		jetstream.PullMaxMessages(pullBatch))
	if err != nil {
		return err
	}
	defer messages.Stop()
	stop := context.AfterFunc(ctx, messages.Stop)
	defer stop()
	for {
		m, err := messages.Next(jetstream.NextMaxWait(idleCheck))
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, nats.ErrTimeout):
			asking, cancel := context.WithTimeout(ctx, idleCheck)
			_, err = c.Info(asking)
			cancel()
			if err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		w.report(m)
	}
}

// report reports the change that a message of the stream is.
func (w *watch) report(m jetstream.Msg) {
	meta, err := m.Metadata()
	if err != nil {
		return // not of the stream
	}
	key, _ := strings.CutPrefix(m.Subject(), "$KV."+prefix+string(w.bucket)+".")
	c := fleet.Change{Record: fleet.Record{Key: key, Revision: meta.Sequence.Stream}}
	if c.IsGone = isGone(m.Headers()); !c.IsGone {
		c.Value = m.Data()
	}
	w.last = max(w.last, c.Revision)
	w.take(c)
	if meta.NumPending == 0 {
		w.reportCurrent()
	}
}

// reportCurrent reports, once, that all records that were there have been reported.
func (w *watch) reportCurrent() {
	if !w.isCurrent {
		w.isCurrent = true
		w.take(fleet.Change{IsCurrent: true})
	}
}
