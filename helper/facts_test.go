package helper

import (
	"io"
	"testing"
	"time"

	"mpbond/device/facts"
	"mpbond/pipe"
	"mpbond/unit"
	"mpbond/wire"
)

// TestFactsAreTold: on a pipe that waits and on one that carries a subflow, what
// was known before and what changes; nothing that has not changed.
func TestFactsAreTold(t *testing.T) {
	w := newWorld(t, overTCP, "127.0.0.1:0", Config{HSInterface: "lo"})
	knows := func(n float64) {
		w.h.FactsChanged(facts.Facts{Battery: unit.Percent(n), Links: map[string]facts.Link{"lo": {Metered: wire.MeteredYes}}})
	}
	want := func(n float64) wire.Facts {
		return wire.Facts{Battery: unit.Percent(n), Link: "lo", Metered: wire.MeteredYes}
	}
	type told interface{ OnFacts(func(wire.Facts)) }
	listen := func(p told) <-chan wire.Facts {
		c := make(chan wire.Facts, 16)
		p.OnFacts(func(f wire.Facts) { c <- f })
		return c
	}
	expect := func(c <-chan wire.Facts, f wire.Facts) {
		t.Helper()
		select {
		case got := <-c:
			if got != f {
				t.Fatalf("%+v is told, not %+v", got, f)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("%+v is not told", f)
		}
	}
	first := w.waiting()
	toFirst := listen(first)
	knows(80)
	expect(toFirst, want(80))
	knows(80)
	knows(79)
	expect(toFirst, want(79))

	joined := make(chan *pipe.Link)
	go func() {
		l, err := first.Join(t.Context(), w.server, pipe.DefaultWindow)
		if err != nil {
			t.Error(err)
		}
		joined <- l
	}()
	conn, err := w.sl.Accept()
	if err != nil {
		t.Fatal(err)
	}
	server, _, err := pipe.AcceptHS(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	link := <-joined
	if link == nil {
		t.FailNow()
	}
	defer link.Close()
	toLink := listen(link)
	go func() { _, _ = io.Copy(io.Discard, link) }()
	toSecond := listen(w.waiting())
	expect(toSecond, want(79)) // known before
	knows(20)
	expect(toSecond, want(20))
	for told := range toLink { // before that maybe what was known when it was made
		if told == want(20) {
			break
		}
		if told != want(79) {
			t.Fatalf("%+v is told", told)
		}
	}
	if got := w.h.Facts(); got != want(20) {
		t.Errorf("%+v", got)
	}
}
