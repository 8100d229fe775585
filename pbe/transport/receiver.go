package transport

import (
	"fmt"
	"time"

	"mpbond/base/span"
)

const (
	maxWindow = 16 << 20
	maxGaps   = 4096 // spans out of order that a receiver keeps
)

// receiver is the receiving side of the stream: it puts the peer's bytes in order, and
// says how far the peer may send. Offsets and windows are in bytes of the stream; times
// are those of the connection. The window begins at firstWindow and doubles for an app
// that reads fast. Memory is bounded by what was advertised. It copies what it is given,
// and is not safe for concurrent use.
type receiver struct {
	buf       ring             // from the first byte that was not read
	got       span.Set[uint64] // that arrived
	read      uint64           // end of what the app took
	window    uint64
	maxWindow uint64 // that window grows to
	maxData   uint64 // the peer may send up to here: what was advertised last
	ended     bool   // the peer's FIN is there
	end       uint64 // it says that the stream ends here

	tunedAt   time.Duration // when half a window was last read
	tunedRead uint64        // what was read then
}

func newReceiver() receiver {
	return receiver{window: firstWindow, maxWindow: maxWindow, maxData: firstWindow}
}

// readable returns how many bytes can be read now.
func (r *receiver) readable() int {
	return int(r.got.EndOf(r.read) - r.read)
}

// received returns how many bytes arrived in order.
func (r *receiver) received() uint64 { return r.read + uint64(r.readable()) }

// isFinished reports whether the app has read all up to the peer's FIN.
func (r *receiver) isFinished() bool { return r.ended && r.read == r.end }

// take copies what is readable to p and returns how much. The window grows by how fast
// the app takes, in round trips of rtt.
func (r *receiver) take(now, rtt time.Duration, p []byte) int {
	n := min(len(p), r.readable())
	if n > 0 {
		r.buf.get(r.read, p[:n])
		r.read += uint64(n)
		r.buf.base = r.read
		r.tune(now, rtt)
	}
	return n
}

// tune doubles the window of an app that empties half of it in two round trips, or that
// waits for what was lost while half of it is there already.
func (r *receiver) tune(now, rtt time.Duration) {
	if r.read-r.tunedRead > r.window/2 {
		if now-r.tunedAt < 2*max(rtt, 10*time.Millisecond) {
			r.growWindow()
		}
		r.tunedAt, r.tunedRead = now, r.read
	}
	if n := len(r.got); n > 1 && r.readable() == 0 && r.got[n-1].To > r.read+r.window/2+1 && r.got[1:].Size() > r.window/2 {
		r.growWindow()
	}
}

func (r *receiver) growWindow() { r.window = min(2*r.window, r.maxWindow) }

// limitWindow bounds the window from when the peer has used up what was advertised.
func (r *receiver) limitWindow(n uint64) {
	r.maxWindow = min(n, maxWindow)
	r.window = min(max(r.window, firstWindow), r.maxWindow)
}

// needsUpdate reports whether the peer should learn soon that there is room again.
func (r *receiver) needsUpdate() bool { return r.read+r.window >= r.maxData+r.window/2 }

// advertise returns up to where the peer may send from now on.
func (r *receiver) advertise() uint64 {
	r.maxData = max(r.maxData, r.read+r.window)
	return r.maxData
}

// isFragmented reports whether there are so many gaps that only bytes that follow those
// received in order can be kept.
func (r *receiver) isFragmented() bool { return len(r.got) >= maxGaps }

// onStream takes bytes of the stream. An error says what no peer of ours sends.
func (r *receiver) onStream(offset uint64, data []byte) error {
	end := offset + uint64(len(data))
	if end > r.maxData || r.ended && end > r.end {
		return fmt.Errorf("%w: data up to %d where %d is the end", errMalformed, end, r.maxData)
	}
	if end <= r.read || len(data) == 0 {
		return nil
	}
	if offset < r.read {
		data, offset = data[r.read-offset:], r.read
	}
	r.buf.grow(end)
	r.buf.put(offset, data)
	r.got.Add(offset, end)
	return nil
}

// onFin takes the end of the stream. An error says what no peer of ours sends.
func (r *receiver) onFin(end uint64) error {
	if n := len(r.got); n > 0 && r.got[n-1].To > end || r.ended && r.end != end || end < r.read {
		return fmt.Errorf("%w: the stream ends before what it has", errMalformed)
	}
	r.ended, r.end = true, end
	return nil
}
