// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"mpbond/base/unit"
)

// TestCarriedSizes checks that packets are counted with their headers.
func TestCarriedSizes(t *testing.T) {
	i := unix.TCPInfo{Options: 1, Bytes_sent: 1000, Unacked: 1, Segs_out: 3, Bytes_received: 5000, Segs_in: 7,
		Snd_mss: 1448, Notsent_bytes: 1449}
	for _, c := range []struct {
		name             string
		change           func(*unix.TCPInfo)
		ipv6             bool
		in, out, pending unit.Bytes
	}{
		{"IPv4", func(*unix.TCPInfo) {}, false, 5000 + 7*52 + 8, 1000 + 3*52 + 8, 1449 + 2*52},
		{"IPv6", func(*unix.TCPInfo) {}, true, 5000 + 7*72 + 8, 1000 + 3*72 + 8, 1449 + 2*72},
		{"without time stamps", func(i *unix.TCPInfo) { i.Options = 0 }, false, 5000 + 7*40 + 8,
			1000 + 3*40 + 8, 1449 + 2*40},
		{"packets were missing", func(i *unix.TCPInfo) { i.Rcv_ooopack = 2 }, false, 5000 + 7*52 + 8,
			1000 + 3*52 + 8 + 2*12, 1449 + 2*52},
		{"Linux 4.14", func(i *unix.TCPInfo) {
			i.Bytes_sent, i.Bytes_acked, i.Total_retrans, i.Unacked = 0,
				1001, 2, 3
		}, false, 5000 + 7*52 + 8, 1001 + 5*1448 + 3*52 + 8, 1449 + 2*52},
		{"only SYN and FIN were sent", func(i *unix.TCPInfo) {
			i.Bytes_sent, i.Bytes_acked, i.Total_retrans = 0,
				2, 1
		}, false, 5000 + 7*52 + 8, 3*52 + 8, 1449 + 2*52},
		{"the interface's queue refused some", func(i *unix.TCPInfo) {
			i.Bytes_sent, i.Bytes_acked, i.Unacked, i.Bytes_retrans, i.Segs_out = 20*1448, 4*1448, 2, 1448, 22
		}, false, 5000 + 7*52 + 8, 7*1448 + 9*52 + 8, 1449 + 2*52},
		{"nothing waits", func(i *unix.TCPInfo) { i.Notsent_bytes = 0 }, false, 5000 + 7*52 + 8, 1000 + 3*52 + 8, 0},
	} {
		j := i
		c.change(&j)
		if in, out, pending := carriedBytes(&j, refusedBytes(&j), c.ipv6); in != c.in || out != c.out ||
			pending != c.pending {
			t.Errorf("%s: %d, %d, %d; want %d, %d, %d", c.name, in, out, pending, c.in, c.out, c.pending)
		}
	}
}

// TestCarriedShaped checks that packets which this device's own queue refuses are not counted,
// although TCP counts each attempt.
func TestCarriedShaped(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root may make a network of its own")
	}
	t.Parallel()
	runtime.LockOSThread() // never unlocked: the thread ends with the test, and so does its network
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	for _, c := range []string{"ip link set lo up mtu 1500",
		"tc qdisc add dev lo root tbf rate 8mbit burst 70k latency 50ms"} {
		f := strings.Fields(c)
		if out, err := exec.Command(f[0], f[1:]...).CombinedOutput(); err != nil {
			t.Skipf("%s: %s", c, out)
		}
	}
	l, err := Listen(t.Context(), "127.0.0.1:0", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := Dial(t.Context(), l.Addr().String(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	const size = 2 << 20
	go func() { _, _ = c.Write(make([]byte, size)); _ = c.CloseWrite() }()
	if n, err := io.Copy(io.Discard, far); n != size || err != nil {
		t.Fatalf("%d bytes came: %v", n, err)
	}
	list, err := os.ReadFile("/proc/thread-self/net/dev")
	if err != nil {
		t.Fatal(err)
	}
	_, row, _ := strings.Cut(string(list), "lo:")
	left, err := strconv.Atoi(strings.Fields(row)[8])
	if err != nil {
		t.Fatal(err)
	}
	_, out, _, err := c.Carried()
	_, back, _, err2 := far.Carried()
	// The device counts one header for several segments.
	if share := float64(out+back) / float64(left); err != nil || err2 != nil || share < 0.97 || share > 1.12 {
		t.Errorf("%d bytes left, and %d are counted: %v, %v", left, out+back, err, err2)
	}
}

// countingLedger is a Ledger that records its calls.
type countingLedger struct {
	opened, closing int
	carrying        int
	carried         unit.Bytes
}

func (b *countingLedger) Opened(*Conn) { b.opened++ }

func (b *countingLedger) Carrying() { b.carrying++ }

func (b *countingLedger) Closing(c *Conn) {
	b.closing++
	_, b.carried, _, _ = c.Carried()
}

// TestLedger checks that the ledger gets each connection once when it is ready and once before it
// closes, with its traffic.
func TestLedger(t *testing.T) {
	for name, end := range map[string]func(*Conn) error{"close": (*Conn).Close, "abort": (*Conn).Abort} {
		for _, dials := range []bool{false, true} {
			b := &countingLedger{}
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
				a, c = c, a // c is the connection with the ledger
			}
			if c.Peer() != "" {
				t.Errorf("it is for %q", c.Peer())
			}
			if c.SetPeerName("somebody"); c.Peer() != "somebody" {
				t.Errorf("it is for %q", c.Peer())
			}
			if b.opened != 1 || b.closing != 0 {
				t.Errorf("%s: %+v", name, b)
			}
			if _, err := c.Write(make([]byte, 1000)); err != nil || b.carrying != 1 {
				t.Fatalf("%v, %+v", err, b)
			}
			if _, err := a.Write([]byte("1")); err != nil {
				t.Fatal(err)
			}
			if _, err := c.Read(make([]byte, 1)); err != nil || b.carrying != 2 {
				t.Fatalf("%v, %+v", err, b)
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
