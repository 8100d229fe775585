// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestCountsBeforeWriting checks that bytes that a reader has received are counted in the status.
func TestCountsBeforeWriting(t *testing.T) {
	var carried atomic.Uint64
	n, err := writeAndCount(writerFunc(func(p []byte) (int, error) {
		if got := carried.Load(); got != uint64(len(p)) {
			t.Errorf("while %d bytes are written, %d are counted", len(p), got)
		}
		return 2, io.ErrClosedPipe
	}), &carried, []byte("hello"))
	if n != 2 || err != io.ErrClosedPipe || carried.Load() != 2 {
		t.Errorf("%d, %v; %d are counted", n, err, carried.Load())
	}
}

// TestMetered checks that a helper counts as metered until it reports otherwise.
func TestMetered(t *testing.T) {
	site := httptest.NewServer(http.NotFoundHandler())
	defer site.Close()
	for _, unmetered := range []bool{false, true} {
		w := newWorld(t, func(r *Relay) { r.cfg.Unmetered = unmetered })
		d := w.dialer(keys().laptop)
		if !d.Metered() {
			t.Error("not metered before the first response")
		}
		c, err := d.DialContext(t.Context(), "tcp", site.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		if d.Metered() == unmetered {
			t.Errorf("metered: %v, unmetered at the helper: %v", d.Metered(), unmetered)
		}
	}
}
