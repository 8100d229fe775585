// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"fmt"
	"time"

	"mpbond/base/span"
)

const (
	maxWindow        = 16 << 20
	maxReceiveRanges = 4096 // separate ranges of bytes that a receiver keeps
)

// receiver is the receiving side of the stream. It reassembles the peer's bytes and computes the
// flow control window. Offsets and windows are in bytes of the stream, times those of the
// connection. The window begins at initialWindow and doubles for an application that reads fast.
// Memory is bounded by the advertised window. It copies its input. It is not safe for concurrent
// use.
type receiver struct {
	buf            ringBuffer       // from the first unread byte
	receivedRanges span.Set[uint64] // ranges of offsets that have arrived
	readOffset     uint64           // offset of the next byte to read
	window         uint64
	maxWindow      uint64 // limit of window
	maxData        uint64 // newest advertised limit
	finReceived    bool   // finalSize is known
	finalSize      uint64 // offset at which the stream ends

	tuneTime   time.Duration // when half a window had last been read
	tuneOffset uint64        // readOffset at that time
}

// newReceiver returns a receiver with the initial window.
func newReceiver() receiver {
	return receiver{window: initialWindow, maxWindow: maxWindow, maxData: initialWindow}
}

// unreadBytes returns how many bytes can be read now.
func (r *receiver) unreadBytes() int {
	return int(r.receivedRanges.EndOf(r.readOffset) - r.readOffset)
}

// inOrderBytes returns how many bytes have arrived in order.
func (r *receiver) inOrderBytes() uint64 { return r.readOffset + uint64(r.unreadBytes()) }

// isFinished reports whether the application has read the whole stream.
func (r *receiver) isFinished() bool { return r.finReceived && r.readOffset == r.finalSize }

// readStreamInto copies readable bytes to p and returns their number. The window grows with the
// reading speed, measured in round trips of rtt.
func (r *receiver) readStreamInto(now, rtt time.Duration, p []byte) int {
	n := min(len(p), r.unreadBytes())
	if n > 0 {
		r.buf.copyFromOffset(r.readOffset, p[:n])
		r.readOffset += uint64(n)
		r.buf.base = r.readOffset
		r.tuneWindow(now, rtt)
	}
	return n
}

// tuneWindow doubles the window if the application reads half of it within two round trips, or if
// half of it waits behind a lost packet.
func (r *receiver) tuneWindow(now, rtt time.Duration) {
	if r.readOffset-r.tuneOffset > r.window/2 {
		if now-r.tuneTime < 2*max(rtt, 10*time.Millisecond) {
			r.doubleWindow()
		}
		r.tuneTime, r.tuneOffset = now, r.readOffset
	}
	if n := len(r.receivedRanges); n > 1 && r.unreadBytes() == 0 &&
		r.receivedRanges[n-1].To > r.readOffset+r.window/2+1 && r.receivedRanges[1:].Size() > r.window/2 {
		r.doubleWindow()
	}
}

// doubleWindow doubles the window up to its limit.
func (r *receiver) doubleWindow() { r.window = min(2*r.window, r.maxWindow) }

// limitWindow limits the window. Credit already advertised stays valid.
func (r *receiver) limitWindow(n uint64) {
	r.maxWindow = min(n, maxWindow)
	r.window = min(max(r.window, initialWindow), r.maxWindow)
}

// needsWindowUpdate reports whether to advertise more credit soon.
func (r *receiver) needsWindowUpdate() bool { return r.readOffset+r.window >= r.maxData+r.window/2 }

// advertiseMaxData returns the offset up to which the peer may send, and records it.
func (r *receiver) advertiseMaxData() uint64 {
	r.maxData = max(r.maxData, r.readOffset+r.window)
	return r.maxData
}

// isFragmented reports whether there are so many gaps that only data that fills the first one can
// be accepted.
func (r *receiver) isFragmented() bool { return len(r.receivedRanges) >= maxReceiveRanges }

// onStreamData handles bytes of the stream. An error means that no valid peer sends them.
func (r *receiver) onStreamData(offset uint64, data []byte) error {
	end := offset + uint64(len(data))
	if end > r.maxData || r.finReceived && end > r.finalSize {
		return fmt.Errorf("%w: stream data up to offset %d, limit %d", errMalformed, end, r.maxData)
	}
	if end <= r.readOffset || len(data) == 0 {
		return nil
	}
	if offset < r.readOffset {
		data, offset = data[r.readOffset-offset:], r.readOffset
	}
	r.buf.growToOffset(end)
	r.buf.copyToOffset(offset, data)
	r.receivedRanges.Add(offset, end)
	return nil
}

// onFinalSize handles the final size of the stream. An error means that no valid peer sends it.
func (r *receiver) onFinalSize(end uint64) error {
	n := len(r.receivedRanges)
	if n > 0 && r.receivedRanges[n-1].To > end || r.finReceived && r.finalSize != end || end < r.readOffset {
		return fmt.Errorf("%w: final size contradicts received data", errMalformed)
	}
	r.finReceived, r.finalSize = true, end
	return nil
}
