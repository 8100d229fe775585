// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"mpbond/base/fault"
	"mpbond/base/waittest"
	"mpbond/control/fleet"
)

// endingWatch ends the first watch of the servers with an error, as an engine does that answers with old records.
type endingWatch struct {
	fleet.Store
	ended atomic.Bool
}

func (e *endingWatch) Watch(ctx context.Context, b fleet.Bucket, take func(fleet.Change)) error {
	if b == fleet.Servers && e.ended.CompareAndSwap(false, true) {
		return fault.New(fault.Integrity, errors.New("the engine has a new bucket"), "")
	}
	return e.Store.Watch(ctx, b, take)
}

// TestRevokeWatchEnds checks that a revocation waits on for the servers when the engine ends the watch.
func TestRevokeWatchEnds(t *testing.T) {
	w := newWorld(t)
	w.must(w.RemoveServer(t.Context(), "eu2"))
	w.must(w.RemoveServer(t.Context(), "us1"))
	a := w.join("eu1", nil)
	w.awaitReady(a)
	d := device{newKey(t)}
	_, err := d.enroll(t.Context(), a, w.invite(fleet.InviteTerms{}))
	w.must(err)
	waittest.Until(t, "the server reports", func() bool { return len(a.Status().Running) == 1 })
	store := &endingWatch{Store: w.store}
	_, behind, err := fleet.NewOperator(store, w.key).Revoke(t.Context(), d.Public(), time.Minute)
	if err != nil || len(behind) != 0 || !store.ended.Load() {
		t.Errorf("behind %v: %v", behind, err)
	}
}
