// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/fault"
	"mpbond/control/fleet"
)

// closable notes that it was closed.
type closable struct {
	fleet.Store
	isClosed bool
}

func (c *closable) Get(context.Context, fleet.Bucket, string) (fleet.Record, error) {
	return fleet.Record{}, nil
}

func (c *closable) Close() { c.isClosed = true }

// TestLate checks that one call opens the engine, that others fail at once meanwhile, and that Close does not wait.
func TestLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		noAnswer := fault.New(fault.Unreachable, errors.New("no answer"), "wait")
		var tries int
		answer, engine := make(chan error), &closable{}
		s := fleet.Late(func(context.Context) (fleet.Store, error) {
			tries++
			if err := <-answer; err != nil {
				return nil, err
			}
			return engine, nil
		}, "an engine")
		get := func() error {
			_, err := s.Get(t.Context(), fleet.Devices, "x")
			return err
		}
		first := make(chan error)
		begin := func() {
			go func() { first <- get() }()
			synctest.Wait()
			for range 3 {
				if err := get(); !fault.Is(err, fault.Unreachable) || fault.HintOf(err) == "" {
					t.Errorf("while another call opens the engine: %v", err)
				}
			}
		}
		begin()
		answer <- noAnswer
		if err := <-first; err != noAnswer || get() != noAnswer || tries != 1 {
			t.Errorf("after %d tries: %v", tries, err)
		}
		time.Sleep(2 * time.Second)
		begin()
		answer <- nil
		if err := <-first; err != nil || get() != nil || tries != 2 {
			t.Errorf("after %d tries: %v", tries, err)
		}
		s.Close()
		if !engine.isClosed || !fault.Is(get(), fault.Unreachable) {
			t.Error("the engine is used after Close")
		}

		engine.isClosed = false
		s = fleet.Late(func(context.Context) (fleet.Store, error) { <-answer; return engine, nil }, "an engine")
		begin()
		s.Close()
		answer <- nil
		if err := <-first; !fault.Is(err, fault.Unreachable) || !engine.isClosed {
			t.Errorf("closed while it was opened: %v, closed: %v", err, engine.isClosed)
		}
	})
}
