// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// A packet train measures a subflow before it carries data: a TCP's initial window of packets
// leaves at once, and the far end reports how far apart they arrive. So a first short transfer does
// not use a link of 0.3 Mbit/s because its round trip is the shortest, and a helper has shown that
// it delivers.
const (
	// trainLength is in packets. With what the handshake has sent a train fits TCP's initial window
	// of ten (RFC 6928).
	trainLength = 8
	// leastTrain is the least number of packets, beyond the first, that show a rate. The part of a
	// train that arrived at the highest rate counts: after a loss the rest arrives much later.
	leastTrain = trainLength / 2
	// minTrainTime bounds the rate that a train can show. Packets that one read returns seem to
	// arrive at once.
	minTrainTime = time.Millisecond
	// maxTrainDelay is how long after a join a train may begin. Later the radio of a helper may
	// sleep.
	maxTrainDelay = time.Second
)

// arrivingTrain is the part of a packet train that has arrived.
type arrivingTrain struct {
	begun time.Time
	left  int // frames that follow
	count int // frames beyond the first
	bytes unit.Bytes
	rate  unit.Rate
}

// trainTarget returns an idle subflow that must carry a packet of a train, or nil. Data that comes
// first replaces a train. A subflow that all groups exclude gets none: it may cost money. The guide
// is not asked, since radios are awake from the handshake.
func (f *subflowFilter) trainTarget(now time.Time) *subflow {
	for _, p := range f.subflows.list {
		if p.streamBytesSent > 0 || now.After(p.trainUntil) {
			p.trainLeft = 0
		}
		if p.trainLeft > 0 && p.idle && !p.isSilent() && !f.classes.excludesSubflow(p.id) {
			return p
		}
	}
	return nil
}

// appendTrain appends the next packet of a train.
func (p *subflow) appendTrain(buf []byte) []byte {
	p.trainLeft--
	at := len(buf)
	buf = wire.Append(buf, wire.Train{Left: p.trainLeft, Padding: max(0, p.bytesOfPackets(1)-wire.HeaderLen-1)})
	p.recordSentFrame(len(buf)-at, sentFrame{frameType: wire.TypeTrain})
	return buf
}

// receiveTrain takes one packet of a train. After the last one it queues a RATE frame if enough
// have arrived.
func (b *Bond) receiveTrain(p *subflow, payload []byte, now time.Time) error {
	f, err := wire.ParseTrain(payload)
	if err != nil {
		return err
	}
	t := &p.train
	if t.begun.IsZero() || f.Left+1 != t.left {
		*t = arrivingTrain{begun: now}
	} else {
		t.count++
		t.bytes += unit.Bytes(wire.HeaderLen + len(payload))
	}
	t.left = f.Left
	if t.count >= leastTrain {
		t.rate = max(t.rate, unit.RateOf(t.bytes, max(now.Sub(t.begun), minTrainTime)))
	}
	if f.Left == 0 && t.rate > 0 {
		b.control.queueNotice(wire.Rate{Subflow: p.id, Rate: t.rate, RTT: p.est.JoinRTT})
		*t = arrivingTrain{}
	}
	return nil
}

// receiveRate takes the rate at which a packet train of this end arrived.
func (b *Bond) receiveRate(_ *subflow, payload []byte, _ time.Time) error {
	f, err := wire.ParseRate(payload)
	if p := b.subflows.subflowByID(f.Subflow); err == nil && p != nil && f.Rate > 0 {
		p.est.SetTrain(f.Rate, f.RTT)
	}
	return err
}
