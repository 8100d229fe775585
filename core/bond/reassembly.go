package bond

import (
	"fmt"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// reassembly puts the bytes that a stream receives in order, from the frames that bring them
// until the app has consumed them. Bytes before readOffset are consumed, those before
// nextExpected can be read, and arrived knows which ones came beyond that. It grants the far
// end a window: no byte may come beyond limit, nor beyond finalSize once a FIN has told that.
// Memory for pages and marks is taken as bytes come. Slices that were handed out stay as they
// are until consumed. Not safe for concurrent use.
type reassembly struct {
	pages        pages
	memory       *memoryBudget
	readOffset   wire.DataSeq
	nextExpected wire.DataSeq
	arrived      arrivedSet
	bitmapBytes  unit.Bytes // the memory of arrived

	limit          wire.DataSeq // granted to the far end
	window         unit.Bytes   // how much is granted beyond what was consumed
	finalSize      wire.DataSeq // valid if finalSizeKnown
	finalSizeKnown bool         // a FIN has arrived
}

// readableBytes returns how many bytes can be read now.
func (r *reassembly) readableBytes() int { return int(r.nextExpected - r.readOffset) }

// isComplete reports whether all that the far end sent has been consumed.
func (r *reassembly) isComplete() bool { return r.finalSizeKnown && r.readOffset == r.finalSize }

// expectsMore reports whether the other end may have bytes that it may not send yet.
func (r *reassembly) expectsMore() bool { return !r.finalSizeKnown || r.limit < r.finalSize }

// eachReadable calls f with readable bytes in order, at most n of them.
func (r *reassembly) eachReadable(n int, f func([]byte)) {
	r.pages.eachSlice(r.readOffset, r.readOffset+wire.DataSeq(min(n, r.readableBytes())), f)
}

// checkLimit returns an error if the far end must not send bytes from a position to end.
func (r *reassembly) checkLimit(end wire.DataSeq) error {
	if end > r.limit || r.finalSizeKnown && end > r.finalSize {
		return fmt.Errorf("bytes up to %d of a stream which may send %d: %w", end, r.limit, wire.ErrMalformed)
	}
	return nil
}

// insertBytes takes bytes from a position on, which check has allowed. It returns how many were
// new, and which bytes became readable. Ok is false if there is no memory: then nothing was
// taken, and the stream must end.
func (r *reassembly) insertBytes(at wire.DataSeq, b []byte) (added int, delivered seqSpan, ok bool) {
	end := at + wire.DataSeq(len(b))
	from, to := max(at, r.nextExpected), max(end, r.nextExpected)
	if !r.pages.reserve(from, to) {
		return 0, seqSpan{}, false
	}
	// Only what is missing is written: what is readable may be being read.
	r.arrived.eachMissing(from, to, func(from, to wire.DataSeq) {
		r.pages.write(from, b[from-at:to-at])
		added += int(to - from)
	})
	if from > r.nextExpected {
		r.arrived.markArrived(from, to)
	} else if from < to {
		next := r.arrived.findPosition(false, to, max(to, r.arrived.end))
		r.arrived.releaseBefore(from, next, uint64(added))
		delivered = seqSpan{From: from, To: next}
		r.nextExpected = next
	}
	return added, delivered, true
}

// chargeBitmaps takes the memory for the marks of what has arrived, or gives it back. It reports
// false if there is none: then the stream must end.
func (r *reassembly) chargeBitmaps() bool {
	cost := unit.Bytes(r.arrived.bitmaps) * bitmapCost
	switch held := r.bitmapBytes; {
	case cost < held:
		r.memory.release(held - cost)
	case cost > held && !r.memory.take(cost-held):
		return false
	}
	r.bitmapBytes = cost
	return true
}

// receiveFin takes the news that the far end sends no bytes from a position on. What a second
// FIN says is ignored.
func (r *reassembly) receiveFin(size wire.DataSeq) error {
	if r.finalSizeKnown {
		return nil
	}
	if size < r.nextExpected || size < r.arrived.end {
		return fmt.Errorf("its end at %d comes before bytes received: %w", size, wire.ErrMalformed)
	}
	r.finalSizeKnown, r.finalSize = true, size
	return nil
}

// consume gives up n readable bytes.
func (r *reassembly) consume(n int) {
	r.readOffset += wire.DataSeq(n)
	if r.readableBytes() == 0 && r.arrived.count == 0 {
		r.pages.clear(r.readOffset)
	} else {
		r.pages.releaseBefore(r.readOffset)
	}
}

// isWindowDue reports whether a quarter of the window was consumed, and the far end may use more.
func (r *reassembly) isWindowDue() bool {
	return r.expectsMore() && unit.Bytes(r.limit-r.readOffset) <= r.window*3/4
}

// nextWindow returns what the window should be once it is due. It doubles, up to a share, or
// shrinks towards that as it is consumed: what is granted cannot be taken back.
func (r *reassembly) nextWindow(share unit.Bytes) unit.Bytes {
	share = min(maxWindow, share)
	if r.window > share {
		share = max(share, unit.Bytes(r.limit-r.readOffset))
	}
	return min(2*r.window, share)
}

// setWindow changes the window and reports whether that raised the limit.
func (r *reassembly) setWindow(window unit.Bytes) bool {
	r.window = window
	limit := r.readOffset + wire.DataSeq(window)
	if limit <= r.limit {
		return false
	}
	r.limit = limit
	return true
}

// dropArrived forgets which bytes have arrived beyond a gap.
func (r *reassembly) dropArrived() {
	r.arrived = arrivedSet{}
	r.chargeBitmaps()
}

// dropAll gives up all pages and marks.
func (r *reassembly) dropAll() {
	r.pages.dropAll()
	r.dropArrived()
}

// abandon is drop for when a reader may still be copying out of the pages. Nothing is readable
// any more.
func (r *reassembly) abandon() {
	r.dropArrived()
	r.pages.abandon()
	r.nextExpected = r.readOffset
}
