package primary

import (
	"testing"

	"mpbond/base/identity"
	"mpbond/link/pipe"
	"mpbond/link/wire"
)

// TestReserve: of the pipes that a helper makes the primary keeps so many, the
// newest, and of these no broken ones.
func TestReserve(t *testing.T) {
	us, helper := newKey(t), newKey(t)
	s := &helperSlot{fresh: make(chan struct{}, 1)}
	var all []*pipe.Waiting
	var offers []*pipe.Offer
	more := func() {
		a, b := pipe.MemoryPipe()
		offer := make(chan *pipe.Offer)
		go func() {
			o, err := pipe.NewOffer(t.Context(), a, helper.Client(us.Public(), wire.PipeALPN), "phone")
			if err != nil {
				t.Error(err)
			}
			offer <- o
		}()
		w, err := pipe.Accept(t.Context(), b, us.Server(wire.PipeALPN, func(identity.PublicKey) bool { return true }))
		o := <-offer
		if err != nil || o == nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { w.Close(); o.Close() })
		all, offers = append(all, w), append(offers, o)
		s.addReserve(w)
	}
	for range maxReserve + 3 {
		more()
	}
	for i, w := range all {
		open := true
		select {
		case <-w.Done():
			open = false
		default:
		}
		if open != (i >= 3) {
			t.Errorf("pipe %d is open: %v", i, open)
		}
	}
	offers[7].Close()
	<-all[7].Done()
	more()
	if len(s.reserve) != maxReserve || s.reserve[0] != all[3] {
		t.Errorf("a broken one leaves no room: %d are kept", len(s.reserve))
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
