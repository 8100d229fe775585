// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/identity"
	"mpbond/core/bond"
	"mpbond/link/subflow"
	"mpbond/link/wire"
	"mpbond/node/endpoint"
)

// tableOf returns a table with a limit of bonds per device, and a function that begins bonds;
// retired ones are closed and appended to retired.
func tableOf(
	t *testing.T,
	limit int,
	checkTrust func(identity.PublicKey) error,
	retired *[]*session,
) (*sessionTable, func(bondKey) func(string) *session) {
	trust, err := identity.OpenTrust(filepath.Join(t.TempDir(), "trust.toml"))
	if err != nil {
		t.Fatal(err)
	}
	accounts := newAccountTable(endpoint.NewMemory(0), 0)
	table := &sessionTable{
		maxBonds:   limit,
		trust:      trust,
		log:        slog.New(slog.DiscardHandler),
		logFor:     newCallerLog(trust, slog.New(slog.DiscardHandler)).forDevice,
		checkTrust: checkTrust,
		admit:      func() error { return nil },
		checkRoom:  func(bool) error { return nil },
		bonds:      map[bondKey]*session{},
		retire: func(b *session, _ wire.Refuse) {
			*retired = append(*retired, b)
			b.endpoint.Close(context.Background())
		},
	}
	return table, func(key bondKey) func(string) *session {
		return func(id string) *session {
			b := &session{key: key, id: id, account: accounts.accountOfDevice(key.device)}
			b.endpoint = endpoint.New(endpoint.Config{Bond: bond.Config{}, Share: b.account.memory})
			return b
		}
	}
}

// TestSessionTable: in any order of events, a bond belongs to one device, has a unique name and
// stays the same until it ends. A device has no more bonds than its limit, and its longest idle one
// makes room. Devices that are not trusted have none.
func TestSessionTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 3
		rng, unknown := rand.New(rand.NewPCG(7, 8)), map[identity.PublicKey]bool{}
		var retired []*session
		table, begin := tableOf(t, limit, func(k identity.PublicKey) error {
			if unknown[k] {
				return wire.Refuse{Code: wire.CodeUnknown, Text: textNotTrusted}
			}
			return nil
		}, &retired)
		var have []*session // oldest first
		forget := func(gone func(*session) bool) { have = slices.DeleteFunc(have, gone) }
		for range 500 {
			time.Sleep(subflow.HandshakeTimeout) // the bonds are no longer joining
			key := bondKey{identity.PublicKey{byte(rng.IntN(3))}, wire.BondID{byte(rng.IntN(6))}}
			retired = nil
			switch rng.IntN(8) {
			case 0:
				if len(have) > 0 {
					b := have[rng.IntN(len(have))]
					table.removeSession(b)
					b.endpoint.Close(t.Context())
					forget(func(o *session) bool { return o == b })
				}
			case 1:
				unknown[key.device] = !unknown[key.device]
				table.retireUntrusted()
				forget(func(o *session) bool { return unknown[o.key.device] })
			case 2:
				if b, err := table.findOrCreateBond(key, 5, nil); err == nil && b != nil && !slices.Contains(have, b) {
					t.Fatal("a bond that the device believes in was made")
				}
			default:
				i := slices.IndexFunc(have, func(o *session) bool { return o.key == key })
				b, err := table.findOrCreateBond(key, 0, begin(key))
				switch {
				case unknown[key.device]:
					if !errors.As(err, new(wire.Refuse)) {
						t.Fatalf("an unknown joined: %v", err)
					}
				case err != nil:
					t.Fatal(err)
				case i >= 0 && have[i] != b:
					t.Fatal("it is another bond")
				case i < 0:
					oldest := slices.IndexFunc(have, func(o *session) bool { return o.key.device == key.device })
					if len(retired) > 0 && (len(retired) > 1 || retired[0] != have[oldest]) {
						t.Fatal("another one than the oldest made room")
					}
					forget(func(o *session) bool { return slices.Contains(retired, o) })
					have = append(have, b)
				}
			}
			names, of := map[string]bool{}, map[identity.PublicKey]int{}
			list := table.listSessions()
			for _, b := range list {
				names[b.id] = true
				of[b.key.device]++
				if found, err := table.findSessionByID(b.id); err != nil || found != b || of[b.key.device] > limit ||
					!slices.Contains(have, b) {
					t.Fatalf("bond %s: %v, one of %d of its device", b.id, err, of[b.key.device])
				}
			}
			if len(list) != len(have) || len(names) != len(list) {
				t.Fatalf("%d bonds by %d names, want %d", len(list), len(names), len(have))
			}
		}
		for _, b := range table.closeTable() {
			b.endpoint.Close(t.Context())
		}
		retired = nil
		if _, err := table.findOrCreateBond(bondKey{}, 0, nil); !errors.Is(err, errShutdown) {
			t.Errorf("joined when closed: %v", err)
		}
		clear(unknown)
		unknown[identity.PublicKey{0}], unknown[identity.PublicKey{1}], unknown[identity.PublicKey{2}] = true, true, true
		if table.retireUntrusted(); len(retired) > 0 {
			t.Error("a bond was retired after the end")
		}
	})
}

// TestRestartAtFullServer: where there is no room, the lost bond of a device makes room for its next one. A bond that
// is still joining does not, and none ends for nothing at a server that drains.
func TestRestartAtFullServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var retired []*session
		table, begin := tableOf(t, 9, func(identity.PublicKey) error { return nil }, &retired)
		keyOf := func(bond byte) bondKey { return bondKey{identity.PublicKey{1}, wire.BondID{bond}} }
		first, err := table.findOrCreateBond(keyOf(1), 0, begin(keyOf(1)))
		if err != nil {
			t.Fatal(err)
		}
		table.checkRoom = func(bool) error { return errFull("memory") }
		if _, err := table.findOrCreateBond(keyOf(2), 0, begin(keyOf(2))); !errors.Is(err, errFull("memory")) {
			t.Errorf("beside a bond that joins: %v", err)
		}
		time.Sleep(subflow.HandshakeTimeout)
		table.admit = func() error { return errDraining }
		_, err = table.findOrCreateBond(keyOf(2), 0, begin(keyOf(2)))
		if !errors.Is(err, errDraining) || len(retired) > 0 {
			t.Errorf("where the server drains: %v, %d bonds ended", err, len(retired))
		}
		table.admit = func() error { return nil }
		next, err := table.findOrCreateBond(keyOf(2), 0, begin(keyOf(2)))
		if err != nil || len(retired) != 1 || retired[0] != first {
			t.Fatalf("after a restart: %v, %d bonds ended", err, len(retired))
		}
		next.endpoint.Close(t.Context())
		other := bondKey{identity.PublicKey{2}, wire.BondID{1}}
		if _, err := table.findOrCreateBond(other, 0, begin(other)); !errors.Is(err, errFull("memory")) {
			t.Errorf("another device: %v", err)
		}
	})
}

// TestUnusedBonds: a bond is unused when its device has been away for long.
func TestUnusedBonds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var retired []*session
		table, begin := tableOf(t, 9, func(identity.PublicKey) error { return nil }, &retired)
		for id := range byte(2) {
			key := bondKey{identity.PublicKey{1}, wire.BondID{id}}
			b, err := table.findOrCreateBond(key, 0, begin(key))
			if err != nil {
				t.Fatal(err)
			}
			defer b.endpoint.Close(context.Background())
			if n := len(table.listUnused()); n != 0 {
				t.Errorf("%d are unused at once", n)
			}
			time.Sleep(bondLifetime / 2)
		}
		if n := len(table.listUnused()); n != 0 {
			t.Errorf("%d are unused after %v", n, bondLifetime)
		}
		time.Sleep(time.Second)
		if list := table.listUnused(); len(list) != 1 || list[0].key.id != (wire.BondID{0}) {
			t.Errorf("%d are unused", len(list))
		}
	})
}
