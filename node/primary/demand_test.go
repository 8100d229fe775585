// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/backoff"
	"mpbond/link/wire"
)

// TestRest: an idle supervisor that has failed often waits long; a wanted stream ends that at once,
// and waits are short while it waits.
func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newBondHolder(t, time.Minute)
		var b backoff.Backoff
		for range 10 {
			b.Next(maxIdleBackoff, maxIdleBackoff)
		}
		took := func() time.Duration {
			began := time.Now()
			s.demand.backOffUntilWanted(t.Context(), &b)
			return time.Since(began)
		}
		if d := took(); d < maxIdleBackoff*3/4 || d > maxIdleBackoff {
			t.Errorf("idle: %v", d)
		}
		answer := make(chan error)
		go func() {
			time.Sleep(10 * time.Second)
			_, err := s.dialBondStream(t.Context(), "web:80", wire.ModeBond, nil)
			answer <- err
		}()
		if d := took(); d != 10*time.Second {
			t.Errorf("a stream wanted after 10 s ended the rest after %v", d)
		}
		for range 5 {
			if d := took(); d > maxBusyBackoff {
				t.Errorf("while a stream waits: %v", d)
			}
		}
		var r wire.Reset
		if err := <-answer; !errors.As(err, &r) || r.Code != wire.CodeTimeout {
			t.Errorf("without a subflow: %v", err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if s.demand.backOffUntilWanted(ended, &b); s.demand.backingOff+s.demand.waitingStreams != 0 {
			t.Errorf("%+v", s.demand)
		}
	})
}

// TestDemand: in a random walk, a waiter for a stream or a subflow is woken only by the next one,
// and a back-off ends with the next stream.
func TestDemand(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			d := newDemand(func() bool { return false }, nil)
			ctx, cancel := context.WithCancel(t.Context())
			var resting, retrying atomic.Int32
			for range 40 {
				switch r.IntN(5) {
				case 0:
					resting.Add(1)
					go func() {
						b := backoff.Backoff{}
						for range 20 {
							b.Next(maxIdleBackoff, maxIdleBackoff)
						}
						d.backOffUntilWanted(ctx, &b)
						resting.Add(-1)
					}()
				case 1:
					retrying.Add(1)
					go func() {
						d.awaitRetry(ctx, time.Hour, nil)
						retrying.Add(-1)
					}()
				case 2:
					end := d.beginStreamWait()
					joined := d.nextJoined()
					d.notifyJoined()
					select {
					case <-joined:
					default:
						t.Error("a subflow has joined, and the stream still waits")
					}
					end()
				case 3:
					d.notifyWanted() // not busy: they wait on
				case 4:
					d.retryRefused()
					if synctest.Wait(); retrying.Load() > 0 {
						t.Errorf("%d wait after a refusal", retrying.Load())
					}
				}
				synctest.Wait()
				if d.backingOff != int(resting.Load()) {
					t.Errorf("%d back off, of %d", d.backingOff, resting.Load())
				}
			}
			end := d.beginStreamWait()
			d.notifyWanted()
			time.Sleep(maxBusyBackoff)
			if synctest.Wait(); resting.Load() > 0 {
				t.Errorf("%d back off while a stream waits", resting.Load())
			}
			end()
			cancel()
			if synctest.Wait(); int(retrying.Load())+d.waitingStreams+d.backingOff != 0 {
				t.Errorf("%d and %+v are left", retrying.Load(), d)
			}
		})
	}
}
