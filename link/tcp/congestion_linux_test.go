// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"io"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/link/congestion"
)

// choosingPair returns a pair of connections whose hop chooses the congestion control.
func choosingPair(t *testing.T) (a, b *Conn) {
	t.Helper()
	if !mayUseBBR() {
		t.Skip("this process may not use BBR")
	}
	if checkCongestion(congestion.CUBIC.String()) != nil {
		t.Skip("this process may not use CUBIC")
	}
	a, b = connPair(t, Options{})
	for _, c := range []*Conn{a, b} {
		if c.congestion != nil {
			continue
		}
		// The system's default is not CUBIC: begin as if it were.
		if err := controlRawConn(c.raw, func(fd int) error { return setCongestionName(fd, "cubic") }); err != nil {
			t.Fatal(err)
		}
		c.startCongestionChoice()
	}
	return a, b
}

func forgetHops() {
	hopMemories.Lock()
	clear(hopMemories.byHop)
	hopMemories.Unlock()
}

// TestCongestionFollowsHop checks that a choice reaches the kernel, that the next connection of the
// hop begins with it, and that a connection carries data meanwhile.
func TestCongestionFollowsHop(t *testing.T) {
	t.Cleanup(forgetHops)
	forgetHops()
	a, b := choosingPair(t)
	expect := func(c *Conn, want string) {
		t.Helper()
		name, err := c.congestionName()
		choice, ok := c.CongestionChoice()
		if err != nil || name != want || !ok || choice.Algorithm.String() != want {
			t.Errorf("kernel %s (%v), choice %v %v, want %s", name, err, choice, ok, want)
		}
	}
	expect(a, "cubic")
	// What a lossy hop would have shown until now: one loss less than BBR needs.
	s := congestion.Sample{SRTT: 50 * time.Millisecond, MinRTT: 50 * time.Millisecond, InFlight: 50}
	for a.congestion.selector.Choice().Algorithm == congestion.CUBIC {
		s.At += time.Second
		s.Sent += 100
		s.Lost++
		a.congestion.selector.Add(s)
	}
	hopMemories.byHop[a.congestion.hop] = a.congestion.selector.Memory()
	next, _ := choosingPair(t)
	expect(next, "bbr")
	const n = 8 << 20
	go func() {
		for range n >> 16 {
			if _, err := a.Write(make([]byte, 1<<16)); err != nil {
				t.Error(err)
			}
		}
	}()
	if _, err := io.CopyN(io.Discard, b, n); err != nil {
		t.Fatal(err)
	}
}

// TestCongestionIsFixed checks that a named congestion control stays.
func TestCongestionIsFixed(t *testing.T) {
	a, _ := connPair(t, Options{Congestion: "reno"})
	if name, err := a.congestionName(); name != "reno" || err != nil {
		t.Error(name, err)
	}
	if _, ok := a.CongestionChoice(); ok {
		t.Error("the hop chooses")
	}
}

func TestHopKey(t *testing.T) {
	a, b := connPair(t, Options{})
	if k := a.congestionHopKey(); k.local != "127.0.0.1" || k.peer.String() != "127.0.0.1" ||
		k != b.congestionHopKey() {
		t.Errorf("%+v, %+v", k, b.congestionHopKey())
	}
	a.device = "wlan0"
	if k := a.congestionHopKey(); k.local != "wlan0" {
		t.Errorf("%+v", k)
	}
}

// TestSampleReadsKernel checks the counters of a sample.
func TestSampleReadsKernel(t *testing.T) {
	a, b := connPair(t, Options{})
	var s congestion.Sample
	read := func() error {
		return controlRawConn(a.raw, func(fd int) (err error) { s, err = readCongestionSample(fd); return err })
	}
	send := func(n unit.Bytes) {
		go func() { _, _ = a.Write(make([]byte, n)) }()
		if _, err := io.CopyN(io.Discard, b, int64(n)); err != nil {
			t.Fatal(err)
		}
	}
	send(1)
	if err := read(); err != nil || !s.SlowStart {
		t.Errorf("at first %+v, %v", s, err)
	}
	send(unit.MB)
	err := read()
	if err != nil || s.Sent == 0 || s.Lost > s.Sent || s.SRTT <= 0 || s.MinRTT <= 0 || s.Window <= 0 {
		t.Errorf("%+v, %v", s, err)
	}
}
