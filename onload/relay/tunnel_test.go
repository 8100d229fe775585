package relay

import (
	"io"
	"sync/atomic"
	"testing"
)

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestCountsBeforeWriting: whoever has read bytes of a tunnel finds them in its status.
func TestCountsBeforeWriting(t *testing.T) {
	var carried atomic.Uint64
	n, err := writeCounted(writerFunc(func(p []byte) (int, error) {
		if got := carried.Load(); got != uint64(len(p)) {
			t.Errorf("while %d bytes are written, %d are counted", len(p), got)
		}
		return 2, io.ErrClosedPipe
	}), &carried, []byte("hello"))
	if n != 2 || err != io.ErrClosedPipe || carried.Load() != 2 {
		t.Errorf("%d, %v; %d are counted", n, err, carried.Load())
	}
}
