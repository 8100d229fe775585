package tcp

import (
	"testing"

	"golang.org/x/sys/unix"

	"mpbond/unit"
)

// TestCarriedSizes: packets are counted with their headers. How well that is
// what interfaces count is tested in package e2e, as TestUsage.
func TestCarriedSizes(t *testing.T) {
	i := unix.TCPInfo{Options: 1, Bytes_sent: 1000, Segs_out: 3, Bytes_received: 5000, Segs_in: 7, Snd_mss: 1448, Notsent_bytes: 1449}
	for _, c := range []struct {
		name             string
		change           func(*unix.TCPInfo)
		ipv6             bool
		in, out, pending unit.Bytes
	}{
		{"IPv4", func(*unix.TCPInfo) {}, false, 5000 + 7*52 + 8, 1000 + 3*52 + 8, 1449 + 2*52},
		{"IPv6", func(*unix.TCPInfo) {}, true, 5000 + 7*72 + 8, 1000 + 3*72 + 8, 1449 + 2*72},
		{"without time stamps", func(i *unix.TCPInfo) { i.Options = 0 }, false, 5000 + 7*40 + 8, 1000 + 3*40 + 8, 1449 + 2*40},
		{"packets were missing", func(i *unix.TCPInfo) { i.Rcv_ooopack = 2 }, false, 5000 + 7*52 + 8, 1000 + 3*52 + 8 + 2*12, 1449 + 2*52},
		{"Linux 4.14", func(i *unix.TCPInfo) { i.Bytes_sent, i.Bytes_acked, i.Total_retrans, i.Unacked = 0, 1001, 2, 3 }, false, 5000 + 7*52 + 8, 1001 + 5*1448 + 3*52 + 8, 1449 + 2*52},
		{"only SYN and FIN were sent", func(i *unix.TCPInfo) { i.Bytes_sent, i.Bytes_acked, i.Total_retrans = 0, 2, 1 }, false, 5000 + 7*52 + 8, 3*52 + 8, 1449 + 2*52},
		{"nothing waits", func(i *unix.TCPInfo) { i.Notsent_bytes = 0 }, false, 5000 + 7*52 + 8, 1000 + 3*52 + 8, 0},
	} {
		j := i
		c.change(&j)
		if in, out, pending := carried(&j, c.ipv6); in != c.in || out != c.out || pending != c.pending {
			t.Errorf("%s: %d, %d, %d; want %d, %d, %d", c.name, in, out, pending, c.in, c.out, c.pending)
		}
	}
}

// book is a Ledger that notes what it is told.
type book struct {
	opened, closing int
	carried         unit.Bytes
}

func (b *book) Opened(*Conn) { b.opened++ }

func (b *book) Closing(c *Conn) {
	b.closing++
	_, b.carried, _, _ = c.Carried()
}

// TestLedger: each connection is told of once when it is there and once before
// it is gone, with what it carried.
func TestLedger(t *testing.T) {
	for name, end := range map[string]func(*Conn) error{"close": (*Conn).Close, "abort": (*Conn).Abort} {
		for _, dials := range []bool{false, true} {
			b := &book{}
			accepting, dialling := Options{}, Options{Ledger: b}
			if !dials {
				accepting, dialling = dialling, accepting
			}
			l, err := Listen(t.Context(), "127.0.0.1:0", accepting)
			if err != nil {
				t.Fatal(err)
			}
			c, err := Dial(t.Context(), l.Addr().String(), dialling)
			if err != nil {
				t.Fatal(err)
			}
			a, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			if !dials {
				a, c = c, a // c is the one of the ledger
			}
			if c.Peer() != "" {
				t.Errorf("it is for %q", c.Peer())
			}
			if c.For("somebody"); c.Peer() != "somebody" {
				t.Errorf("it is for %q", c.Peer())
			}
			if b.opened != 1 || b.closing != 0 {
				t.Errorf("%s: %+v", name, b)
			}
			if _, err := c.Write(make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
			_ = end(c)
			_ = c.Close()
			_ = c.Abort()
			if b.opened != 1 || b.closing != 1 || b.carried < 1000 || b.carried > 2000 {
				t.Errorf("%s: %+v", name, b)
			}
			a.Close()
			l.Close()
		}
	}
}
