// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"io"
	"testing"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// TestFacts checks that a helper's facts arrive on a waiting pipe and during a subflow, before and
// after a callback is set, and that hints of later versions are skipped.
func TestFacts(t *testing.T) {
	runOnEach(t, func(t *testing.T, c Carrier, addr string) {
		a, b := connectPair(t, c, addr)
		o, w := waitingPair(t, a, b)
		percent := func(n float64) wire.Facts { return wire.Facts{Battery: unit.Percent(n)} }
		came := make(chan wire.Facts, 8)
		next := func(want wire.Facts) {
			t.Helper()
			if got := <-came; got != want {
				t.Fatalf("%+v came, not %+v", got, want)
			}
		}
		w.OnFacts(func(f wire.Facts) { came <- f })
		for n := range 3 {
			if err := o.SendFacts(percent(float64(n))); err != nil {
				t.Fatal(err)
			}
			next(percent(float64(n)))
			if _, err := o.tls.Write(wire.AppendHeader(nil, 0xfe, 0)); err != nil {
				t.Fatal(err)
			}
		}
		w.OnFacts(func(f wire.Facts) { came <- f })
		next(percent(2)) // sent before

		ends := make(chan *Link, 1)
		go func() {
			defer close(ends)
			q, err := o.Wait(t.Context())
			if err != nil {
				t.Error(err)
				return
			}
			l, err := o.Accept(q, q.ResumeTimeout, wire.RadioNone)
			if err != nil {
				t.Error(err)
				return
			}
			ends <- l
		}()
		p, err := w.Join(t.Context(), "192.0.2.1:7600", DefaultResumeTimeout)
		if err != nil {
			t.Fatal(err)
		}
		h := <-ends
		if h == nil {
			t.FailNow()
		}
		p.OnFacts(func(f wire.Facts) { came <- f })
		if err := h.SendFacts(percent(50)); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(p, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		next(percent(50))
		p.Close()
		h.Close()

		a, b = connectPair(t, c, addr)
		o, w = waitingPair(t, a, b)
		if _, err := o.tls.Write(wire.AppendHeader(nil, wire.TypeFacts, 0)); err != nil {
			t.Fatal(err)
		}
		<-w.Done()
		if w.Err() == nil {
			t.Error("no reason is given for the end of a pipe with a FACTS of nothing")
		}
	})
}
