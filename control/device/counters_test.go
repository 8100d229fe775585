// SPDX-License-Identifier: Apache-2.0

package device

import (
	"net"
	"runtime"
	"testing"
)

const sample = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|` +
	`bytes    packets errs drop fifo colls carrier compressed
    lo:  1000       2    0    0    0     0          0         0     1000       2    0    0    0     0       0          0
wlan0:18446744073709551615 9 0 0 0 0 0 0 77 1 0 0 0 0 0 0
eth0:1: 5 1 0 0 0 0 0 0 6 1 0 0 0 0 0 0
`

func TestParseCounters(t *testing.T) {
	got, err := parseCounters([]byte(sample))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]Counters{"lo": {1000, 1000}, "wlan0": {1<<64 - 1, 77}, "eth0:1": {5, 6}} {
		if got[name] != want {
			t.Errorf("%s: %+v, want %+v", name, got[name], want)
		}
	}
	for _, bad := range []string{"x", "lo: 1 2 3", "lo: a 2 3 4 5 6 7 8 9", "lo: 1 2 3 4 5 6 7 8 -9"} {
		if _, err := parseCounters([]byte("\n\n" + bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// TestOwn asks about loopback, by a connection that it makes.
func TestOwn(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux has these counters")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	name := InterfaceOf(l.Addr())
	before, err := ReadCounters()
	if err != nil || name == "" {
		t.Fatal(name, err)
	}
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(make([]byte, 10_000)); err != nil {
		t.Fatal(err)
	}
	after, err := ReadCounters()
	if err != nil || after[name].Rx < before[name].Rx+10_000 || after[name].Tx < before[name].Tx+10_000 {
		t.Errorf("%s before %+v, after %+v, %v", name, before[name], after[name], err)
	}
	if got := InterfaceOf(&net.TCPAddr{IP: net.IPv4(192, 0, 2, 9), Port: 1}); got != "" {
		t.Errorf("an address of nobody is on %q", got)
	}
}
