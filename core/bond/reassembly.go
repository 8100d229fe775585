// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"fmt"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// reassembly orders the received bytes of a stream, from their frames until the app has consumed
// them. Bytes before readOffset are consumed, bytes before nextExpected are readable, and arrived
// holds those beyond a gap. It grants the far end a window: no byte may lie beyond limit, nor
// beyond finalSize once a FIN has arrived. It takes memory for pages and bitmaps as bytes arrive.
// Returned slices stay valid until they are consumed. Not safe for concurrent use.
type reassembly struct {
	pages        pages
	memory       *memoryBudget
	readOffset   wire.DataSeq
	nextExpected wire.DataSeq
	arrived      arrivedSet
	bitmapBytes  unit.Bytes // memory taken for arrived

	limit          wire.DataSeq // window granted to the far end
	window         unit.Bytes   // size of the window beyond readOffset
	finalSize      wire.DataSeq // valid if finalSizeKnown
	finalSizeKnown bool         // a FIN has arrived
}

// readableBytes returns how many bytes can be read now.
func (r *reassembly) readableBytes() int { return int(r.nextExpected - r.readOffset) }

// isFullyConsumed reports whether all bytes that the far end sent have been consumed.
func (r *reassembly) isFullyConsumed() bool { return r.finalSizeKnown && r.readOffset == r.finalSize }

// expectsMore reports whether the far end may have bytes beyond its window.
func (r *reassembly) expectsMore() bool { return !r.finalSizeKnown || r.limit < r.finalSize }

// eachReadable calls f with at most n readable bytes, in order.
func (r *reassembly) eachReadable(n int, f func([]byte)) {
	r.pages.eachPageSlice(r.readOffset, r.readOffset+wire.DataSeq(min(n, r.readableBytes())), f)
}

// checkLimit returns an error if the far end must not send bytes up to end.
func (r *reassembly) checkLimit(end wire.DataSeq) error {
	if end > r.limit || r.finalSizeKnown && end > r.finalSize {
		return fmt.Errorf("bytes up to %d exceed the window, which ends at %d: %w", end, r.limit, wire.ErrMalformed)
	}
	return nil
}

// insertBytes takes bytes at a position that checkLimit has permitted. It returns how many were
// new, and which bytes became readable. If ok is false there was no memory: it took nothing, and
// the stream must be reset.
func (r *reassembly) insertBytes(at wire.DataSeq, b []byte) (added int, delivered seqSpan, ok bool) {
	end := at + wire.DataSeq(len(b))
	from, to := max(at, r.nextExpected), max(end, r.nextExpected)
	if r.pages.reservePages(from, to) < to {
		return 0, seqSpan{}, false
	}
	// Write only missing bytes: readable ones may be in use by a reader.
	r.arrived.eachMissing(from, to, func(from, to wire.DataSeq) {
		r.pages.writeBytesAt(from, b[from-at:to-at])
		added += int(to - from)
	})
	if from > r.nextExpected {
		r.arrived.markArrived(from, to)
	} else if from < to {
		next := r.arrived.findPosition(false, to, max(to, r.arrived.end))
		r.arrived.removeArrived(from, next, uint64(added))
		delivered = seqSpan{From: from, To: next}
		r.nextExpected = next
	}
	return added, delivered, true
}

// chargeBitmaps takes or releases memory for the bitmaps of arrived. If it returns false there was
// no memory, and the stream must be reset.
func (r *reassembly) chargeBitmaps() bool {
	cost := unit.Bytes(r.arrived.bitmaps) * bitmapCost
	switch held := r.bitmapBytes; {
	case cost < held:
		r.memory.returnToBudget(held - cost)
	case cost > held && !r.memory.takeFromBudget(cost-held):
		return false
	}
	r.bitmapBytes = cost
	return true
}

// setFinalSize takes the final size of the stream. A second FIN is ignored.
func (r *reassembly) setFinalSize(size wire.DataSeq) error {
	if r.finalSizeKnown {
		return nil
	}
	if size < r.nextExpected || size < r.arrived.end {
		return fmt.Errorf("its end at %d precedes received bytes: %w", size, wire.ErrMalformed)
	}
	r.finalSizeKnown, r.finalSize = true, size
	return nil
}

// consumeBytes releases n readable bytes.
func (r *reassembly) consumeBytes(n int) {
	r.readOffset += wire.DataSeq(n)
	if r.readableBytes() == 0 && r.arrived.count == 0 {
		r.pages.restartPagesAt(r.readOffset)
	} else {
		r.pages.freePagesBefore(r.readOffset)
	}
}

// isWindowDue reports whether a quarter of the window was consumed and the far end may need more.
func (r *reassembly) isWindowDue() bool {
	return r.expectsMore() && unit.Bytes(r.limit-r.readOffset) <= r.window*3/4
}

// nearsWindowEnd reports whether bytes beyond a gap reach the second quarter of the window, and the
// app has read all before the gap. Then fast subflows may soon reach the end of the window and stop,
// because a slow one has not delivered yet: in slow start what lies beyond the gap doubles in a round
// trip, and again until the far end knows the new limit. An app that has read nothing so far may
// never read: its window does not grow.
func (r *reassembly) nearsWindowEnd() bool {
	return r.expectsMore() && r.readOffset > 0 && r.readableBytes() == 0 && r.arrived.count > 0 &&
		unit.Bytes(r.arrived.end-r.nextExpected) >= r.window/4
}

// nextWindow returns the next size of the window. It doubles up to share, or shrinks towards share
// as bytes are consumed, since a granted window cannot be revoked.
func (r *reassembly) nextWindow(share unit.Bytes) unit.Bytes {
	share = min(maxWindow, share)
	if r.window > share {
		share = max(share, unit.Bytes(r.limit-r.readOffset))
	}
	return min(2*r.window, share)
}

// setWindowSize sets the size of the window and reports whether that raised the limit.
func (r *reassembly) setWindowSize(window unit.Bytes) bool {
	r.window = window
	limit := r.readOffset + wire.DataSeq(window)
	if limit <= r.limit {
		return false
	}
	r.limit = limit
	return true
}

// dropArrived clears arrived.
func (r *reassembly) dropArrived() {
	r.arrived = arrivedSet{}
	r.chargeBitmaps()
}

// dropBuffers frees all pages and bitmaps.
func (r *reassembly) dropBuffers() {
	r.pages.freeAllPages()
	r.dropArrived()
}

// abandonBuffers is dropBuffers for a stream whose pages a reader may still use. No byte is
// readable any more.
func (r *reassembly) abandonBuffers() {
	r.dropArrived()
	r.pages.abandonPages()
	r.nextExpected = r.readOffset
}
