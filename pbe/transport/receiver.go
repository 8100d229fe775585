package transport

import (
	"fmt"
	"time"

	"mpbond/base/span"
)

const (
	maxWindow        = 16 << 20
	maxReceiveRanges = 4096 // spans out of order that a receiver keeps
)

// receiver is the receiving side of the stream: it puts the peer's bytes in order, and
// says how far the peer may send. Offsets and windows are in bytes of the stream; times
// are those of the connection. The window begins at initialWindow and doubles for an app
// that reads fast. Memory is bounded by what was advertised. It copies what it is given,
// and is not safe for concurrent use.
type receiver struct {
	buf            ringBuffer       // from the first byte that was not read
	receivedRanges span.Set[uint64] // that arrived
	readOffset     uint64           // end of what the app took
	window         uint64
	maxWindow      uint64 // that window grows to
	maxData        uint64 // the peer may send up to here: what was advertised last
	finReceived    bool   // the peer's FIN is there
	finalSize      uint64 // it says that the stream ends here

	tuneTime   time.Duration // when half a window was last read
	tuneOffset uint64        // what was read then
}

func newReceiver() receiver {
	return receiver{window: initialWindow, maxWindow: maxWindow, maxData: initialWindow}
}

// readableBytes returns how many bytes can be read now.
func (r *receiver) readableBytes() int {
	return int(r.receivedRanges.EndOf(r.readOffset) - r.readOffset)
}

// receivedBytes returns how many bytes arrived in order.
func (r *receiver) receivedBytes() uint64 { return r.readOffset + uint64(r.readableBytes()) }

// isFinished reports whether the app has read all up to the peer's FIN.
func (r *receiver) isFinished() bool { return r.finReceived && r.readOffset == r.finalSize }

// readInto copies what is readable to p and returns how much. The window grows by how fast
// the app takes, in round trips of rtt.
func (r *receiver) readInto(now, rtt time.Duration, p []byte) int {
	n := min(len(p), r.readableBytes())
	if n > 0 {
		r.buf.copyOut(r.readOffset, p[:n])
		r.readOffset += uint64(n)
		r.buf.base = r.readOffset
		r.tuneWindow(now, rtt)
	}
	return n
}

// tuneWindow doubles the window of an app that empties half of it in two round trips, or that
// waits for what was lost while half of it is there already.
func (r *receiver) tuneWindow(now, rtt time.Duration) {
	if r.readOffset-r.tuneOffset > r.window/2 {
		if now-r.tuneTime < 2*max(rtt, 10*time.Millisecond) {
			r.growWindow()
		}
		r.tuneTime, r.tuneOffset = now, r.readOffset
	}
	if n := len(r.receivedRanges); n > 1 && r.readableBytes() == 0 && r.receivedRanges[n-1].To > r.readOffset+r.window/2+1 && r.receivedRanges[1:].Size() > r.window/2 {
		r.growWindow()
	}
}

func (r *receiver) growWindow() { r.window = min(2*r.window, r.maxWindow) }

// limitWindow bounds the window from when the peer has used up what was advertised.
func (r *receiver) limitWindow(n uint64) {
	r.maxWindow = min(n, maxWindow)
	r.window = min(max(r.window, initialWindow), r.maxWindow)
}

// needsWindowUpdate reports whether the peer should learn soon that there is room again.
func (r *receiver) needsWindowUpdate() bool { return r.readOffset+r.window >= r.maxData+r.window/2 }

// advertiseMaxData returns up to where the peer may send from now on.
func (r *receiver) advertiseMaxData() uint64 {
	r.maxData = max(r.maxData, r.readOffset+r.window)
	return r.maxData
}

// isFragmented reports whether there are so many gaps that only bytes that follow those
// received in order can be kept.
func (r *receiver) isFragmented() bool { return len(r.receivedRanges) >= maxReceiveRanges }

// onStream takes bytes of the stream. An error says what no peer of ours sends.
func (r *receiver) onStream(offset uint64, data []byte) error {
	end := offset + uint64(len(data))
	if end > r.maxData || r.finReceived && end > r.finalSize {
		return fmt.Errorf("%w: data up to %d where %d is the end", errMalformed, end, r.maxData)
	}
	if end <= r.readOffset || len(data) == 0 {
		return nil
	}
	if offset < r.readOffset {
		data, offset = data[r.readOffset-offset:], r.readOffset
	}
	r.buf.grow(end)
	r.buf.copyIn(offset, data)
	r.receivedRanges.Add(offset, end)
	return nil
}

// onFin takes the end of the stream. An error says what no peer of ours sends.
func (r *receiver) onFin(end uint64) error {
	if n := len(r.receivedRanges); n > 0 && r.receivedRanges[n-1].To > end || r.finReceived && r.finalSize != end || end < r.readOffset {
		return fmt.Errorf("%w: the stream ends before what it has", errMalformed)
	}
	r.finReceived, r.finalSize = true, end
	return nil
}
