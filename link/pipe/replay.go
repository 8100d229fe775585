// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"fmt"
	"sync/atomic"
	"time"

	"mpbond/link/wire"
)

// Tuning.
const (
	// A RECEIVED frame is sent after confirmBytes, or confirmAfter after the first of them. This
	// costs below 1 % of the bytes that it confirms.
	confirmBytes = 128 << 10
	confirmAfter = 20 * time.Millisecond
	// confirmWithData is the least number of bytes that are confirmed together with data that is
	// sent anyway.
	confirmWithData = 16 << 10
	// maxReplay bounds what a primary keeps of its uplink.
	maxReplay = 4 << 20
)

// replay holds what one end of a Link must be able to send again: ciphertext that was written and
// that the peer has not confirmed. Positions count bytes from the start of the subflow. The ring is
// its own, filled by storeWritten, or belongs to the caller, which fills it before it writes. The
// mutex of the Link guards the fields, except written and the ring, which guard themselves.
// storeWritten is for the goroutine that writes.
type replay struct {
	ring          *Ring
	ownsRing      bool          // the ring is filled here, otherwise by its owner
	written       atomic.Uint64 // bytes passed to Write
	confirmed     uint64        // bytes that the peer has confirmed
	holdConfirmed bool          // confirmed bytes are kept for now, because they are being sent again
}

func newReplayWithRing() replay { return replay{ring: NewRing(maxReplay), ownsRing: true} }

// storeWritten stores the beginning of p, as much as fits, and returns its length: 0 when the ring
// is closed. It blocks while the ring is full.
func (r *replay) storeWritten(p []byte) int {
	n := copy(r.ring.WaitSpace(), p)
	r.ring.CommitFilled(n)
	r.ring.MarkSent(n)
	return n
}

// waitReplayRoom blocks until storeWritten would not block. It reports false if the ring is closed.
func (r *replay) waitReplayRoom() bool { return !r.ownsRing || r.ring.WaitRoom() }

// onReceived handles a RECEIVED frame. An error means that the frame is impossible.
func (r *replay) onReceived(payload []byte) error {
	f, err := wire.ParseReceived(payload)
	if err == nil && (f.Count < r.confirmed || f.Count > r.written.Load()) {
		err = fmt.Errorf("%w: %v of %d bytes, after %d, of %d sent", wire.ErrMalformed, wire.TypeReceived,
			f.Count, r.confirmed, r.written.Load())
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

// restartReplayAt sets the confirmed position to from. Everything after it will be sent again;
// nothing is dropped until releaseConfirmed.
func (r *replay) restartReplayAt(from uint64) { r.confirmed, r.holdConfirmed = from, true }

// releaseConfirmed drops the bytes that were confirmed meanwhile.
func (r *replay) releaseConfirmed() {
	r.holdConfirmed = false
	r.ring.Confirm(r.confirmed)
}

// appendDataFrame appends a HOP_DATA frame with n bytes from position at.
func (r *replay) appendDataFrame(b []byte, at uint64, n int) []byte {
	return r.ring.AppendAt(wire.AppendHeader(b, wire.TypeHopData, n), at, n)
}

// receivedSender decides when to send RECEIVED frames, which let the peer drop the bytes that it
// keeps: soon after data has come, at once if much has come. Positions are those of replay. The
// timer's function must call markReceivedDue and flush. The mutex of the Link guards all fields.
type receivedSender struct {
	received  uint64 // bytes received
	confirmed uint64 // the part of them that RECEIVED frames have confirmed
	scheduled bool   // the timer is running
	due       bool   // the next flush sends RECEIVED
	timer     *time.Timer
}

// countReceivedData counts n received bytes.
func (r *receivedSender) countReceivedData(n int) {
	r.received += uint64(n)
	if r.received-r.confirmed >= confirmBytes && !r.due {
		r.due, r.scheduled = true, true
		r.timer.Reset(0)
		return
	}
	r.scheduleSend()
}

// scheduleSend starts the timer, unless it is running.
func (r *receivedSender) scheduleSend() {
	if !r.scheduled {
		r.scheduled = true
		r.timer.Reset(confirmAfter)
	}
}

// markReceivedDue marks RECEIVED as due.
func (r *receivedSender) markReceivedDue() { r.due, r.scheduled = true, false }

// resumeConfirmedAt records that the peer knows about the bytes before position known, from another
// connection. If more came over the previous connection, a RECEIVED is scheduled, since no further
// data may come.
func (r *receivedSender) resumeConfirmedAt(known uint64) {
	if r.confirmed = known; r.received > known {
		r.scheduleSend()
	}
}

// gatherReceived appends a RECEIVED frame to b if it is due, or if it can share a write with data.
func (r *receivedSender) appendReceived(b []byte) []byte {
	if n := r.received - r.confirmed; n > 0 && (r.due || n >= confirmWithData && len(b) > 0) {
		b = wire.Append(b, wire.Received{Count: r.received})
		r.confirmed = r.received
	}
	return b
}

// rttEstimator estimates round trips from confirmations, for carriers that do not report them. The
// result is up to confirmAfter too high. It watches one position at a time. The mutex of the Link
// guards it.
type rttEstimator struct {
	sentPos   uint64
	sentTime  time.Time // of sentPos; zero: none is watched
	srtt, min time.Duration
}

// recordSentPosition records that all bytes before pos were sent.
func (t *rttEstimator) recordSentPosition(pos uint64, now time.Time) {
	if t.sentTime.IsZero() {
		t.sentPos, t.sentTime = pos, now
	}
}

// recordConfirmation records that the peer has all bytes before pos.
func (t *rttEstimator) recordConfirmation(pos uint64, now time.Time) {
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
