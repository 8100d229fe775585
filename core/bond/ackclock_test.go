// SPDX-License-Identifier: Apache-2.0

package bond

import (
	"math/rand/v2"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/link/estimate"
	"mpbond/link/wire"
)

func newAckClock(helped ...bool) *ackClock {
	c := &ackClock{subflows: &subflowTable{}, timer: &wakeTimer{}}
	for i, h := range helped {
		p := &subflow{id: wire.SubflowID(i + 1), idle: true}
		p.est.Helped = h
		c.subflows.insertSubflow(p)
	}
	return c
}

// TestAckClockDue: an ACK is due 10 ms after the first byte or at 64 KB, and covers all.
func TestAckClockDue(t *testing.T) {
	c := newAckClock(false, true)
	p := c.subflows.list[0]
	if c.isSharedAckDue(start.Add(time.Hour)) {
		t.Error("an ACK of nothing is due")
	}
	c.recordArrivedFrame(p, 100, start)
	c.recordArrivedFrame(p, 100, start.Add(ackDelay/2))
	if c.isSharedAckDue(start.Add(ackDelay-1)) || !c.isSharedAckDue(start.Add(ackDelay)) ||
		!c.timer.next.Equal(start.Add(ackDelay)) {
		t.Errorf("due at the wrong time; the timer rings after %v", c.timer.next.Sub(start))
	}
	p.bytesReceived = 200
	f := c.buildAckFrame(p, start.Add(ackDelay))
	if f.Delay != ackDelay/2 || len(f.Subflows) != 2 || f.Subflows[0].Received != 200 ||
		c.isSharedAckDue(start.Add(time.Hour)) {
		t.Errorf("the ACK is %+v", f)
	}
	c.recordArrivedFrame(p, ackBytes-1, start)
	if c.isSharedAckDue(start) {
		t.Error("due one byte too early")
	}
	if c.recordArrivedFrame(p, 1, start); !c.isSharedAckDue(start) {
		t.Error("64 KB are not acknowledged at once")
	}
}

// TestAckClockOwn: a subflow on which frames came carries an ACK itself within 200 ms, unless
// the TCP of a direct one has confirmed a later ACK; that is waited for up to 300 ms.
func TestAckClockOwn(t *testing.T) {
	for _, c := range []struct {
		name            string
		sendOn, confirm bool // an ACK leaves on the direct subflow after the frame; its TCP confirms it
		helped          bool // that subflow is helped as well
		at              time.Duration
		want            bool
	}{
		{"before", false, false, false, subflowAckDelay - 1, false},
		{"no ACK was sent", false, false, false, subflowAckDelay, true},
		{"confirmed", true, true, false, time.Hour, false},
		{"not confirmed yet", true, false, false, subflowAckDelay, false},
		{"never confirmed", true, false, false, time.Second, true},
		{"on a helped one", true, true, true, subflowAckDelay, true},
	} {
		k := newAckClock(c.helped, true)
		direct, other := k.subflows.list[0], k.subflows.list[1]
		k.recordArrivedFrame(other, 1000, start)
		sentAt := start.Add(ackDelay)
		if c.sendOn {
			k.buildAckFrame(direct, sentAt)
			k.recordAckInSegment(direct, 100, sentAt)
		}
		if c.confirm {
			direct.est.AddLocalSample(sentAt, estimate.Hop{Acked: 100})
			k.confirmByHop(direct, sentAt.Add(time.Millisecond))
		}
		if p := k.subflowOwingAck(start.Add(c.at)); (p == other) != c.want {
			t.Errorf("%s: due %v, want %v", c.name, p != nil, c.want)
		}
	}
}

// TestAckClockTimer: whatever happens, what is due next has the timer set for it.
func TestAckClockTimer(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 4))
		c := newAckClock(false, true, true)
		now := start
		for range 200 {
			p := c.subflows.list[r.IntN(3)]
			switch r.IntN(4) {
			case 0:
				p.bytesReceived += 100
				c.recordArrivedFrame(p, unit.Bytes(r.IntN(20_000)), now)
			case 1:
				c.buildAckFrame(p, now)
				c.recordAckInSegment(p, 100, now)
			case 2:
				p.est.AddLocalSample(now, estimate.Hop{Acked: uint64(r.IntN(200))})
				c.confirmByHop(p, now)
				c.scheduleNextAck(now) // as Tick does soon, while a hop has something queued
			case 3:
				c.reacknowledge(now)
			}
			next := c.timer.next
			c.timer.clearWakeTime()
			c.scheduleNextAck(now)
			if want := c.timer.next; !want.IsZero() && (next.IsZero() || next.After(want)) {
				t.Fatalf("seed %d: the timer rings at %v, but something is due at %v", seed, next.Sub(start), want.Sub(start))
			}
			now = now.Add(time.Duration(r.IntN(30)) * time.Millisecond)
			if c.timer.next.Before(now) { // it rings
				c.timer.clearWakeTime()
				c.scheduleNextAck(now)
			}
		}
	}
}
