// SPDX-License-Identifier: Apache-2.0

package natsstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/control/fleet"
)

// Each bucket may take so many bytes at each node. So whoever may write one can fill neither the disks nor another
// bucket. The sum, 2.1 GB, must be free of JetStream's max_file_store when the fleet is made.
const (
	devicesRoom = 768 << 20 // 250,000 devices of 2 KB, and a half more
	usageRoom   = 640 << 20 // four counts of 0.4 KB for each of them, and a half more
	codesRoom   = 256 << 20 // 100,000 codes of 1.5 KB, and a half more
	eventsRoom  = 256 << 20 // the oldest events make room for new ones
	permitsRoom = 64 << 20  // also for loads
	otherRoom   = 16 << 20
)

// roomOf returns how many bytes a bucket may take when it is made.
func (s *Store) roomOf(b fleet.Bucket) int64 {
	switch {
	case s.room > 0:
		return s.room
	case b == fleet.Devices:
		return devicesRoom
	case b == fleet.UsageCounts:
		return usageRoom
	case b == fleet.Codes:
		return codesRoom
	case b == fleet.Permits || b == fleet.Loads:
		return permitsRoom
	}
	return otherRoom
}

// reserveOf returns how much room the operator makes in a full bucket at a time.
func (s *Store) reserveOf(b fleet.Bucket) int64 { return s.roomOf(b) / 16 }

// isOperators reports whether a bucket is one that the operator must be able to write while a stolen server fills it:
// to revoke devices, to change the list of servers, to drain servers.
func isOperators(b fleet.Bucket) bool { return b == fleet.Devices || b == fleet.Orders }

// raiseBound raises the bound of a full bucket that uses some bytes, up to twice its first bound: a thief that goes on
// writing shall not take all of max_file_store. It lowers no bound, and sets none.
func (s *Store) raiseBound(b fleet.Bucket, bound, used int64) int64 {
	if bound <= 0 {
		return bound
	}
	return max(bound, min(used+s.reserveOf(b), 2*s.roomOf(b)))
}

// MakeRoom implements fleet.Store. It gives the buckets and the events of a fleet that an older version made their
// bounds and lives, and raises the bounds of those that the operator writes.
func (s *Store) MakeRoom(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	if err := s.makeRoom(ctx); err != nil {
		err = s.explain(err)
		s.log.Warn("the engine's buckets are not bounded as they should be", "err", err, "hint", fault.HintOf(err))
		s.denied.Store(nil) // what follows may be allowed
	}
}

func (s *Store) makeRoom(ctx context.Context) error {
	var g errgroup.Group // all at once: the engine may be far away
	for _, b := range fleet.Buckets() {
		g.Go(func() error {
			err := s.editStream(ctx, "KV_"+prefix+string(b), func(cfg *jetstream.StreamConfig, used int64) {
				cfg.MaxAge = fleet.RecordLife(b)
				switch {
				case cfg.MaxBytes <= 0:
					cfg.MaxBytes = max(s.roomOf(b), used+s.reserveOf(b))
				case isOperators(b):
					cfg.MaxBytes = s.raiseBound(b, cfg.MaxBytes, used)
				}
			})
			if err != nil {
				return fmt.Errorf("bucket %s: %w", b, err)
			}
			return nil
		})
	}
	g.Go(func() error {
		return s.editStream(ctx, eventStream, func(cfg *jetstream.StreamConfig, _ int64) {
			if cfg.MaxBytes <= 0 {
				cfg.MaxBytes = eventsRoom
			}
		})
	})
	return g.Wait()
}

// maxRaises bounds how often one write makes room: as often as a bound can be raised.
const maxRaises = 16

// writeInRoom calls write. If the bucket is full, and the operator's, it makes room and calls write again: a thief may
// have filled what was free.
func (s *Store) writeInRoom(ctx context.Context, b fleet.Bucket, write func() error) error {
	err := write()
	if s.user != "" || !isOperators(b) {
		return err
	}
	for i := 0; i < maxRaises && isFull(err); i++ {
		var isRaised bool
		raising := s.editStream(ctx, "KV_"+prefix+string(b), func(cfg *jetstream.StreamConfig, used int64) {
			bound := s.raiseBound(b, cfg.MaxBytes, used)
			isRaised, cfg.MaxBytes = bound > cfg.MaxBytes, bound
		})
		if raising != nil {
			s.log.Debug("the engine makes no room", "bucket", b, "err", raising)
			return err
		}
		if err = write(); !isRaised {
			return err
		}
	}
	return err
}

// editStream changes the bound and the life of a stream that uses some bytes, if edit does.
func (s *Store) editStream(ctx context.Context, name string, edit func(cfg *jetstream.StreamConfig, used int64)) error {
	return s.ask(ctx, func(ctx context.Context) error {
		stream, err := s.js.Stream(ctx, name)
		if err != nil {
			return err
		}
		info := stream.CachedInfo()
		cfg := info.Config
		edit(&cfg, int64(info.State.Bytes))
		if cfg.MaxBytes == info.Config.MaxBytes && cfg.MaxAge == info.Config.MaxAge {
			return nil
		}
		_, err = s.js.UpdateStream(ctx, cfg)
		return err
	})
}

// CheckRoom implements fleet.Store. A bucket is nearly full when an eighth of its first bound is left.
func (s *Store) CheckRoom(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	list := fleet.Buckets()
	full := make([]string, len(list))
	var g errgroup.Group // all at once: the engine may be far away
	for i, b := range list {
		g.Go(func() (err error) {
			full[i], err = s.describeFull(ctx, b)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return s.explain(err)
	}
	full = slices.DeleteFunc(full, func(text string) bool { return text == "" })
	if len(full) == 0 {
		return nil
	}
	return fault.New(fault.Limit, fmt.Errorf("nearly full on the engine: %s", strings.Join(full, ", ")),
		"a fleet that has grown needs more: `nats stream edit NAME --max-bytes SIZE`; if it has not grown, a server may be "+
			"stolen: docs/howto/fleet.md")
}

// describeFull describes a bucket that is nearly full, else it returns "".
func (s *Store) describeFull(ctx context.Context, b fleet.Bucket) (text string, err error) {
	err = s.ask(ctx, func(ctx context.Context) error {
		stream, err := s.js.Stream(ctx, "KV_"+prefix+string(b))
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil // of a fleet that an older version made
		}
		if err != nil {
			return err
		}
		info := stream.CachedInfo()
		used, bound := int64(info.State.Bytes), info.Config.MaxBytes
		if bound > 0 && bound-used <= 2*s.reserveOf(b) { // an older version made buckets without a bound
			text = fmt.Sprintf("%s (%v of %v)", info.Config.Name, unit.Bytes(used), unit.Bytes(bound))
		}
		return nil
	})
	return text, err
}
