// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"time"

	"mpbond/base/unit"
	"mpbond/pbe/cc"
)

// reportLifetime bounds how long ACKs repeat a report of the cells.
const reportLifetime = 100 * time.Millisecond

// reportFunc returns the feedback for a packet of size bytes, with headers, that arrived with that one-way
// delay. minRTT is the sender's minimum RTT.
type reportFunc func(now, oneWay, minRTT time.Duration, size unit.Bytes) cc.CellFeedback

// radioFeedback is PBE-CC's feedback in both directions. It asks for a report of the local cells
// for each packet that arrives, adds the newest report to ACKs, and keeps the newest report of the
// peer. Reports of another path are forgotten. Times are those of the connection. One-way delays
// are in µs by two unsynchronized clocks, modulo 2^32, and made relative to the first one on the
// path. It is not safe for concurrent use.
type radioFeedback struct {
	report        reportFunc // nil: no feedback is sent
	packetSize    unit.Bytes // of the packet being handled, with headers
	outgoing      cc.CellFeedback
	reportTime    time.Duration // when outgoing was made; 0: there is no report
	delayFromPeer relativeDelay
	peerMinRTT    time.Duration // minimum RTT measured by the peer

	incoming    cc.CellFeedback // newest report of the peer
	current     cc.CellFeedback // report in the packet being handled, if that is the newest packet
	delayToPeer relativeDelay
}

// relativeDelay makes one-way delays by unsynchronized clocks relative to the first one.
type relativeDelay struct {
	first uint32 // µs
	known bool
}

// sinceFirst returns by how much a delay exceeds the first one.
func (r *relativeDelay) sinceFirst(oneWay uint32) time.Duration {
	if !r.known {
		r.first, r.known = oneWay, true
	}
	return time.Duration(int32(oneWay-r.first)) * time.Microsecond
}

// beginPacket clears the report of the previous packet. size includes headers.
func (f *radioFeedback) beginPacket(size unit.Bytes) {
	f.current, f.packetSize = cc.CellFeedback{}, size
}

// onRadioFrame handles a RADIO frame in the newest packet.
func (f *radioFeedback) onRadioFrame(r cc.CellFeedback) { f.incoming, f.current = r, r }

// onOneWayDelay handles the one-way delay of a packet that has arrived. minRTT is its sender's
// minimum RTT.
func (f *radioFeedback) onOneWayDelay(now time.Duration, oneWay uint32, minRTT time.Duration) {
	f.peerMinRTT = minRTT
	delay := f.delayFromPeer.sinceFirst(oneWay)
	if f.report != nil {
		f.outgoing, f.reportTime = f.report(now, delay, minRTT, f.packetSize), now
		f.packetSize = 0 // a packet counts once, whatever it contains
	}
}

// appendReport appends a RADIO frame with the newest report unless that has expired.
func (f *radioFeedback) appendReport(now time.Duration, b []byte) []byte {
	if f.reportTime > 0 && now <= f.reportTime+reportLifetime {
		return appendRadio(b, f.outgoing)
	}
	return b
}

// resetSending forgets the path on which packets are sent.
func (f *radioFeedback) resetSending() {
	f.incoming, f.current, f.delayToPeer = cc.CellFeedback{}, cc.CellFeedback{}, relativeDelay{}
}

// resetReceiving forgets the path on which packets arrive and sets the source of new reports.
func (f *radioFeedback) resetReceiving(report reportFunc) {
	f.report, f.reportTime, f.delayFromPeer = report, 0, relativeDelay{}
}

// feedbackSource keeps one open source of feedback at a time. It is not safe for concurrent use.
type feedbackSource struct {
	enabled  bool
	feedback Feedback // nil: none
}

// switchFeedbackTo closes the source and, if enabled, opens the one that listen creates; nil opens
// none. It returns the function that makes reports, or nil.
func (r *feedbackSource) switchFeedbackTo(listen func() Feedback) reportFunc {
	if r.feedback != nil {
		r.feedback.Close()
		r.feedback = nil
	}
	if !r.enabled || listen == nil {
		return nil
	}
	r.feedback = listen()
	return r.feedback.OnPacket
}
