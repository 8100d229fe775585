package tcp

import (
	"net"
	"testing"
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
	g := NewGate(3, 2)
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
