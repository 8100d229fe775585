package pipe

import (
	"fmt"
	"sync/atomic"
	"time"

	"mpbond/link/wire"
)

// Tuning.
const (
	// RECEIVED is sent after so many bytes, or so long after the first of
	// them: below 1 % of what it confirms.
	confirmBytes = 128 << 10
	confirmAfter = 20 * time.Millisecond
	// confirmWithData is how many bytes are confirmed together with data that is
	// sent anyway.
	confirmWithData = 16 << 10
	// maxReplay bounds what a primary keeps of its uplink.
	maxReplay = 4 << 20
)

// replay is what one end of a Link must be able to send again: the bytes of ciphertext
// that were written and that the peer has not confirmed. Positions count bytes from the
// start of the subflow. The ring is its own, filled by store, or the caller's, which fills
// it before it writes. Its fields are guarded by the mutex of the Link, but for written and
// the ring, which guard themselves; store is for the goroutine that writes.
type replay struct {
	ring          *Ring
	ownsRing      bool          // the ring is filled here; else by its owner
	written       atomic.Uint64 // bytes given to Write
	confirmed     uint64        // bytes that the peer has
	holdConfirmed bool          // what was confirmed is dropped later: it is being sent again
}

func newReplay() replay { return replay{ring: NewRing(maxReplay), ownsRing: true} }

// storeWritten keeps the beginning of p, as much as fits at once, and returns how much
// that is: 0 when the ring is dead. It blocks while there is no room.
func (r *replay) storeWritten(p []byte) int {
	n := copy(r.ring.WaitSpace(), p)
	r.ring.CommitFilled(n)
	r.ring.MarkSent(n)
	return n
}

// waitRoom blocks until store would not, and reports whether the ring lives.
func (r *replay) waitRoom() bool { return !r.ownsRing || r.ring.WaitRoom() }

// onReceived takes a RECEIVED. An error says what no peer of ours sends.
func (r *replay) onReceived(payload []byte) error {
	f, err := wire.ParseReceived(payload)
	if err == nil && (f.Count < r.confirmed || f.Count > r.written.Load()) {
		err = fmt.Errorf("%w: %v of %d bytes, after %d, of %d sent", wire.ErrMalformed, wire.TypeReceived, f.Count, r.confirmed, r.written.Load())
	}
	if err != nil {
		return err
	}
	r.confirmed = f.Count
	if !r.holdConfirmed {
		r.ring.Confirm(f.Count)
	}
	return nil
}

// restartAt has the peer confirmed all before a position, from which on all is sent again:
// nothing is dropped until unpin.
func (r *replay) restartAt(from uint64) { r.confirmed, r.holdConfirmed = from, true }

// releaseConfirmed drops what was confirmed meanwhile.
func (r *replay) releaseConfirmed() {
	r.holdConfirmed = false
	r.ring.Confirm(r.confirmed)
}

// appendDataFrame appends a HOP_DATA with the n bytes from a position on.
func (r *replay) appendDataFrame(b []byte, at uint64, n int) []byte {
	return r.ring.AppendAt(wire.AppendHeader(b, wire.TypeHopData, n), at, n)
}

// receivedSender says when the peer is sent RECEIVED, by which it may forget what it keeps: soon
// after something has come, at once when that is much. Positions are those of replay. The
// timer's function must call onTimer, and flush. All else is guarded by the mutex of the
// Link.
type receivedSender struct {
	received  uint64 // bytes that came
	confirmed uint64 // of them, those that the peer was sent RECEIVED of
	scheduled bool   // the timer runs
	due       bool   // the next flush carries RECEIVED
	timer     *time.Timer
}

// onData counts bytes that came.
func (r *receivedSender) onData(n int) {
	r.received += uint64(n)
	if r.received-r.confirmed >= confirmBytes && !r.due {
		r.due, r.scheduled = true, true
		r.timer.Reset(0)
		return
	}
	r.scheduleSend()
}

// scheduleSend has RECEIVED leave soon.
func (r *receivedSender) scheduleSend() {
	if !r.scheduled {
		r.scheduled = true
		r.timer.Reset(confirmAfter)
	}
}

// onTimer makes it due.
func (r *receivedSender) onTimer() { r.due, r.scheduled = true, false }

// restartAt notes that the peer knows of the bytes before a position, from another
// connection. If more came, over the one before, it learns of them soon: nothing more may
// come.
func (r *receivedSender) restartAt(known uint64) {
	if r.confirmed = known; r.received > known {
		r.scheduleSend()
	}
}

// appendReceived appends RECEIVED to b, if it is due or comes for nothing.
func (r *receivedSender) appendReceived(b []byte) []byte {
	if n := r.received - r.confirmed; n > 0 && (r.due || n >= confirmWithData && len(b) > 0) {
		b = wire.Append(b, wire.Received{Count: r.received})
		r.confirmed = r.received
	}
	return b
}

// rttEstimator estimates round trips from confirmations, where the carrier tells none: up to
// confirmAfter too much. One position at a time is watched. It is guarded by the mutex of
// the Link.
type rttEstimator struct {
	sentPos   uint64
	sentTime  time.Time // of pos; zero: none is watched
	srtt, min time.Duration
}

// onSent notes that all before a position was sent.
func (t *rttEstimator) onSent(pos uint64, now time.Time) {
	if t.sentTime.IsZero() {
		t.sentPos, t.sentTime = pos, now
	}
}

// onConfirmed notes that the peer has all before a position.
func (t *rttEstimator) onConfirmed(pos uint64, now time.Time) {
	if t.sentTime.IsZero() || pos < t.sentPos {
		return
	}
	rtt := now.Sub(t.sentTime)
	t.sentTime = time.Time{}
	if t.min == 0 || rtt < t.min {
		t.min = rtt
	}
	if t.srtt == 0 {
		t.srtt = rtt
	}
	t.srtt += (rtt - t.srtt) / 8 // RFC 6298 section 2.3
}
