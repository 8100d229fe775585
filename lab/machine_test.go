// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"testing"
)

// An exclusive lock excludes all others. Shared ones exclude only exclusive ones.
func TestLockMachine(t *testing.T) {
	lock := func(exclusive bool) func() {
		unlock, err := LockMachine(t.Context(), exclusive)
		if err != nil {
			t.Fatal(err)
		}
		return unlock
	}
	refused := func(exclusive bool) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if unlock, err := LockMachine(ctx, exclusive); err == nil {
			unlock()
			t.Errorf("no lock is held: exclusive %v", exclusive)
		} else if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	unlock := lock(true)
	refused(true)
	refused(false)
	unlock()
	unlock, second := lock(false), lock(false)
	refused(true)
	unlock()
	refused(true)
	second()
	lock(true)()
}

// This machine has a kernel and processors.
func TestThisMachine(t *testing.T) {
	if m := ThisMachine(); m.Name == "" || m.Kernel == "" || m.Processors < 1 {
		t.Errorf("%+v", m)
	}
}
