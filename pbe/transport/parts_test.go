// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"net"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/pbe/cc"
)

// TestPacer: in a second the pacer allows the lower of both rates and a burst. The controller's
// rate causes only bounded pauses.
func TestPacer(t *testing.T) {
	const size = 1000
	for _, c := range []struct{ rate, most, want unit.Rate }{
		{8 * unit.Mbps, 0, 8 * unit.Mbps}, {8 * unit.Mbps, 4 * unit.Mbps, 4 * unit.Mbps},
		{2 * unit.Mbps, 4 * unit.Mbps, 2 * unit.Mbps}, {0, 4 * unit.Mbps, 4 * unit.Mbps},
	} {
		p := pacer{maxRate: c.most}
		n := 0
		for now := time.Second; now < 2*time.Second; now += 100 * time.Microsecond {
			for p.canSendPacket(now) {
				p.scheduleNextSend(now, size, c.rate)
				n++
			}
		}
		want := int((c.want.Bytes(time.Second) + c.want.Bytes(maxBurst)) / size)
		if n < want || n > want+1 {
			t.Errorf("%v and %v: %d packets in a second, not %d", c.rate, c.most, n, want)
		}
	}
	var p pacer
	if p.scheduleNextSend(time.Second, unit.MB, unit.Kbps); p.nextSendTime != time.Second+maxPause {
		t.Fatalf("a pause until %v", p.nextSendTime)
	}
	if p.allowSendNow(time.Second); !p.canSendPacket(time.Second) {
		t.Error("a reset does not open it")
	}
	p.maxRate = unit.Kbps
	if p.scheduleNextSend(time.Second, unit.MB, unit.Kbps); p.canSendPacket(time.Minute) {
		t.Error("the app's rate does not hold")
	}
}

// TestClosing: the CLOSE is sent once, and again for the first, second, fourth packet and so on
// within three probe timeouts, until the peer has ended too.
func TestClosing(t *testing.T) {
	const pto = 100 * time.Millisecond
	var c closing
	if c.isFullyClosed(time.Second) || c.takeDueClose(time.Second, pto) {
		t.Error("over before the end")
	}
	c.closeLocally(errIdleTimeout)
	c.closeLocally(net.ErrClosed)
	c.closeByPeer(errClosedByPeer)
	if c.err != errIdleTimeout || c.isFullyClosed(time.Second) || !c.takeDueClose(time.Second, pto) ||
		c.takeDueClose(time.Second, pto) {
		t.Errorf("%v; the CLOSE does not go, or goes twice", c.err)
	}
	again := 0
	for range 8 {
		if c.onLatePacket(time.Second, false); c.takeDueClose(time.Second, pto) {
			again++
		}
	}
	if again != 4 || c.isFullyClosed(time.Second+3*pto-1) || !c.isFullyClosed(time.Second+3*pto) {
		t.Errorf("%d times again, until %v", again, c.drainUntil)
	}
	if c.onLatePacket(2*time.Second, false); c.sendClose {
		t.Error("a CLOSE after all")
	}
	if c.onLatePacket(time.Second, true); !c.isFullyClosed(time.Second) {
		t.Error("not over though both ends know")
	}
	closedByPeer := closing{}
	if closedByPeer.closeByPeer(errClosedByPeer); !closedByPeer.isFullyClosed(0) {
		t.Error("a connection closed by the peer has a closing period")
	}
	quick := closing{}
	quick.closeLocally(net.ErrClosed)
	quick.closeNow = true
	if quick.takeDueClose(time.Second, pto); !quick.isFullyClosed(time.Second) {
		t.Error("closeNow has a closing period")
	}
}

// TestLiveness: silence causes a PING after one interval and the end after three. The user timeout
// counts from the last progress while packets wait. nextLivenessCheck is never later than any of
// them.
func TestLiveness(t *testing.T) {
	const interval = 10 * time.Second
	l := liveness{lastReceived: time.Second, lastSent: time.Second, keepAliveInterval: interval}
	for _, c := range []struct {
		now, unacked, userTimeout time.Duration
		ping                      bool
		err                       error
	}{
		{time.Second + interval - 1, 0, 0, false, nil},
		{time.Second + interval, 0, 0, true, nil},
		{time.Second + 3*interval - 1, 2 * time.Second, 0, true, nil},
		{time.Second + 3*interval, 0, 0, true, errIdleTimeout},
		{7*time.Second - 1, 2 * time.Second, 5 * time.Second, false, nil},
		{7 * time.Second, 2 * time.Second, 5 * time.Second, false, errUserTimeout},
		{8 * time.Second, 0, 5 * time.Second, false, nil},
	} {
		l.userTimeout = c.userTimeout
		err := l.checkTimeouts(c.now, c.unacked)
		if ping := l.needsKeepAlivePing(c.now); err != c.err || ping != c.ping {
			t.Errorf("at %v: %v, PING %v", c.now, err, ping)
		}
		if at := l.nextLivenessCheck(c.unacked); (c.ping || err != nil) != (at <= c.now) {
			t.Errorf("at %v: the next time is %v", c.now, at)
		}
	}
}

// TestRadioFeedback: delays are relative to the first on a path, even if clocks wrap. A report is
// repeated until it expires, and forgotten on another path.
func TestRadioFeedback(t *testing.T) {
	var delays []time.Duration
	said, received := cc.CellFeedback{TransportRate: 3 * unit.Mbps}, unit.Bytes(0)
	report := func(now, oneWay, minRTT time.Duration, size unit.Bytes) cc.CellFeedback {
		received += size
		delays = append(delays, oneWay)
		return said
	}
	f := radioFeedback{report: report}
	for _, oneWay := range []uint32{1<<32 - 1000, 4000, 1<<32 - 3000} {
		f.onOneWayDelay(time.Second, oneWay, 30*time.Millisecond)
	}
	if f.beginPacket(700); received != 0 {
		t.Errorf("%v received without a packet", received)
	}
	for range 3 { // a peer may repeat the frame
		f.onOneWayDelay(time.Second, 1<<32-1000, 30*time.Millisecond)
	}
	if received != 700 {
		t.Errorf("a packet of 700 bytes counts as %v", received)
	}
	delays = delays[:3]
	if len(delays) != 3 || delays[0] != 0 || delays[1] != 5*time.Millisecond || delays[2] != -2*time.Millisecond ||
		f.peerMinRTT != 30*time.Millisecond {
		t.Errorf("delays %v, round trip %v", delays, f.peerMinRTT)
	}
	if len(f.appendReport(time.Second+reportLifetime, nil)) == 0 ||
		len(f.appendReport(time.Second+reportLifetime+1, nil)) > 0 {
		t.Error("the report is not repeated, or when it is old")
	}
	f.onRadioFrame(said)
	if f.beginPacket(cc.MSS); f.incoming != said || f.current != (cc.CellFeedback{}) {
		t.Errorf("%+v, of the packet itself %+v", f.incoming, f.current)
	}
	f.delayToPeer.sinceFirst(7)
	if f.resetSending(); f.incoming != (cc.CellFeedback{}) || f.delayToPeer.known || !f.delayFromPeer.known {
		t.Error("the path to the peer is remembered, or that from it forgotten")
	}
	if f.resetReceiving(nil); len(f.appendReport(time.Second, nil)) > 0 || f.delayFromPeer.known {
		t.Error("the path from the peer is remembered")
	}
	if f.onOneWayDelay(2*time.Second, 5, 0); len(delays) != 3 || f.reportTime != 0 {
		t.Error("a report without a source")
	}
}
