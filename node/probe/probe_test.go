// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/api"
	"mpbond/base/unit"
)

func TestDest(t *testing.T) {
	for dest, want := range map[string]uint32{Dest(7): 7, Dest(1<<32 - 1): 1<<32 - 1,
		"0.measure.mpbond.invalid:1": 0, "-1.measure.mpbond.invalid:1": 0,
		"4294967296.measure.mpbond.invalid:1": 0, "7.measure.mpbond.invalid:80": 0,
		"7.measure.mpbond.example:1": 0, "": 0, "example.org:443": 0} {
		if got, ok := SubflowOf(dest); ok != (want != 0) || ok && got != want {
			t.Errorf("%q: %d, %v", dest, got, ok)
		}
	}
}

func TestMeter(t *testing.T) {
	var m rateMeter
	start := time.Unix(0, 0)
	if m.rateAfterSlowStart() != 0 || m.totalArrived() != 0 || m.bytesSince(start) != 0 {
		t.Error("a rate of nothing")
	}
	for i := range 300 { // a second at 0.8 Mbit/s, and then two at 8
		n := unit.Bytes(1000)
		if i >= 100 {
			n = 10_000
		}
		m.addArrivedBytes(start.Add(time.Duration(i)*10*time.Millisecond), n)
	}
	if r := m.rateAfterSlowStart(); r < 7900*unit.Kbps || r > 8100*unit.Kbps {
		t.Errorf("steady %v", r)
	}
	if n := m.bytesSince(start.Add(2 * time.Second)); n != 990_000 || m.totalArrived() != 2_100_000 {
		t.Errorf("%d in the last second, %d in all", n, m.totalArrived())
	}
	for range 10_000 {
		m.addArrivedBytes(start.Add(3*time.Second), 1)
	}
	if len(m.at) > 310 || m.totalArrived() != 2_110_000 {
		t.Errorf("%d marks, %d bytes", len(m.at), m.totalArrived())
	}
}

func TestParseBusy(t *testing.T) {
	a, b := parseProcStat("cpu  100 0 50 800 50 0 0 0 0 0"), parseProcStat("cpu  170 0 70 900 60 0 0 0 0 0")
	if s := a.busyShareUntil(b); s < 0.44 || s > 0.46 { // 90 of 200
		t.Errorf("%v", s)
	}
	for _, bad := range []string{"", "cpu 1 2", "cpu a b c d e f g h", "cpu0 1 2 3 4 5 6 7 8"} {
		if parseProcStat(bad) != (CPUTimes{}) {
			t.Errorf("%q was taken", bad)
		}
	}
	if s := b.busyShareUntil(a); s != 0 {
		t.Errorf("time went back: %v", s)
	}
}

// shapedPair returns a connection with a rate in each direction and a deep buffer, in virtual time.
func shapedPair(t *testing.T, down, up unit.Rate) (near, far net.Conn) {
	near, a := net.Pipe()
	b, far := net.Pipe()
	carry := func(to, from net.Conn, r unit.Rate) {
		defer to.Close()
		deep := make(chan []byte, 1<<16)
		go func() {
			defer close(deep)
			for {
				p := make([]byte, 1400)
				n, err := from.Read(p)
				if n > 0 {
					deep <- p[:n]
				}
				if err != nil {
					return
				}
			}
		}()
		for p := range deep {
			time.Sleep(r.Time(unit.Bytes(len(p))))
			if _, err := to.Write(p); err != nil {
				from.Close()
				for range deep {
				}
				return
			}
		}
	}
	go carry(a, b, down)
	go carry(b, a, up)
	t.Cleanup(func() {
		near.Close()
		far.Close()
		time.Sleep(time.Minute) // until the data in flight has arrived
	})
	return near, far
}

// TestMeasure checks that the rates are those of the link, within the requested time, whatever it
// buffers, and that the server's facts arrive.
func TestMeasure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			direction string
			want      unit.Rate
		}{{Down, 8 * unit.Mbps}, {Up, unit.Mbps}} {
			near, far := shapedPair(t, 8*unit.Mbps, unit.Mbps)
			waits := 0.0
			f := ServerSide{Version: "1.2.3", Seen: "192.0.2.1:99",
				Now: func() time.Time { return time.Now().Add(time.Hour) }, Hop: func() *api.Hop {
					waits = 100 - waits // every second sample has a backlog at the helper
					return &api.Hop{MTU: 1400, FarWaitMs: waits}
				}}
			served := make(chan error, 1)
			go func() { served <- Serve(t.Context(), far, f) }()
			begin := time.Now()
			a, err := Measure(t.Context(), near, Request{Direction: c.direction, Bytes: 16 * unit.MB, Ms: 3000},
				time.Now)
			if err != nil {
				t.Fatal(c.direction, err)
			}
			if err := <-served; err != nil {
				t.Error(c.direction, err)
			}
			if took := time.Since(begin); took < 3*time.Second || took > 5*time.Second {
				t.Errorf("%s took %v", c.direction, took)
			}
			if a.Rate < c.want*95/100 || a.Rate > c.want*101/100 {
				t.Errorf("%s: %v instead of %v", c.direction, a.Rate, c.want)
			}
			if off := a.ClockAhead - time.Hour; off > a.RTT/2+time.Millisecond ||
				off < -a.RTT/2-time.Millisecond || a.Version != "1.2.3" || a.Seen != "192.0.2.1:99" ||
				a.Hop.MTU != 1400 {
				t.Errorf("%s: %+v", c.direction, a)
			}
			if share := a.FarShare; c.direction == Down && (share < 0.4 || share > 0.6) {
				t.Errorf("bytes waited for %v of the time", share)
			}
			near.Close()
			far.Close()
		}
	})
}

// TestBytesAreBounded checks that a measurement costs no more than its limit on a fast link.
func TestBytesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, direction := range []string{Down, Up} {
			near, far := shapedPair(t, unit.Gbps, unit.Gbps)
			go func() { _ = Serve(t.Context(), far, ServerSide{Hop: func() *api.Hop { return nil }}) }()
			a, err := Measure(t.Context(), near, Request{Direction: direction, Bytes: 200_000, Ms: 5000}, time.Now)
			if err != nil || a.Bytes < 200_000 || a.Bytes > 200_000+maxBlock {
				t.Errorf("%s: %v, %v", direction, a.Bytes, err)
			}
			near.Close()
			far.Close()
		}
	})
}

// TestMeasureWithoutRate measures without a transfer and asks for the resolver.
func TestMeasureWithoutRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := shapedPair(t, unit.Mbps, unit.Mbps)
		go func() { _ = Serve(t.Context(), far, ServerSide{Version: "x", Hop: func() *api.Hop { return nil }}) }()
		if a, err := Measure(t.Context(), near, Request{}, time.Now); err != nil || a.Version != "x" ||
			a.Hop != nil || a.Bytes != 0 {
			t.Errorf("%+v, %v", a, err)
		}
	})
}

// TestHostileClient checks that excessive requests are reduced, and that invalid or silent clients
// are dropped.
func TestHostileClient(t *testing.T) {
	if a := (Request{Bytes: 1 << 60, Ms: 1 << 60}).clampedToLimits(); a.Bytes != MaxBytes ||
		a.Ms != MaxTime.Milliseconds() {
		t.Errorf("%+v", a)
	}
	if a := (Request{Bytes: -1, Ms: -1}).clampedToLimits(); a.Bytes != 0 || a.Ms != 0 {
		t.Errorf("%+v", a)
	}
	for name, says := range map[string]string{"nothing": "", "garbage": "GET / HTTP/1.1\r\n\r\n",
		"a long line":     strings.Repeat("x", 9000),
		"no confirmation": `{"direction":"down","bytes":1000000,"ms":1000}` + "\n",
		"a wrong one":     `{"direction":"down","bytes":1000000,"ms":1000}` + "\n\x02",
		"blocks too long": `{"direction":"up","bytes":1000000,"ms":1000}` + "\n\xff\xff",
		"too many blocks": `{"direction":"up","bytes":10,"ms":1000}` + "\n" +
			strings.Repeat("\x40\x00"+strings.Repeat("x", maxBlock), 3)} {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			defer near.Close()
			defer far.Close()
			go func() { _, _ = io.WriteString(near, says) }()
			go func() { _, _ = io.Copy(io.Discard, near) }()
			begin := time.Now()
			if err := Serve(t.Context(), far, ServerSide{Hop: func() *api.Hop { return nil }}); err == nil {
				t.Errorf("%s was served", name)
			}
			if took := time.Since(begin); took > MaxTime+answerTimeout {
				t.Errorf("%s took %v", name, took)
			}
		})
	}
}

// TestEnds checks that both sides end with their contexts.
func TestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := shapedPair(t, unit.Mbps, unit.Mbps)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		served := make(chan error, 1)
		go func() { served <- Serve(ctx, far, ServerSide{Hop: func() *api.Hop { return nil }}) }()
		if _, err := Measure(ctx, near, Request{Direction: Down, Bytes: MaxBytes, Ms: 10_000}, time.Now); err == nil {
			t.Error("no error")
		}
		if err := <-served; err == nil {
			t.Error("no error at the server")
		}
	})
}
