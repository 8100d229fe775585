// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"math/rand/v2"
	"testing"
	"time"

	"mpbond/base/identity"
	"mpbond/link/pipe"
	"mpbond/link/wire"
)

// waitingPipe returns the two ends of a waiting pipe.
func waitingPipe(t *testing.T, us, helper *identity.Key) (*pipe.Waiting, *pipe.Offer) {
	t.Helper()
	a, b := pipe.MemoryPipe()
	offer := make(chan *pipe.Offer)
	go func() {
		o, err := pipe.NewOffer(t.Context(), a, helper.ClientConfig(us.Public(), wire.PipeALPN), "phone")
		if err != nil {
			t.Error(err)
		}
		offer <- o
	}()
	w, err := pipe.Accept(t.Context(), b, us.ServerConfig(wire.PipeALPN, func(identity.PublicKey) bool { return true }))
	o := <-offer
	if err != nil || o == nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close(); o.Close() })
	return w, o
}

// isOpen reports whether a pipe is open.
func isOpen(w *pipe.Waiting) bool {
	select {
	case <-w.Done():
		return false
	default:
		return true
	}
}

// TestReserve: the primary keeps a bounded number of a helper's pipes, the newest ones, without
// broken ones.
func TestReserve(t *testing.T) {
	us, key := newKey(t), newKey(t)
	h := newHelper(key.Public(), "phone", nil)
	if w, _ := waitingPipe(t, us, key); !h.admitNewPipe(w, time.Now()) {
		t.Error("the first pipe starts no supervisor")
	}
	var all []*pipe.Waiting
	var offers []*pipe.Offer
	more := func() {
		w, o := waitingPipe(t, us, key)
		all, offers = append(all, w), append(offers, o)
		if h.admitNewPipe(w, time.Now()) {
			t.Error("another pipe starts a supervisor")
		}
	}
	for range maxReserve + 3 {
		more()
	}
	for i, w := range all {
		if open := isOpen(w); open != (i >= 3) {
			t.Errorf("pipe %d is open: %v", i, open)
		}
	}
	offers[7].Close()
	<-all[7].Done()
	more()
	if len(h.reservePipes()) != maxReserve || h.reservePipes()[0] != all[3] {
		t.Errorf("a broken one leaves no room: %d are kept", len(h.reservePipes()))
	}
}

// TestKeeperOfHelper: a helper always has at most one supervisor. It gets the newest pipe, ends
// when there is none, and closes waiting pipes at the end. A random walk is compared with a list.
func TestKeeperOfHelper(t *testing.T) {
	us, key := newKey(t), newKey(t)
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 0))
		h := newHelper(key.Public(), "phone", nil)
		var reserve []*pipe.Waiting
		kept := false
		for range 15 {
			switch r.IntN(4) {
			case 0, 1:
				w, _ := waitingPipe(t, us, key)
				if h.admitNewPipe(w, time.Now()) == kept {
					t.Fatalf("kept %v, and the pipe says otherwise", kept)
				}
				if kept {
					reserve = append(reserve, w)
				}
				kept = true
			case 2:
				if !kept {
					continue
				}
				w := h.takeNextPipe(false)
				if kept = len(reserve) > 0; !kept {
					if w != nil {
						t.Fatal("a pipe out of nothing")
					}
					continue
				}
				if w != reserve[len(reserve)-1] {
					t.Fatal("it is not the newest")
				}
				reserve = reserve[:len(reserve)-1]
			case 3:
				w := h.takeNewest()
				if (w != nil) != (len(reserve) > 0) {
					t.Fatalf("%d wait, and one was taken: %v", len(reserve), w != nil)
				}
				if w != nil {
					reserve = reserve[:len(reserve)-1]
				}
			}
		}
		if h.takeNextPipe(true) != nil {
			t.Error("it goes on after the end")
		}
		for _, w := range reserve {
			if isOpen(w) {
				t.Error("a pipe that waited is open after the end")
			}
		}
	}
}

// TestBrokenReserve: a pipe that broke while it waited is not taken.
func TestBrokenReserve(t *testing.T) {
	us, key := newKey(t), newKey(t)
	h := newHelper(key.Public(), "phone", nil)
	var list []*pipe.Waiting
	for range 3 {
		w, _ := waitingPipe(t, us, key)
		h.admitNewPipe(w, time.Now())
		list = append(list, w)
	}
	list[2].Close()
	<-list[2].Done()
	if w := h.takeNextPipe(false); w != list[1] {
		t.Error("the newest pipe that works is not taken")
	}
	if w := h.takeNewest(); w != nil {
		t.Error("a broken pipe is taken")
	}
}

// TestRevokedHelper: waiting pipes are closed, and the supervisor ends.
func TestRevokedHelper(t *testing.T) {
	us, key := newKey(t), newKey(t)
	h := newHelper(key.Public(), "phone", nil)
	first, _ := waitingPipe(t, us, key)
	second, _ := waitingPipe(t, us, key)
	h.admitNewPipe(first, time.Now())
	h.setJoiningPipe(first)
	if n := len(h.unusedPipes()); n != 1 || len(h.allWaitingPipes()) != 0 {
		t.Errorf("%d pipes while a subflow joins", n)
	}
	h.setJoiningPipe(nil)
	h.setHeldPipe(first)
	h.admitNewPipe(second, time.Now())
	if n := len(h.allWaitingPipes()); n != 2 || len(h.unusedPipes()) != 2 || len(h.reservePipes()) != 1 {
		t.Errorf("%d wait", n)
	}
	h.revoke()
	if !h.isRevoked() || isOpen(second) || !isOpen(first) || h.takeNextPipe(false) != nil {
		t.Error("it is not revoked, or its supervisor's pipe was closed by another")
	}
}

func newKey(t *testing.T) *identity.Key {
	t.Helper()
	key, err := identity.Generate()
	if err != nil {
		t.Fatal(err)
	}
	return key
}
