// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"mpbond/base/fault"
	"mpbond/base/waittest"
	"mpbond/control/fleet"
)

// endingWatch ends the first watches of the servers with these errors.
type endingWatch struct {
	fleet.Store
	errs []error
}

func (e *endingWatch) Watch(ctx context.Context, b fleet.Bucket, take func(fleet.Change)) error {
	if b == fleet.Servers && len(e.errs) > 0 {
		err := e.errs[0]
		e.errs = e.errs[1:]
		return err
	}
	return e.Store.Watch(ctx, b, take)
}

// TestRevokeWatchEnds checks that a revocation waits on for the servers when the engine is lost or replaced, and ends
// when it cannot learn of them.
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
	revoke := func(errs ...error) ([]string, error) {
		store := &endingWatch{w.store, errs}
		_, behind, err := fleet.NewOperator(store, w.key).Revoke(t.Context(), d.Public(), time.Minute)
		if len(store.errs) > 0 {
			t.Errorf("%d watches did not end", len(store.errs))
		}
		return behind, err
	}
	cause := errors.New("the cause")
	for _, kind := range []fault.Kind{fault.Permission, fault.Integrity} {
		if _, err := revoke(fault.New(kind, cause, "")); !errors.Is(err, cause) {
			t.Errorf("%s: %v", kind, err)
		}
	}
	behind, err := revoke(fleet.ErrReplaced, fault.New(fault.Unreachable, cause, ""), fault.New(fault.Timeout, cause, ""))
	if err != nil || len(behind) != 0 {
		t.Errorf("behind %v: %v", behind, err)
	}
}
