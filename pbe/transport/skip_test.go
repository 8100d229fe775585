// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"errors"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/pbe/cc"
)

// TestSkipped: numbers are skipped at random, more often when less is in flight. Valid peers are
// not affected.
func TestSkipped(t *testing.T) {
	w, _ := newLoadedWorld(t, func() cc.Controller { return cc.NewCUBIC() })
	seen, last, out := 0, w.engines[0].loss.numbers.next-1, 0
	w.drop = func(from int, f flight) bool {
		if from == 0 {
			seen++
			out += int(f.number - last - 1)
			last = f.number
		}
		return false
	}
	w.runUntil(10*time.Second, neverDone)
	if each := seen / max(out, 1); each < skipEvery/2 || each > 2*skipEvery {
		t.Errorf("%d of %d were left out", out, seen)
	}
	if e := w.engines[0]; e.closing.err != nil || e.loss.spuriousCount > 0 {
		t.Errorf("%v, %+v", e.closing.err, e.counts)
	}
}

// TestAheadAck: a peer that acknowledges packets before they arrive is detected soon.
func TestAheadAck(t *testing.T) {
	const seeds = 40
	total := uint64(0)
	for range seeds {
		e := newConnEngine(cc.NewCUBIC(), 28)
		e.liveness.lastReceived, e.liveness.lastSent = time.Second, time.Second
		e.sender.maxData = 1 << 40
		now, number := time.Second, uint64(0)
		var err error
		for err == nil && e.loss.numbers.next < 100_000 {
			now += 10 * time.Millisecond
			e.sender.writeToBuffer(make([]byte, 1<<20))
			for ok := true; ok; {
				_, _, ok = e.appendPacket(now, nil)
			}
			a := ackFrame{maxData: 1 << 40, count: 1, ranges: [maxAckRanges]ackRange{{0, e.loss.numbers.next - 1}}}
			err = e.handlePacketFrames(now, number, a.appendEncodedAck(nil))
			number++
		}
		if !errors.Is(err, errMalformed) {
			t.Fatalf("%d packets, %v", e.loss.numbers.next, err)
		}
		total += e.loss.numbers.next
	}
	if mean := total / seeds; mean > 10*skipEvery {
		t.Errorf("%d packets until it is found out", mean)
	}
}

// TestFewRanges: without loss an ACK stays short although numbers are skipped.
func TestFewRanges(t *testing.T) {
	w, _ := newLoadedWorld(t, func() cc.Controller { return cc.NewCUBIC() })
	most := 0
	w.drop = func(from int, f flight) bool {
		if from == 1 {
			r := frameReader{buf: f.frames}
			var fr frame
			for len(r.buf) > 0 && r.readNextFrame(&fr) == nil {
				if fr.kind == frameAck {
					most = max(most, fr.ack.count)
				}
			}
		}
		return false
	}
	w.runUntil(20*time.Second, neverDone)
	// 20 Mbit/s are 1700 packets a second; ranges two seconds old are not repeated.
	if most < 2 || most > 2+2*2*1700/skipEvery {
		t.Errorf("%d ranges", most)
	}
}

// TestWindowGrows: with a loss of one in a hundred and an RTT of 100 ms, the receive window is no
// limit.
func TestWindowGrows(t *testing.T) {
	w := newWorld(t, testPath{delay: 50 * time.Millisecond, rate: 100 * unit.Mbps, queue: time.Second, mtu: 1472,
		loss: 0.01}, 4)
	w.engines[0].controller = fixedWindow{cc.NewCUBIC(), 4 * unit.MB}
	w.keepSending(0)
	w.runUntil(5*time.Second, neverDone)
	if got := w.measure(5 * time.Second); got < 80*unit.Mbps {
		t.Errorf("%v, a window of %d", got, w.engines[1].receiver.window)
	}
}
