// SPDX-License-Identifier: Apache-2.0

package dial

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/pace"
	"mpbond/control/device"
	"mpbond/control/policy"
	"mpbond/link/tcp"
)

// fakeConn is a connection that records its calls.
type fakeConn struct {
	UDPConn
	over           string
	aborted, moved bool
}

func (f *fakeConn) Abort() error         { f.aborted = true; return nil }
func (f *fakeConn) Move() error          { f.moved = true; return nil }
func (f *fakeConn) LocalAddr() net.Addr  { return &net.UDPAddr{IP: net.IPv4(10, 0, 0, 1)} }
func (f *fakeConn) RemoteAddr() net.Addr { return &net.UDPAddr{IP: net.IPv4(10, 0, 0, 9), Port: 7600} }

// fakeSide is a simulated transport.
type fakeSide struct {
	takes time.Duration // time to connect; negative: never
	err   error
	tries int
	made  []*fakeConn
}

func (s *fakeSide) dialAfter(ctx context.Context, over string) (*fakeConn, error) {
	s.tries++
	if s.takes < 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(s.takes):
	}
	if s.err != nil {
		return nil, s.err
	}
	f := &fakeConn{over: over}
	s.made = append(s.made, f)
	return f, nil
}

type dialTest struct {
	t        *testing.T
	udp, tcp fakeSide
	at       route
	d        *Dialer
}

func newDialTest(t *testing.T) *dialTest {
	w := &dialTest{t: t, at: route{"lte", "home:7600", netip.MustParseAddr("10.0.0.1")}}
	w.d = &Dialer{UDPLinks: []string{"lte"},
		UDP: func(ctx context.Context, _ string, _ tcp.Options) (UDPConn, error) {
			f, err := w.udp.dialAfter(ctx, "udp")
			if err != nil {
				return nil, err
			}
			return f, nil
		},
		fakeTCP: func(ctx context.Context, _ string, _ tcp.Options) (Conn, error) {
			f, err := w.tcp.dialAfter(ctx, "tcp")
			if err != nil {
				return nil, err
			}
			return f, nil
		},
		fakeRoute: func(context.Context, string, tcp.Options) (route, error) { return w.at, nil },
	}
	t.Cleanup(func() { time.Sleep(lateUDPTimeout) }) // background attempts are over then
	return w
}

// dialOnce connects and returns the transport and the time taken.
func (w *dialTest) dialOnce() (over string, took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
	defer cancel()
	began := time.Now()
	c, err := w.d.Dial(ctx, "home:7600", tcp.Options{})
	took = time.Since(began)
	synctest.Wait() // background attempts read the fields
	if err != nil {
		return "", took, err
	}
	if m, ok := c.(*movingConn); ok {
		c = m.Conn
	}
	return c.(*fakeConn).over, took, nil
}

// whyTCP returns Dialer.WhyTCP for the current route.
func (w *dialTest) whyTCP(link string) string {
	return w.d.WhyTCP(link, net.TCPAddrFromAddrPort(netip.AddrPortFrom(w.at.localAddr, 1)))
}

const ms = time.Millisecond

// TestRace checks which transport wins and after what time, and that the loser is closed.
func TestRace(t *testing.T) {
	refused := errors.New("refused")
	for name, c := range map[string]struct {
		udp, tcp fakeSide
		over     string
		took     time.Duration
		tries    int // of TCP
		rests    bool
	}{
		"udp answers": {fakeSide{takes: 50 * ms}, fakeSide{takes: 50 * ms}, "udp", 50 * ms, 0, false},
		"a long round trip": {fakeSide{takes: 700 * ms}, fakeSide{takes: 700 * ms}, "udp", 700 * ms,
			1, false},
		"a packet was lost": {fakeSide{takes: 250 * ms}, fakeSide{takes: 50 * ms}, "udp", 250 * ms,
			0, false},
		"udp is blocked": {fakeSide{takes: -1}, fakeSide{takes: 50 * ms}, "tcp",
			udpHeadStart + 50*ms, 1, true},
		"udp fails at once": {fakeSide{err: refused}, fakeSide{takes: 50 * ms}, "tcp", 50 * ms, 1, true},
		"udp fails late": {fakeSide{takes: 400 * ms, err: refused}, fakeSide{takes: 200 * ms},
			"tcp", 500 * ms, 1, true},
		"udp is late": {fakeSide{takes: 450 * ms}, fakeSide{takes: 50 * ms}, "tcp",
			udpHeadStart + 50*ms, 1, true},
		"nobody is there": {fakeSide{takes: -1}, fakeSide{takes: 50 * ms, err: refused}, "",
			udpHeadStart + 50*ms, 1, false},
		"nobody is there, tcp says not": {fakeSide{takes: -1}, fakeSide{takes: -1}, "", 10 * time.Second, 1, false},
		"tcp is blocked":                {fakeSide{takes: 600 * ms}, fakeSide{takes: -1}, "udp", 600 * ms, 1, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newDialTest(t)
				w.udp, w.tcp = c.udp, c.tcp
				over, took, err := w.dialOnce()
				if over != c.over || took != c.took || (err == nil) != (c.over != "") {
					t.Errorf("over %q after %v, %v; want %q after %v", over, took, err, c.over, c.took)
				}
				if w.udp.tries != 1 || w.tcp.tries != c.tries {
					t.Errorf("%d tries of UDP, %d of TCP", w.udp.tries, w.tcp.tries)
				}
				if rests := w.whyTCP("lte") != ""; rests != c.rests {
					t.Errorf("%q", w.whyTCP("lte"))
				}
			})
		})
	}
}

// TestLoserEnds checks that an attempt that succeeds too late is closed.
func TestLoserEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDialTest(t)
		w.d.UDP = func(context.Context, string, tcp.Options) (UDPConn, error) { // it ignores ctx
			time.Sleep(time.Second)
			f := &fakeConn{over: "udp"}
			w.udp.made = append(w.udp.made, f)
			return f, nil
		}
		if over, _, err := w.dialOnce(); over != "tcp" || err != nil {
			t.Errorf("%q, %v", over, err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if len(w.udp.made) != 1 || !w.udp.made[0].aborted || w.tcp.made[0].aborted {
			t.Error("not ended")
		}
	})
}

// TestLateUDP checks that UDP that answers after TCP is closed and does not back off, unless it
// takes too long.
func TestLateUDP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDialTest(t)
		expect := func(over string) {
			t.Helper()
			if got, _, err := w.dialOnce(); got != over || err != nil {
				t.Errorf("over %q, %v; want %q", got, err, over)
			}
		}
		w.tcp.takes = 10 * ms
		for _, w.udp.takes = range []time.Duration{udpHeadStart + 20*ms, udpHeadStart + lateUDPTimeout} {
			expect("tcp") // dial ends its context, like callers do
			expect("tcp") // no other attempt meanwhile
			time.Sleep(w.udp.takes)
			synctest.Wait()
			if made := w.udp.made[len(w.udp.made)-1]; !made.aborted || w.whyTCP("lte") != errUDPLate.Error() {
				t.Errorf("it is ended: %v; %q", made.aborted, w.whyTCP("lte"))
			}
		}
		w.udp.takes = 20 * ms
		expect("udp")
		w.udp.takes = udpHeadStart + 10*ms + lateUDPTimeout + ms
		expect("tcp")
		time.Sleep(2 * lateUDPTimeout)
		w.udp.takes = 20 * ms
		expect("tcp")
		if n := len(w.udp.made); n != 3 || !strings.Contains(w.whyTCP("lte"), "no answer over UDP within 300ms") {
			t.Errorf("%d connections over UDP, %q", n, w.whyTCP("lte"))
		}
	})
}

// TestReportEnded checks that UDP backs off if connections in a row soon fall silent, but not if
// others came between, if they began together, or if they had lasted.
func TestReportEnded(t *testing.T) {
	silent := errors.New("nothing came")
	type end struct {
		began, ended time.Duration
		err          error
	}
	for name, c := range map[string]struct {
		ends  []end
		rests bool
	}{
		"one":     {[]end{{0, 5 * time.Second, silent}}, false},
		"two":     {[]end{{0, 5 * time.Second, silent}, {6 * time.Second, 30 * time.Second, silent}}, true},
		"at once": {[]end{{0, 5 * time.Second, silent}, {ms, 5 * time.Second, silent}}, false},
		"another": {[]end{{0, 5 * time.Second, silent}, {6 * time.Second, 7 * time.Second, nil},
			{8 * time.Second, 12 * time.Second, silent}}, false},
		"long after": {[]end{{0, 5 * time.Second, silent}, {6 * time.Second, 67 * time.Second, silent}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, began := newDialTest(t), time.Now()
				for _, e := range c.ends {
					conn, err := w.d.Dial(t.Context(), "home:7600", tcp.Options{})
					if err != nil {
						t.Fatal(err)
					}
					time.Sleep(e.ended - time.Since(began))
					w.d.ReportEnded(conn, began.Add(e.began), e.err)
				}
				if why := w.whyTCP("lte"); strings.Contains(why, silent.Error()) != c.rests {
					t.Errorf("%q", why)
				}
				for i := range 2 * maxRoutes {
					w.at.localAddr = netip.AddrFrom4([4]byte{10, 8, 0, byte(i)})
					conn, err := w.d.Dial(t.Context(), "home:7600", tcp.Options{})
					if err != nil {
						t.Fatal(err)
					}
					w.d.ReportEnded(conn, time.Now(), silent)
				}
				if len(w.d.silences) > maxRoutes {
					t.Errorf("%d ways are remembered", len(w.d.silences))
				}
				w.d.ReportEnded(&net.TCPConn{}, began, silent)
			})
		})
	}
}

// TestWhyTCP checks that the reason belongs to the connection's route.
func TestWhyTCP(t *testing.T) {
	d := &Dialer{}
	d.recordUDPFailure(route{"lte", "home:7600", netip.MustParseAddr("10.0.0.1")}, errors.New("blocked"))
	for _, c := range []struct {
		link, local string
		want        bool
	}{
		{"lte", "10.0.0.1:1", true}, {"", "10.0.0.1:1", true}, {"wifi", "10.0.0.1:1", false},
		{"lte", "10.0.0.2:1", false}, {"", "10.0.0.2:1", false}, {"lte", "[2001:db8::1]:1", true},
	} {
		local := net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.local))
		if why := d.WhyTCP(c.link, local); (why != "") != c.want {
			t.Errorf("%+v: %q", c, why)
		}
	}
}

// TestUDPBackoff checks that failed UDP is not tried for a while on that route, longer after each
// failure, and is used again when it works.
func TestUDPBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDialTest(t)
		w.udp.takes, w.tcp.takes = -1, 10*ms
		expect := func(over string, took time.Duration) {
			t.Helper()
			if o, d, err := w.dialOnce(); o != over || d != took || err != nil {
				t.Errorf("over %q after %v, %v; want %q after %v", o, d, err, over, took)
			}
		}
		for long := minUDPBackoff; long < 2*maxUDPBackoff; long *= 2 {
			long := min(long, maxUDPBackoff)
			expect("tcp", udpHeadStart+10*ms)
			if why := w.whyTCP("lte"); !strings.Contains(why, "300ms") ||
				!strings.Contains(why, long.String()) || w.whyTCP("wifi") != "" {
				t.Errorf("%q", why)
			}
			expect("tcp", 10*ms)
			time.Sleep(long - 20*ms)
			expect("tcp", 10*ms)
			time.Sleep(10 * ms)
		}
		w.udp.takes = 20 * ms
		expect("udp", 20*ms)
		if w.whyTCP("") != "" {
			t.Error(w.whyTCP(""))
		}
		w.udp.takes = -1
		expect("tcp", udpHeadStart+10*ms) // and for the shortest time again
		if !strings.Contains(w.whyTCP(""), minUDPBackoff.String()) {
			t.Error(w.whyTCP(""))
		}
		w.at.localAddr = netip.MustParseAddr("10.7.0.1") // another network
		w.udp.takes = 20 * ms
		expect("udp", 20*ms)
		for i := range 2 * maxRoutes {
			w.at.localAddr = netip.AddrFrom4([4]byte{10, 8, 0, byte(i)})
			w.udp.takes = -1
			expect("tcp", udpHeadStart+10*ms)
		}
		if len(w.d.udpBackoffs) > maxRoutes {
			t.Errorf("%d ways are remembered", len(w.d.udpBackoffs))
		}
	})
}

// TestUDPLinks checks that UDP is tried only on the configured interfaces.
func TestUDPLinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for over, want := range map[string]string{"lte": "udp", "wifi": "tcp", Any: "udp", "": "tcp"} {
			w := newDialTest(t)
			if w.d.UDPLinks = nil; over != "" {
				w.d.UDPLinks = []string{over}
			}
			if got, _, err := w.dialOnce(); got != want || err != nil {
				t.Errorf("%q: over %q, %v", over, got, err)
			}
			if c, err := w.d.Dial(t.Context(), "home:7600", tcp.Options{Interface: "eth0"}); err != nil ||
				over != Any && w.udp.tries > 1 {
				t.Errorf("%q: %v, %v", over, c, err)
			}
		}
		w := newDialTest(t)
		if w.d.UDP = nil; true {
			if got, _, err := w.dialOnce(); got != "tcp" || err != nil {
				t.Errorf("over %q, %v", got, err)
			}
		}
	})
}

// TestMove checks that a connection moves to another address of its interface only, and that a
// silent one makes UDP back off on its current route.
func TestMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDialTest(t)
		c, err := w.d.Dial(t.Context(), "home:7600", tcp.Options{})
		if err != nil {
			t.Fatal(err)
		}
		home := w.at
		w.at.link = "wifi"
		if err := Move(c); err != ErrElsewhere || w.udp.made[0].moved {
			t.Errorf("by another interface: %v", err)
		}
		w.at = home
		w.at.localAddr = netip.MustParseAddr("10.0.0.21")
		if err := Move(c); err != nil || !w.udp.made[0].moved {
			t.Errorf("by its own: %v", err)
		}
		w.d.ReportSilent(c, errors.New("nothing came"))
		if over, _, _ := w.dialOnce(); over != "tcp" {
			t.Errorf("over %s where nothing came over UDP", over)
		}
		w.at = home
		if over, _, _ := w.dialOnce(); over != "udp" {
			t.Errorf("over %s from where it was before", over)
		}
		var direct net.Conn = &net.TCPConn{}
		if err := Move(direct); err != errors.ErrUnsupported {
			t.Errorf("over TCP: %v", err)
		}
		w.d.ReportSilent(direct, nil)
	})
}

// TestRedialUDP checks that a connection over TCP retries UDP only after the backoff.
func TestRedialUDP(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDialTest(t)
		w.udp.takes, w.tcp.takes = -1, 10*ms
		if over, _, _ := w.dialOnce(); over != "tcp" {
			t.Fatalf("over %q", over)
		}
		again := func(ok bool, tries int) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if c := w.d.RedialUDP(ctx, "home:7600", tcp.Options{}); (c != nil) != ok || w.udp.tries != tries ||
				w.tcp.tries != 1 {
				t.Errorf("%v after %d tries, %d of TCP", c, w.udp.tries, w.tcp.tries)
			}
		}
		again(false, 1)
		time.Sleep(minUDPBackoff)
		again(false, 2)
		time.Sleep(minUDPBackoff)
		again(false, 2) // the backoff has doubled
		time.Sleep(minUDPBackoff)
		w.udp.takes = 20 * ms
		again(true, 3)
		if why := w.whyTCP(""); why != "" {
			t.Error(why)
		}
		w.udp.takes = -1
		cancelled, cancel := context.WithCancel(t.Context())
		cancel()
		if w.d.RedialUDP(cancelled, "home:7600", tcp.Options{}) != nil || w.whyTCP("") != "" {
			t.Error("what was cancelled says nothing of UDP")
		}
	})
}

// carryingConn is a connection that reads a few bytes once and then only fails.
type carryingConn struct {
	Conn
	read bool
}

func (*carryingConn) LocalAddr() net.Addr { return &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

func (c *carryingConn) Read(p []byte) (int, error) {
	if c.read {
		return 0, io.EOF
	}
	c.read = true
	return len(p), nil
}

func (*carryingConn) Write(p []byte) (int, error) { return len(p), nil }

// TestCountedConnWakesClock checks that a counted connection ends idleness when it carries bytes, and only then.
func TestCountedConnWakesClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock := pace.New()
		clock.AllowIdle(true)
		usage := device.NewUsage(slog.New(slog.DiscardHandler))
		usage.SetClock(clock)
		c := Count(&carryingConn{}, usage, policy.ForHSPath)
		tick := clock.NewTicker(time.Second)
		defer tick.Stop()
		for _, step := range []struct {
			name  string
			run   func([]byte) (int, error)
			wakes bool
		}{{"a read", c.Read, true}, {"a read at the end", c.Read, false}, {"a write", c.Write, true}} {
			time.Sleep(2*pace.IdleInterval + pace.IdleInterval/2)
			for len(tick.C) > 0 {
				<-tick.C
			}
			_, _ = step.run(make([]byte, 10))
			if wakes := len(tick.C) > 0; wakes != step.wakes {
				t.Errorf("%s wakes: %v", step.name, wakes)
			}
		}
	})
}
