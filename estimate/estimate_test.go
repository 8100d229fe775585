package estimate

import (
	"testing"
	"time"

	"mpbond/unit"
	"mpbond/wire"
)

const ms = time.Millisecond

var t0 = time.Unix(1e9, 0)

// near reports whether two durations differ by at most 1 %.
func near(a, b time.Duration) bool { return (a - b).Abs() <= b/100+time.Microsecond }

func TestDirectPAD(t *testing.T) {
	for _, c := range []struct {
		name string
		h    Hop
		want time.Duration
	}{
		{"empty", Hop{SRTT: 50 * ms, MinRTT: 50 * ms, Rate: 8 * unit.Mbps}, 25 * ms},
		{"what is in flight does not wait", Hop{SRTT: 50 * ms, MinRTT: 50 * ms, Rate: 8 * unit.Mbps, Queue: 50_000}, 25 * ms},
		{"100 KB wait", Hop{SRTT: 90 * ms, MinRTT: 50 * ms, Rate: 8 * unit.Mbps, Queue: 150_000}, 125 * ms},
		{"before any sample, window over round trip", Hop{SRTT: 50 * ms, MinRTT: 50 * ms, Cwnd: 14_480, Queue: 28_960}, 75 * ms},
	} {
		var p Path
		p.Local(t0, c.h)
		if got := p.At(t0).PAD; !near(got, c.want) {
			t.Errorf("%s: PAD %v, want %v", c.name, got, c.want)
		}
	}
}

// TestHelpedPAD checks both of the paper's cases: the pipe, or the HS-path, is
// what a new byte waits for.
func TestHelpedPAD(t *testing.T) {
	p := Path{Helped: true}
	p.Local(t0, Hop{SRTT: 70 * ms, MinRTT: 70 * ms, Rate: 10 * unit.Mbps})
	p.Remote(wire.HopState{Rate: 5 * unit.Mbps, RTT: 5 * ms})
	if n := p.At(t0); !near(n.PAD, 37500*time.Microsecond) || n.Th != 5*unit.Mbps {
		t.Errorf("empty: %+v", n)
	}
	// 500 KB sent and none received; nothing is left in our own queue.
	p.Sent(500_000)
	p.Acked(0, t0)
	n := p.At(t0)
	if want := n.OWD + (5 * unit.Mbps).Time(n.B2); !near(n.PAD, want) || n.B2 < 450_000 || n.B2 > 460_000 {
		t.Errorf("helper holds 500 KB: %+v", n)
	}
	// 100 ms later the pipe has carried 62.5 KB of it, though nothing was heard.
	if got := n.B2 - p.At(t0.Add(100*ms)).B2; got < 62_000 || got > 63_000 {
		t.Errorf("the pipe is reckoned to have carried %d bytes in 100 ms", got)
	}
	// A subflow that stays silent does not look ever better.
	if a, b := p.At(t0.Add(time.Second)), p.At(t0.Add(time.Minute)); a.PAD != b.PAD || a.B2 == 0 {
		t.Errorf("silent: %v after a second, %v after a minute", a.PAD, b.PAD)
	}
	// The HS-path is the slow one now and has a queue: that is what counts.
	p.Remote(wire.HopState{Rate: 50 * unit.Mbps, RTT: 5 * ms})
	p.Acked(500_000, t0)
	p.Sent(1_000_000)
	p.Local(t0, Hop{SRTT: 70 * ms, MinRTT: 70 * ms, Rate: 10 * unit.Mbps, Queue: 1_000_000})
	if n := p.At(t0); !near(n.PAD, n.OWD+(10*unit.Mbps).Time(1_000_000-87_500)) || n.Th != 10*unit.Mbps {
		t.Errorf("HS-path backlogged: %+v", n)
	}
}

func TestThroughputOfTheFarHop(t *testing.T) {
	p := Path{Helped: true}
	p.Remote(wire.HopState{Rate: 5 * unit.Mbps})
	p.Remote(wire.HopState{Rate: unit.Mbps, AppLimited: true})
	if th := p.At(t0).Th2; th != 5*unit.Mbps {
		t.Errorf("a helper with little to send lowers the pipe to %v", th)
	}
	p.Remote(wire.HopState{Rate: 9 * unit.Mbps, AppLimited: true})
	if th := p.At(t0).Th2; th != 9*unit.Mbps {
		t.Errorf("a lower bound of 9 Mbit/s is taken as %v", th)
	}
	p.Remote(wire.HopState{Rate: unit.Mbps})
	if th := p.At(t0).Th2; th != unit.Mbps {
		t.Errorf("a true drop is taken as %v", th)
	}
}

// TestRateFilter: dips are ignored, real drops believed within the window, and
// an idle time forgets nothing.
func TestRateFilter(t *testing.T) {
	var p Path
	at := t0
	feed := func(n int, r unit.Rate, limited bool) {
		for range n {
			at = at.Add(10 * ms)
			p.Local(at, Hop{SRTT: 50 * ms, MinRTT: 50 * ms, Rate: r, AppLimited: limited})
		}
	}
	feed(50, 10*unit.Mbps, false)
	feed(3, 4*unit.Mbps, false)
	if th := p.At(at).Th1; th != 10*unit.Mbps {
		t.Errorf("a dip of 30 ms makes it %v", th)
	}
	feed(21, unit.Mbps, false)
	if th := p.At(at).Th1; th != unit.Mbps {
		t.Errorf("210 ms after a drop it is still %v", th)
	}
	feed(10, 300*unit.Kbps, true)
	if th := p.At(at.Add(time.Hour)).Th1; th != unit.Mbps {
		t.Errorf("limited by the app, then idle: %v", th)
	}
	feed(1, 2*unit.Mbps, true)
	if th := p.At(at).Th1; th != 2*unit.Mbps {
		t.Errorf("more than the estimate, though limited by the app: %v", th)
	}
}

func TestNothingKnown(t *testing.T) {
	for _, helped := range []bool{false, true} {
		p := Path{Helped: helped}
		if n := p.At(t0); n.PAD <= 0 || n.PAD > time.Second || n.Th <= 0 {
			t.Errorf("helped=%v: %+v", helped, n)
		}
	}
}
