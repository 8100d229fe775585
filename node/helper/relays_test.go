// SPDX-License-Identifier: Apache-2.0

package helper

import (
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"testing"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/link/pipe"
	"mpbond/link/wire"
)

// memoryHS returns an HS-path whose far end reads and sends nothing.
func memoryHS(t *testing.T) *pipe.HSPath {
	t.Helper()
	here, there := pipe.MemoryPipe()
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(io.Discard, there)
	}()
	hs, err := pipe.DialHS(t.Context(), here, "phone", wire.HopKey{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hs.Close(); there.Close(); <-read })
	return hs
}

// memoryPipe returns the helper's end of a pipe in use, whose primary sends nothing.
func memoryPipe(t *testing.T) *pipe.Link {
	t.Helper()
	here, there := pipe.MemoryPipe()
	joined := make(chan *pipe.Link, 1)
	go func() {
		defer close(joined)
		w, err := pipe.Accept(
			t.Context(),
			there,
			keys().primary.ServerConfig(wire.PipeALPN, func(identity.PublicKey) bool { return true }),
		)
		if err != nil {
			t.Error(err)
			return
		}
		l, err := w.Join(t.Context(), "x:1", pipe.DefaultResumeTimeout)
		if err != nil {
			t.Error(err)
			return
		}
		joined <- l
	}()
	o, err := pipe.NewOffer(
		t.Context(),
		here,
		keys().helper.ClientConfig(keys().primary.Public(), wire.PipeALPN),
		"phone",
	)
	if err != nil {
		t.Fatal(err)
	}
	q, err := o.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l, err := o.Accept(q, pipe.DefaultResumeTimeout, wire.RadioNone)
	if err != nil {
		t.Fatal(err)
	}
	primary := <-joined
	t.Cleanup(func() {
		l.Close()
		if primary != nil {
			primary.Close()
		}
	})
	return l
}

// idleSubflow returns a subflow that is not running.
func idleSubflow(t *testing.T, primary identity.PublicKey, link string) *subflow {
	r := &relay{pipe: memoryPipe(t), hs: memoryHS(t), done: make(chan struct{})}
	r.up.initDirection(r.pipe, r.hs, 64<<10, make(chan struct{}, 1))
	r.down.initDirection(r.hs, r.pipe, 64<<10, r.up.wake)
	return &subflow{relay: r, primary: identity.Peer{Key: primary}, link: link}
}

// TestRelayTable: after any sequence of operations the table has the added and not removed subflows
// in order, hands out no more slots than it has, and counts all bytes once.
func TestRelayTable(t *testing.T) {
	const limit = 5
	rng, table := rand.New(rand.NewPCG(1, 2)), newRelayTable(limit)
	var have []*subflow
	pending, added, bytes := 0, uint64(0), uint64(0)
	for range 400 {
		switch rng.IntN(5) {
		case 0, 1:
			err := table.reserveSlot()
			if full := len(have)+pending == limit; full != fault.Is(err, fault.Limit) {
				t.Fatalf("with %d subflows and %d reserved: %v", len(have), pending, err)
			}
			if err == nil {
				pending++
			}
		case 2:
			if pending == 0 {
				continue
			}
			pending--
			if rng.IntN(3) == 0 {
				table.releaseSlot()
				continue
			}
			s := idleSubflow(t, keys().primary.Public(), "wwan0")
			table.addRelayedSubflow(s)
			if added++; s.number != added {
				t.Fatalf("subflow %d has the number %d", added, s.number)
			}
			have = append(have, s)
		case 3:
			if len(have) > 0 {
				n := rng.Uint64N(1000)
				have[rng.IntN(len(have))].up.bytesRead.Add(n)
				bytes += n
			}
		case 4:
			if len(have) > 0 {
				i := rng.IntN(len(have))
				table.removeEndedSubflow(have[i])
				have = slices.Delete(have, i, i+1)
			}
		}
		if list, n := table.listWithBytes(); !slices.Equal(list, have) || n != bytes {
			t.Fatalf("%d subflows with %d bytes in all, want %d with %d", len(list), n, len(have), bytes)
		}
	}
}

// TestCloseAll: all subflows are closed, and one that is added later gets an order to end.
func TestCloseAll(t *testing.T) {
	table, why := newRelayTable(2), errors.New("why")
	early, late := idleSubflow(t, keys().primary.Public(), "wlan0"), idleSubflow(t, keys().primary.Public(), "wlan0")
	if ending := table.addRelayedSubflow(early); ending != nil {
		t.Errorf("a new subflow must end: %v", ending)
	}
	table.closeAllRelays(why)
	if <-early.done; early.err != why {
		t.Errorf("closed for %v", early.err)
	}
	if ending := table.addRelayedSubflow(late); ending != why {
		t.Errorf("a subflow added at the end may go on: %v", ending)
	}
}

// TestCloseWhere: the selected subflows are closed once for the reason; they stay in the table
// until they are removed.
func TestCloseWhere(t *testing.T) {
	table, why := newRelayTable(3), errors.New("why")
	for _, link := range []string{"wlan0", "wwan0", "wwan0"} {
		if err := table.reserveSlot(); err != nil {
			t.Fatal(err)
		}
		table.addRelayedSubflow(idleSubflow(t, keys().primary.Public(), link))
	}
	n := table.closeWhere(func(s *subflow) error {
		if s.link == "wwan0" {
			return why
		}
		return nil
	})
	list := table.relayedSubflows()
	if n != 2 || len(list) != 3 {
		t.Errorf("%d of %d closed", n, len(list))
	}
	for _, s := range list[1:] {
		if <-s.done; s.err != why {
			t.Errorf("closed for %v", s.err)
		}
	}
	select {
	case <-list[0].done:
		t.Error("the other one is closed too")
	default:
	}
	list[0].closeRelay(nil)
}
