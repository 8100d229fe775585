// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"slices"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/pbe/cc"
)

// checkFlying checks an engine's counts of remembered packets and returns their number.
func checkFlying(t *testing.T, e *engine) int {
	t.Helper()
	quiet, size := 0, unit.Bytes(0)
	for i := range uint64(e.loss.sent.count) {
		p := e.loss.sent.findSentPacket(e.loss.sent.first + i)
		if p.nonEliciting {
			quiet++
		}
		size += p.size
	}
	if quiet != e.loss.sent.nonEliciting || size != e.loss.bytesInFlight || e.loss.sent.count > 0 &&
		e.loss.sent.first+uint64(e.loss.sent.count) != e.loss.numbers.next {
		t.Fatalf("%d of %d quiet, %d bytes of %d in flight, %d from %d to %d", quiet, e.loss.sent.nonEliciting, size,
			e.loss.bytesInFlight, e.loss.sent.count, e.loss.sent.first, e.loss.numbers.next)
	}
	return e.loss.sent.count
}

// TestOnlyReceives: an end that sends only ACKs, which are never acknowledged, remembers none of
// them. After other packets it remembers few.
func TestOnlyReceives(t *testing.T) {
	for first, bound := range []int{1, maxNonEliciting + 10} {
		w := newWorld(t, testPath{delay: 20 * time.Millisecond, rate: 200 * unit.Mbps, queue: 100 * time.Millisecond,
			mtu: 1472}, 8)
		w.engines[1].sender.writeToBuffer(make([]byte, first))
		w.keepSending(0)
		most := 0
		w.runUntil(time.Minute, func() bool {
			most = max(most, w.engines[1].loss.sent.count)
			return w.engines[1].receiver.readOffset > 100<<20
		})
		if got := w.engines[1]; most > bound || got.receiver.readOffset < 100<<20 ||
			got.counts.packets < 10*maxNonEliciting/2 {
			t.Errorf("%d packets remembered of %d, after %d bytes", most, got.counts.packets, got.receiver.readOffset)
		}
		checkFlying(t, w.engines[1])
	}
}

// TestAsksOnly: a peer that acknowledges nothing but has everything acknowledged costs little
// memory. Any client can do that before TLS.
func TestAsksOnly(t *testing.T) {
	e := newConnEngine(cc.NewCUBIC(), 28)
	e.sender.writeToBuffer(make([]byte, 5000))
	now, most := time.Second, 0
	e.liveness.lastReceived, e.liveness.lastSent = now, now
	for i := range uint64(200_000) {
		if err := e.handlePacketFrames(now, i, []byte{framePing}); err != nil {
			t.Fatal(err)
		}
		e.handleTimers(now)
		for ok := true; ok; {
			_, _, ok = e.appendPacket(now, nil)
		}
		most = max(most, e.loss.sent.count)
		now += 50 * time.Microsecond
	}
	if checkFlying(t, e); most > maxNonEliciting+100 || e.counts.packets < 90_000 || e.closing.err != nil {
		t.Errorf("%d packets remembered of %d; %v", most, e.counts.packets, e.closing.err)
	}
}

// TestFewAcksKept: the same for a peer that acknowledges every second non-eliciting packet.
func TestFewAcksKept(t *testing.T) {
	e := newConnEngine(cc.NewCUBIC(), 28)
	now, most := time.Second, 0
	e.liveness.lastReceived, e.liveness.lastSent = now, now
	for i := range uint64(20_000) {
		b := []byte{framePing}
		if n := e.loss.numbers.next; n > 2 && !slices.Contains(e.loss.numbers.skipped, (n-1)&^1) {
			n = (n - 1) &^ 1
			a := ackFrame{maxData: 1 << 20, count: 1, ranges: [maxAckRanges]ackRange{{n, n}}}
			b = append(b, a.appendEncodedAck(nil)...)
		}
		if err := e.handlePacketFrames(now, 2*i, b); err != nil {
			t.Fatal(err)
		}
		e.handleTimers(now)
		for ok := true; ok; {
			_, _, ok = e.appendPacket(now, nil)
		}
		most = max(most, len(e.loss.acked))
		now += 50 * time.Microsecond
	}
	if checkFlying(t, e); most > 100 || e.loss.numbers.next < 10_000 {
		t.Errorf("%d ranges remembered of %d packets", most, e.loss.numbers.next)
	}
}

// TestForgotten: packets forgotten before their acknowledgement are sent again.
func TestForgotten(t *testing.T) {
	w := newWorld(t, testPath{delay: 20 * time.Millisecond, rate: 50 * unit.Mbps, queue: 100 * time.Millisecond,
		mtu: 1472}, 9)
	w.engines[0].sender.writeToBuffer(make([]byte, 5000))
	// only ACKs get through
	w.drop = func(from int, f flight) bool { return from == 0 && w.now < 8*time.Second && f.size > 300 }
	most := 0
	w.keepSending(1)
	w.runUntil(7*time.Second, func() bool { most = max(most, w.engines[0].loss.sent.count); return false })
	if checkFlying(t, w.engines[0]); w.engines[0].loss.sent.first == 0 || w.engines[1].receiver.unreadBytes() > 0 ||
		most > maxNonEliciting+100 || w.engines[0].counts.packets < 2*maxNonEliciting {
		t.Fatalf("all from packet %d on is remembered, %d at most; %d bytes arrived", w.engines[0].loss.sent.first,
			most, w.engines[1].receiver.unreadBytes())
	}
	w.runUntil(20*time.Second, func() bool { return w.engines[1].receiver.unreadBytes() == 5000 })
	if got := w.engines[1].receiver.unreadBytes(); got != 5000 {
		t.Errorf("%d bytes arrived", got)
	}
}
