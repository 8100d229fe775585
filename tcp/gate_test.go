package tcp

import (
	"net"
	"testing"
	"testing/synctest"
	"time"
)

func TestSource(t *testing.T) {
	for in, want := range map[string]string{"192.0.2.7:1": "192.0.2.7/32", "[::ffff:192.0.2.7]:1": "192.0.2.7/32", "[2001:db8:1:2:3::4]:1": "2001:db8:1:2::/64", "[fe80::1%7]:1": "fe80::/64"} {
		a, err := net.ResolveTCPAddr("tcp", in)
		if err != nil {
			t.Fatal(err)
		}
		if got := Source(a).String(); got != want {
			t.Errorf("%s: %s", in, got)
		}
	}
}

// TestGate: one source leaves places to others, which are so many in all, and
// who leaves makes room.
func TestGate(t *testing.T) {
	g := NewGate(3, 2, 100)
	at := func(last byte) net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, last), Port: 1} }
	leave := g.Admit(at(1))
	if leave == nil || g.Admit(at(1)) == nil {
		t.Fatal("no place at first")
	}
	if g.Admit(at(1)) != nil {
		t.Error("one source has them all")
	}
	other := g.Admit(&net.UnixAddr{})
	if other == nil {
		t.Error("none is left for another source")
	}
	if g.Admit(at(2)) != nil {
		t.Error("one too many")
	}
	leave()
	if g.Admit(at(1)) == nil {
		t.Error("who has left makes no room")
	}
	other()
	if len(g.sources) != 1 || g.inside != 2 {
		t.Errorf("%d inside, of %v", g.inside, g.sources)
	}
}

// TestGateOverTime: who comes again and again is let in so often in a minute, and
// others are not kept out by that; who is turned away uses nothing up.
func TestGateOverTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewGate(3, 2, 10)
		at := func(last byte) net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, last), Port: 1} }
		let := func(from net.Addr, most time.Duration) (in int) {
			for began := time.Now(); time.Since(began) < most; time.Sleep(100 * time.Millisecond) {
				if leave := g.Admit(from); leave != nil {
					in++
					leave()
				}
			}
			return in
		}
		if in := let(at(1), time.Minute); in != 10 {
			t.Errorf("%d in the first minute", in)
		}
		if in := let(at(1), 10*time.Minute); in < 95 || in > 110 {
			t.Errorf("%d in ten minutes", in)
		}
		if in := let(at(2), time.Second); in != 10 {
			t.Errorf("%d of another source", in)
		}
		time.Sleep(time.Minute)
		leave := g.Admit(at(3))
		other := g.Admit(at(3))
		for range 100 {
			if g.Admit(at(3)) != nil {
				t.Fatal("more at once than may be")
			}
		}
		leave()
		other()
		if in := let(at(3), time.Second); in != 8 {
			t.Errorf("%d after two", in)
		}
	})
}

// TestTriesAreBounded: so many are remembered, for a minute; more of them have
// something too, together.
func TestTriesAreBounded(t *testing.T) {
	now := time.Unix(1e9, 0)
	tries := Tries[int]{PerMinute: 5}
	in := 0
	for i := range 2 * maxTried {
		if tries.Take(i, now) {
			in++
		}
	}
	if in != maxTried+5 || len(tries.made) != maxTried {
		t.Errorf("%d were let in, %d are remembered", in, len(tries.made))
	}
	if !tries.Take(7, now) {
		t.Error("the others keep one out that was there before")
	}
	if now = now.Add(time.Minute); !tries.Take(2*maxTried, now) || len(tries.made) != 1 {
		t.Errorf("a minute later %d are remembered", len(tries.made))
	}
}
