// SPDX-License-Identifier: Apache-2.0

package network

import (
	"testing"
	"time"

	"mpbond/base/unit"
)

const ms = time.Millisecond

func steady(r unit.Rate) []RateStep { return []RateStep{{0, r}} }

// transferTime returns how long n bytes take over one open connection, and its sender.
func transferTime(t *testing.T, l Link, n int, control string) (time.Duration, *tcpEnd) {
	t.Helper()
	return lossyTransfer(t, l, n, control, func(int) bool { return false })
}

// lossyTransfer is transferTime where the packets with data are lost whose number, from 0, loses
// accepts.
func lossyTransfer(t *testing.T, l Link, n int, control string, loses func(i int) bool) (time.Duration, *tcpEnd) {
	t.Helper()
	s := newSimulation(1, 0)
	back := l
	back.Loss = 0
	forth := newRunningLine(s, l)
	a, b := connectTCPEnds(s, []*line{forth}, []*line{newRunningLine(s, back)}, control, 1)
	arrive, sent := forth.arrive, 0
	forth.arrive = func(p *packet) {
		if sent++; !loses(sent - 1) {
			arrive(p)
		}
	}
	done := never
	b.onData = func() {
		b.recordAppRead(b.receiver.next)
		if b.receiver.next == uint64(n) {
			done = s.now
		}
	}
	a.onData = func() {}
	a.writeAppBytes(n)
	for done == never && s.handleNext(10*time.Minute) {
	}
	if done == never {
		t.Fatalf("%d of %d bytes arrived; %+v", b.receiver.next, n, a.readTCPInfo())
	}
	return done, a
}

// TestFullLink checks that TCP fills a link with a queue of a round trip within 2 %.
func TestFullLink(t *testing.T) {
	for _, rate := range []unit.Rate{unit.Mbps, 10 * unit.Mbps, 50 * unit.Mbps} {
		l := Link{Rates: steady(rate), Delay: 10 * ms, Queue: max(minQueue, rate.Bytes(60*ms))}
		n := int(rate.Bytes(10*time.Second) * mss / 1500)
		d, a := transferTime(t, l, n, "cubic")
		if d < 10*time.Second || d > 10200*ms {
			t.Errorf("%v: 10 s of data took %v; retransmitted %d of %d", rate, d, a.retransmitted, a.sentPackets)
		}
	}
}

// TestSlowStart compares transfers over a long fast link with the closed form: the window begins
// with ten packets and doubles with each round trip.
func TestSlowStart(t *testing.T) {
	const rtt = 100 * ms
	rate := 1000 * unit.Mbps
	l := Link{Rates: steady(rate), Delay: rtt / 2, Queue: rate.Bytes(rtt)}
	for rounds, packets := 1, 0; rounds <= 8; rounds++ {
		packets += initialWindow << (rounds - 1)
		want := time.Duration(rounds-1)*rtt + rtt/2
		got, a := transferTime(t, l, packets*mss, "cubic")
		// The packets of the last round take a while, and each round waits for the last delayed
		// acknowledgement of the one before.
		slack := rate.Time(unit.Bytes(initialWindow<<rounds)*1500) + time.Duration(rounds)*200*time.Microsecond
		if got < want || got > want+slack || a.retransmitted > 0 {
			t.Errorf("%d packets took %v, want %v to %v; retransmitted %d", packets, got, want, want+slack, a.retransmitted)
		}
	}
}

// TestRecovery checks how long the loss of packets delays a transfer of 40 packets over a round
// trip of 100 ms, which takes 2.5 of them.
func TestRecovery(t *testing.T) {
	const rtt = 100 * ms
	rate := 1000 * unit.Mbps
	l := Link{Rates: steady(rate), Delay: rtt / 2, Queue: rate.Bytes(rtt)}
	whole, _ := transferTime(t, l, 40*mss, "cubic")
	for _, c := range []struct {
		name          string
		lost          []int
		from, to      time.Duration // later than without loss
		retransmitted uint32
	}{
		{"one packet: fast retransmission", []int{2}, 0, rtt + 5*ms, 1},
		{"one of the last round", []int{32}, rtt - 5*ms, rtt + 5*ms, 1},
		{"several", []int{2, 4, 6}, 0, 2*rtt + 5*ms, 3},
		{"a packet and its copy: a timeout or RACK", []int{2, 10}, 0, rtt + minTimeout + 2*rtt, 2},
		{"the last packet: a probe after two round trips and 200 ms", []int{39}, 2*rtt + minTimeout - 5*ms,
			2*rtt + minTimeout + delayedAck + 10*ms, 1},
		{"all of the last round: a timeout", []int{30, 31, 32, 33, 34, 35, 36, 37, 38, 39}, 2 * rtt, 8 * rtt, 10},
	} {
		lost := map[int]bool{}
		for _, i := range c.lost {
			lost[i] = true
		}
		got, a := lossyTransfer(t, l, 40*mss, "cubic", func(i int) bool { return lost[i] })
		if d := got - whole; d < c.from || d > c.to || a.retransmitted < c.retransmitted ||
			a.retransmitted > c.retransmitted+1 {
			t.Errorf("%s: %v later, want %v to %v; retransmitted %d", c.name, d, c.from, c.to, a.retransmitted)
		}
	}
}

// TestReordering checks that jitter which reorders costs no window: nothing is sent again for long.
func TestReordering(t *testing.T) {
	rate := 10 * unit.Mbps
	n := int(rate.Bytes(10*time.Second) * mss / 1500)
	for _, control := range []string{"cubic", "bbr"} {
		l := Link{Rates: steady(rate), Delay: 25 * ms, Queue: rate.Bytes(200 * ms), Jitter: 10 * ms, Reorders: true}
		if d, a := transferTime(t, l, n, control); d > 10700*ms {
			t.Errorf("%s: 10 s of data took %v; retransmitted %d of %d", control, d, a.retransmitted, a.sentPackets)
		}
	}
}

// TestBBR checks that BBR fills a link in spite of random loss, and that CUBIC does not.
func TestBBR(t *testing.T) {
	rate := 20 * unit.Mbps
	l := Link{Rates: steady(rate), Delay: 25 * ms, Queue: rate.Bytes(100 * ms), Loss: 0.02}
	n := int(rate.Bytes(10*time.Second) * mss / 1500)
	if d, _ := transferTime(t, l, n, "bbr"); d > 11500*ms {
		t.Errorf("BBR: 10 s of data took %v", d)
	}
	if d, _ := transferTime(t, l, n, "cubic"); d < 20*time.Second {
		t.Errorf("CUBIC: 10 s of data took %v", d)
	}
}

// TestOutage checks that a transfer goes on soon after an outage: the timeout has backed off, but
// what was in the queue arrives and restarts it.
func TestOutage(t *testing.T) {
	rate := 10 * unit.Mbps
	l := Link{Rates: []RateStep{{0, rate}, {time.Second, 0}, {3 * time.Second, rate}}, Delay: 25 * ms,
		Queue: rate.Bytes(200 * ms)}
	n := int(rate.Bytes(4*time.Second) * mss / 1500)
	if d, a := transferTime(t, l, n, "cubic"); d < 6*time.Second || d > 6500*ms {
		t.Errorf("4 s of data with an outage of 2 s took %v; retransmitted %d", d, a.retransmitted)
	}
}
