// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/link/wire"
)

// TestEndDuringResume: HOP_END comes over the old connection while the other end changes to a new
// one. The kept bytes were dropped by then and cannot be sent again. So the change fails, the Link
// ends in order, and the new connection is closed.
func TestEndDuringResume(t *testing.T) {
	t.Run("of the helper", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newLinkTest(t)
			if _, err := p.primary.Write(make([]byte, 1000)); err != nil { // never read
				t.Fatal(err)
			}
			a, b := MemoryPipe()
			o, w := waitingPair(t, a, b)
			var all sync.WaitGroup
			asked := make(chan struct{})
			all.Go(func() {
				q, err := o.Wait(t.Context())
				close(asked)
				if time.Sleep(time.Second); err == nil {
					err = p.helper.AcceptResume(o, *q.Resume)
				}
				if err != nil {
					t.Error(err)
				}
			})
			all.Go(func() {
				<-asked
				if err := p.helper.CloseWrite(); err != nil {
					t.Error(err)
				}
				if _, err := p.primary.Read(make([]byte, 1)); err != io.EOF {
					t.Errorf("the primary reads: %v", err)
				}
			})
			if err := p.primary.Resume(t.Context(), w); err == nil {
				t.Error("resumed after the end")
			}
			all.Wait()
			if p.primary.HasEnded() {
				t.Error("its end is not in order")
			}
			if _, err := b.Write([]byte{0}); !errors.Is(err, net.ErrClosed) {
				t.Errorf("the new connection is left open: %v", err)
			}
			p.primary.Close()
			p.helper.Close()
			time.Sleep(time.Minute)
		})
	})
	t.Run("of the primary", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := newLinkTest(t)
			if _, err := p.helper.Write(make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
			a, b := MemoryPipe()
			o, w := waitingPair(t, a, b)
			p.helper.wmu.Lock() // like a writer
			var all sync.WaitGroup
			all.Go(func() {
				q, err := o.Wait(t.Context())
				if err == nil {
					err = p.helper.AcceptResume(o, *q.Resume)
				}
				if err == nil {
					t.Error("continued after the end")
				}
			})
			all.Go(func() {
				if err := p.primary.Resume(t.Context(), w); !errors.As(err, new(wire.Refuse)) {
					t.Errorf("resuming: %v", err)
				}
			})
			synctest.Wait() // AcceptResume has passed its checks
			if err := p.primary.CloseWrite(); err != nil {
				t.Error(err)
			}
			if _, err := p.helper.Read(make([]byte, 1)); err != io.EOF {
				t.Errorf("the helper reads: %v", err)
			}
			p.helper.wmu.Unlock()
			all.Wait()
			if p.helper.HasEnded() {
				t.Error("its end is not in order")
			}
			p.primary.Close()
			p.helper.Close()
			time.Sleep(time.Minute)
		})
	})
}
