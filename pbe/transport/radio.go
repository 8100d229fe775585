package transport

import (
	"time"

	"mpbond/pbe/cc"
)

// reportLifetime is how long a report of the cells goes with acknowledgements that repeat it.
const reportLifetime = 100 * time.Millisecond

// radioFeedback is PBE-CC's feedback in both directions: it has the cells here report on
// each packet that arrives, adds the newest report to acknowledgements, and keeps the
// newest that the peer sent. Both depend on the path: a report of another path is
// forgotten. Times are those of the connection; one-way delays are in µs by the two
// clocks, modulo 2^32, and made relative to the first on the path. It is not safe for
// concurrent use.
type radioFeedback struct {
	// report returns what goes back when a packet of that one-way delay has arrived,
	// where the sender knows that least round trip. Nil: nothing goes back.
	report        func(now, oneWay, minRTT time.Duration) cc.Radio
	outgoing      cc.Radio
	reportTime    time.Duration // of outgoing; 0: there is none
	delayFromPeer relativeDelay
	peerMinRTT    time.Duration // the least round trip that the peer knows

	incoming    cc.Radio // of the newest packet that had one
	current     cc.Radio // of the packet that is being handled, if it is the newest
	delayToPeer relativeDelay
}

// relativeDelay makes one-way delays by clocks that differ relative to the first.
type relativeDelay struct {
	first uint32 // µs
	known bool
}

// sinceFirst returns how much a delay is over the first.
func (r *relativeDelay) sinceFirst(oneWay uint32) time.Duration {
	if !r.known {
		r.first, r.known = oneWay, true
	}
	return time.Duration(int32(oneWay-r.first)) * time.Microsecond
}

// beginPacket forgets the report of the packet before.
func (f *radioFeedback) beginPacket() { f.current = cc.Radio{} }

// onRadio takes a report of the newest packet.
func (f *radioFeedback) onRadio(r cc.Radio) { f.incoming, f.current = r, r }

// onArrival takes the one-way delay of a packet that has arrived, and the least round
// trip that its sender knows.
func (f *radioFeedback) onArrival(now time.Duration, oneWay uint32, minRTT time.Duration) {
	f.peerMinRTT = minRTT
	delay := f.delayFromPeer.sinceFirst(oneWay)
	if f.report != nil {
		f.outgoing, f.reportTime = f.report(now, delay, minRTT), now
	}
}

// appendReport appends a RADIO frame with the newest report, unless that is old.
func (f *radioFeedback) appendReport(now time.Duration, b []byte) []byte {
	if f.reportTime > 0 && now <= f.reportTime+reportLifetime {
		return appendRadio(b, f.outgoing)
	}
	return b
}

// resetSending forgets the path on which packets are sent.
func (f *radioFeedback) resetSending() {
	f.incoming, f.current, f.delayToPeer = cc.Radio{}, cc.Radio{}, relativeDelay{}
}

// resetReceiving forgets the path on which packets arrive; report is that of another.
func (f *radioFeedback) resetReceiving(report func(now, oneWay, minRTT time.Duration) cc.Radio) {
	f.report, f.reportTime, f.delayFromPeer = report, 0, relativeDelay{}
}

// feedbackReporter has the cells here reported on by one listener at a time. It is not safe for
// concurrent use.
type feedbackReporter struct {
	enabled  bool
	feedback Feedback // nil: none
}

// switchTo closes the listener and, if it is enabled, begins with the one that listen
// makes, nil for none. It returns its reports, nil if there is none.
func (r *feedbackReporter) switchTo(listen func() Feedback) (report func(now, oneWay, minRTT time.Duration) cc.Radio) {
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
