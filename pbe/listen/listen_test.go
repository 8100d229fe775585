// SPDX-License-Identifier: Apache-2.0

package listen

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/pbe/cc"
	"mpbond/pbe/cell"
)

const (
	ms = time.Millisecond
	me = cell.RNTI(500)
)

// testDecoder writes a recording as a decoder does: a cell of 50 PRB, of which the device has 25
// and the rest is idle, with 600 bits each: C_p is 30 Mbit/s.
type testDecoder struct {
	w      *cell.Writer
	number int64
	prb    uint8 // of the device, if not 25
}

func newTestDecoder(t *testing.T, to io.Writer) *testDecoder {
	t.Helper()
	w, err := cell.NewWriter(to, [cell.MaxCells]uint8{50})
	if err != nil {
		t.Fatal(err)
	}
	return &testDecoder{w: w, number: 1}
}

func (s *testDecoder) writeSelf(self cell.RNTI) error {
	prb := max(s.prb, 25)
	g := cell.Grant{RNTI: self, Format: cell.Format1, PRB: prb, HARQ: uint8(s.number % 8), N: 1,
		Blocks: [2]cell.Block{{MCS: 10, NDI: s.number/8%2 == 0, Size: cell.Bits(prb) * 600}}}
	err := s.w.Write(cell.Subframe{Number: s.number, PRB: 50, Grants: []cell.Grant{g}})
	s.number++
	return errors.Join(err, s.w.Flush())
}

// testSource is a fake source: each time it is opened, the test gets the other end.
type testSource struct {
	opened chan net.Conn
	fails  error
	tries  int
}

func (s *testSource) open(context.Context) (io.ReadCloser, bool, error) {
	s.tries++
	if s.fails != nil {
		return nil, false, s.fails
	}
	a, b := net.Pipe()
	s.opened <- b
	return a, false, nil
}

// startListener runs a listener on a fake source until the test ends.
func startListener(t *testing.T, cfg Config) (*Listener, *testSource) {
	s := &testSource{opened: make(chan net.Conn, 1)}
	l := New(cfg)
	l.open = s.open
	runListener(t, l)
	return l, s
}

func runListener(t *testing.T, l *Listener) {
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { l.Run(ctx) })
	t.Cleanup(func() { cancel(); done.Wait() })
}

// writeSubframes writes a subframe each millisecond.
func writeSubframes(t *testing.T, s *testDecoder, self cell.RNTI, length time.Duration, each func()) {
	t.Helper()
	for range length / ms {
		if err := s.writeSelf(self); err != nil {
			t.Fatal(err)
		}
		time.Sleep(ms)
		if each != nil {
			each()
		}
	}
}

// TestChain checks the chain from messages by fusion, capacity and feedback to PBE-CC's sender. 0.6
// s after the messages stop the sender is BBR, and it is PBE-CC again when they are back.
func TestChain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var news []string
		l, src := startListener(t, Config{RNTI: me,
			OnSilence: func(why error) { news = append(news, fmt.Sprint(why)) }})
		f := l.Flow()
		defer f.Close()
		p := cc.NewPBE(1)
		begin := time.Now()
		ack := func() {
			now := time.Since(begin) + time.Second
			p.OnAck(cc.Ack{Now: now, Bytes: cc.MSS, Packets: 1, RTT: 40 * ms, Sent: now - 40*ms, Rate: 5 * unit.Mbps,
				InFlight: 30 * unit.KB, Cells: f.OnPacket(now, 0, 40*ms, 0)})
		}
		conn := <-src.opened
		st := newTestDecoder(t, conn)
		writeSubframes(t, st, me, time.Second, ack)
		got := p.Status()
		// C_p without the overhead of 6.8 %; without retransmissions p goes to 0.
		if want := 30 * unit.Mbps * 932 / 1000; !got.Fresh || got.State != cc.Wireless ||
			got.Feedback.TransportRate < want*98/100 || got.Feedback.TransportRate > want*101/100 ||
			got.Feedback.FairRate != got.Feedback.TransportRate {
			t.Errorf("after a second: %+v, want %v", got, want)
		}
		silent := func(length time.Duration) cc.PBEStatus {
			for range length / ms {
				time.Sleep(ms)
				ack()
			}
			return p.Status()
		}
		if got := silent(590 * ms); !got.Fresh {
			t.Errorf("0.59 s after the last message: %+v", got)
		}
		if got := silent(20 * ms); got.Fresh {
			t.Errorf("0.61 s after the last message: %+v", got)
		}
		silent(time.Second)
		if s := l.State(); s.Silent == nil || !strings.Contains(s.Silent.Error(), "old") {
			t.Errorf("%+v", s)
		}
		st.number += 1610 // it continues its count
		writeSubframes(t, st, me, 300*ms, ack)
		if got := p.Status(); !got.Fresh || l.State().Silent != nil {
			t.Errorf("after the first messages: %+v", got)
		}
		synctest.Wait()
		if len(news) != 3 || news[0] != "<nil>" || !strings.HasPrefix(news[1], "the newest control messages are 1") ||
			news[2] != "<nil>" {
			t.Errorf("reported: %q", news)
		}
		conn.Close()
	})
}

// TestLate checks that messages with an increased delay count as stale.
func TestLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, src := startListener(t, Config{RNTI: me})
		conn := <-src.opened
		defer conn.Close()
		st := newTestDecoder(t, conn)
		writeSubframes(t, st, me, 500*ms, nil)
		time.Sleep(90 * ms)
		writeSubframes(t, st, me, 100*ms, nil)
		if err := l.State().Silent; err != nil {
			t.Errorf("90 ms late: %v", err)
		}
		time.Sleep(20 * ms)
		writeSubframes(t, st, me, 100*ms, nil)
		if err := l.State().Silent; err == nil {
			t.Error("110 ms late counts as now")
		}
		for range 100 { // it catches up
			if err := st.writeSelf(me); err != nil {
				t.Fatal(err)
			}
		}
		writeSubframes(t, st, me, 10*ms, nil)
		if err := l.State().Silent; err != nil {
			t.Errorf("it has caught up: %v", err)
		}
		st.number += 5000 // restarts its count
		writeSubframes(t, st, me, 50*ms, nil)
		if s := l.State(); s.Silent != nil || s.Estimate.Physical == 0 {
			t.Errorf("with other numbers: %+v", s)
		}
	})
}

// TestSelf checks that the source may name the device; until then, and after the device has left
// its cell, there is no feedback.
func TestSelf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, src := startListener(t, Config{})
		f := l.Flow()
		conn := <-src.opened
		defer conn.Close()
		st := newTestDecoder(t, conn)
		announce := func(self cell.RNTI) cc.CellFeedback {
			if err := st.w.WriteSelf(self); err != nil {
				t.Fatal(err)
			}
			writeSubframes(t, st, me, 100*ms, nil)
			return f.OnPacket(0, 0, 40*ms, 0)
		}
		writeSubframes(t, st, me, 100*ms, nil)
		if r := f.OnPacket(0, 0, 40*ms, 0); r.TransportRate != 0 || l.State().Silent == nil {
			t.Errorf("the radio is not named: %+v", r)
		}
		asMe, asOther := announce(me), announce(77)
		if s := l.State(); s.Self != 77 || asMe.TransportRate < 25*unit.Mbps || asOther.TransportRate == 0 ||
			asOther.TransportRate > asMe.TransportRate*2/3 {
			t.Errorf("%+v and %+v, %+v", asMe, asOther, s)
		}
		if r := announce(0); r.TransportRate != 0 {
			t.Errorf("not connected: %+v", r)
		}
	})
}

// TestFlows checks that active flows share the capacity.
func TestFlows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, src := startListener(t, Config{RNTI: me})
		conn := <-src.opened
		defer conn.Close()
		st := newTestDecoder(t, conn)
		writeSubframes(t, st, me, 100*ms, nil)
		a, b := l.Flow(), l.Flow()
		one := a.OnPacket(0, 0, 40*ms, 0).TransportRate
		two := b.OnPacket(0, 0, 40*ms, 0).TransportRate
		if one == 0 || two != one/2 || l.State().Flows != 2 {
			t.Errorf("alone %v, of two %v, %d flows", one, two, l.State().Flows)
		}
		b.Close()
		if again := a.OnPacket(0, 0, 40*ms, 0).TransportRate; again != one {
			t.Errorf("alone again %v", again)
		}
		a.Close()
		if s := l.State(); s.Flows != 0 || len(l.flows) != 0 {
			t.Errorf("%+v", s)
		}
	})
}

// TestFull checks that packets that are later than retransmissions explain count as held elsewhere
// only while the cell has more capacity for the device.
func TestFull(t *testing.T) {
	for prb, want := range map[uint8]bool{25: true, 50: false} {
		synctest.Test(t, func(t *testing.T) {
			l, src := startListener(t, Config{RNTI: me})
			f := l.Flow()
			defer f.Close()
			conn := <-src.opened
			defer conn.Close()
			st := newTestDecoder(t, conn)
			st.prb = prb
			var got cc.CellFeedback
			oneWay := time.Duration(0)
			writeSubframes(t, st, me, time.Second, func() { got, oneWay = f.OnPacket(0, oneWay, 40*ms, 0), 50*ms })
			if got.TransportRate == 0 || got.Internet != want {
				t.Errorf("%d of 50 blocks: %+v", prb, got)
			}
		})
	}
}

// TestSourceEnds checks that a source that ends, is not a recording, or cannot be opened is retried
// with back-off, and may return with other cells.
func TestSourceEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, src := startListener(t, Config{RNTI: me})
		conn := <-src.opened
		writeSubframes(t, newTestDecoder(t, conn), me, 100*ms, nil)
		conn.Close()
		time.Sleep(150 * ms)
		synctest.Wait()
		if err := l.State().Silent; err == nil || !strings.Contains(err.Error(), "ended") {
			t.Errorf("ended: %v", err)
		}
		conn = <-src.opened
		fmt.Fprint(conn, "HTTP/1.1 400 Bad Request")
		synctest.Wait()
		if err := l.State().Silent; fault.KindOf(err) != fault.Integrity || fault.HintOf(err) == "" {
			t.Errorf("something else: %v", err)
		}
		conn = <-src.opened
		writeSubframes(t, newTestDecoder(t, conn), me, 100*ms, nil)
		if err := l.State().Silent; err != nil {
			t.Errorf("it is there again: %v", err)
		}
		time.Sleep(6 * time.Second) // silent but not closed
		synctest.Wait()
		src.fails, src.tries = fault.New(fault.Unreachable, errors.New("no such host"), "a hint"), 0
		conn.Close()
		time.Sleep(60 * time.Second)
		synctest.Wait()
		if src.tries < 10 || src.tries > 17 {
			t.Errorf("%d attempts in a minute", src.tries)
		}
		if err := l.State().Silent; err == nil || err.Error() != "no such host" {
			t.Errorf("it cannot be had: %v", err)
		}
	})
}

// TestCells checks that only the configured cells of the source count.
func TestCells(t *testing.T) {
	for _, c := range []struct {
		cells []cell.ID
		ok    bool
	}{{nil, true}, {[]cell.ID{0}, true}, {[]cell.ID{1}, false}, {[]cell.ID{0, 0}, false}, {[]cell.ID{200}, false}} {
		synctest.Test(t, func(t *testing.T) {
			l, src := startListener(t, Config{RNTI: me, Cells: c.cells})
			conn := <-src.opened
			defer conn.Close()
			st := newTestDecoder(t, conn)
			conn.SetWriteDeadline(time.Now().Add(50 * ms))
			for st.writeSelf(me) == nil && st.number < 50 {
			}
			synctest.Wait()
			if err := l.State().Silent; (err == nil) != c.ok {
				t.Errorf("cells %v: %v", c.cells, err)
			}
		})
	}
}

// TestFlood checks that a source faster than real cells is throttled.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		p := pacer{}
		for i := range int64(5*maxSubframesPerSecond + 1) {
			if err := p.waitForSubframe(t.Context(), i); err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begin); took < 4*time.Second || took > 6*time.Second {
			t.Errorf("5 times of what is taken in a second: %v", took)
		}
	})
}

// TestRecordingIsPlayed checks that a file is played once, at its original speed.
func TestRecordingIsPlayed(t *testing.T) {
	var buf bytes.Buffer
	st := newTestDecoder(t, &buf)
	for range 1000 {
		if err := st.writeSelf(me); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(t.TempDir(), "cells")
	if err := os.WriteFile(file, buf.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	src, err := ParseSource(file)
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		l := New(Config{Source: src, RNTI: me})
		runListener(t, l)
		time.Sleep(500*ms + ms/2)
		if s := l.State(); s.Silent != nil || s.Estimate.Number < 499 || s.Estimate.Number > 502 {
			t.Errorf("after half of it: number %d, %v", s.Estimate.Number, s.Silent)
		}
		time.Sleep(time.Second)
		if s := l.State(); s.Silent != errRecordingEnded {
			t.Errorf("after its end: %v", s.Silent)
		}
	})
}

// TestCutOffIsOver checks that a truncated or damaged recording is not played again, and that the
// error says why.
func TestCutOffIsOver(t *testing.T) {
	var buf bytes.Buffer
	st := newTestDecoder(t, &buf)
	for range 1000 {
		if err := st.writeSelf(me); err != nil {
			t.Fatal(err)
		}
	}
	for what, data := range map[string][]byte{"cut off": buf.Bytes()[:buf.Len()-1],
		"damaged": bytes.Repeat([]byte{0xFF}, 100)} {
		if what == "damaged" {
			data = append(bytes.Clone(buf.Bytes()), data...)
		}
		synctest.Test(t, func(t *testing.T) {
			opened := 0
			l := New(Config{RNTI: me})
			l.open = func(context.Context) (io.ReadCloser, bool, error) {
				opened++
				return io.NopCloser(bytes.NewReader(data)), true, nil
			}
			runListener(t, l)
			for range 3 {
				time.Sleep(1500 * ms)
				synctest.Wait()
				if err := l.State().Silent; fault.KindOf(err) != fault.NotFound ||
					!errors.Is(err, errRecordingEnded) || err == errRecordingEnded || opened != 1 {
					t.Errorf("%s: opened %d times, %v", what, opened, err)
				}
			}
		})
	}
}

// TestClockIsSet checks that a constant extra delay is accepted after some seconds, and that a
// slightly fast or slow clock is never noticed.
func TestClockIsSet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, src := startListener(t, Config{RNTI: me})
		conn := <-src.opened
		defer conn.Close()
		st := newTestDecoder(t, conn)
		writeSubframes(t, st, me, time.Second, nil)
		time.Sleep(300 * ms)
		writeSubframes(t, st, me, 5*time.Second, nil)
		if err := l.State().Silent; err == nil {
			t.Error("300 ms late counts as now at once")
		}
		writeSubframes(t, st, me, 10*time.Second, nil)
		if err := l.State().Silent; err != nil {
			t.Errorf("late by the same for 15 s: %v", err)
		}
		// It was not the clock: the queued messages arrive, and the extra delay is stale again.
		for range 300 {
			if err := st.writeSelf(me); err != nil {
				t.Fatal(err)
			}
		}
		writeSubframes(t, st, me, time.Second, nil)
		time.Sleep(300 * ms)
		writeSubframes(t, st, me, time.Second, nil)
		if err := l.State().Silent; err == nil {
			t.Error("300 ms late counts as now, as it once was so")
		}
	})
	synctest.Test(t, func(t *testing.T) { // 800 ppm
		l, src := startListener(t, Config{RNTI: me})
		conn := <-src.opened
		defer conn.Close()
		st := newTestDecoder(t, conn)
		for range 200 {
			writeSubframes(t, st, me, time.Second, nil)
			if time.Sleep(800 * time.Microsecond); l.State().Silent != nil {
				t.Fatalf("at %d: %v", st.number, l.State().Silent)
			}
		}
	})
}

// TestQueueIsNoClock checks that growing delays, or messages with losses, stay stale.
func TestQueueIsNoClock(t *testing.T) {
	for what, gap := range map[string]func(n int) (missed int64, pause time.Duration){
		"a queue that grows by 0.5 %": func(n int) (int64, time.Duration) {
			return 0,
				time.Duration(1-min(n%200, 1)) * ms
		},
		"one in five is missing": func(n int) (int64, time.Duration) {
			return int64(1 - min(n%5, 1)),
				time.Duration(1-min(n%5, 1)) * ms
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			l, src := startListener(t, Config{RNTI: me})
			conn := <-src.opened
			defer conn.Close()
			st := newTestDecoder(t, conn)
			writeSubframes(t, st, me, time.Second, nil)
			time.Sleep(150 * ms)
			for n := range 15_000 {
				writeSubframes(t, st, me, ms, nil)
				missed, pause := gap(n)
				st.number += missed
				if time.Sleep(pause); n > 1000 && l.State().Silent == nil {
					t.Fatalf("%s: received at %d", what, n)
				}
			}
		})
	}
}

// TestPrimaryUnheard checks that rows of a secondary cell without grants count as silence if the
// primary cell is missing.
func TestPrimaryUnheard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, src := startListener(t, Config{RNTI: me, Cells: []cell.ID{1, 0}})
		conn := <-src.opened
		defer conn.Close()
		w, err := cell.NewWriter(conn, [cell.MaxCells]uint8{50, 50})
		if err != nil {
			t.Fatal(err)
		}
		for n := range int64(500) {
			err := w.Write(cell.Subframe{Number: n, PRB: 50})
			if n >= 250 {
				err = errors.Join(err, w.Write(cell.Subframe{Cell: 1, Number: n, PRB: 50}))
			}
			if err := errors.Join(err, w.Flush()); err != nil {
				t.Fatal(err)
			}
			time.Sleep(ms)
			switch err := l.State().Silent; {
			case n == 249 && (err == nil || !strings.Contains(err.Error(), "cell 1") || fault.HintOf(err) == ""):
				t.Errorf("without its primary cell: %v", err)
			case n == 499 && err != nil:
				t.Errorf("with it: %v", err)
			}
		}
	})
}

// TestLongRoundTrip checks that a sender that claims a long round trip does not get stale
// estimates.
func TestLongRoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, src := startListener(t, Config{RNTI: me})
		f := l.Flow()
		defer f.Close()
		conn := <-src.opened
		defer conn.Close()
		writeSubframes(t, newTestDecoder(t, conn), me, time.Second, func() { f.OnPacket(0, 0, 10*time.Second, 0) })
		if time.Sleep(900 * ms); f.OnPacket(0, 0, 10*time.Second, 0).TransportRate == 0 {
			t.Error("0.9 s are less than a round trip of a second")
		}
		if time.Sleep(200 * ms); f.OnPacket(0, 0, 10*time.Second, 0).TransportRate != 0 {
			t.Error("1.1 s count as now")
		}
	})
}

// TestJumps checks that a source that makes many rows of each subframe is throttled too.
func TestJumps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, src := startListener(t, Config{RNTI: me})
		conn := <-src.opened
		defer conn.Close()
		st, begin := newTestDecoder(t, conn), time.Now()
		for range 41 {
			if err := st.writeSelf(me); err != nil {
				t.Fatal(err)
			}
			st.number += 999
		}
		synctest.Wait()
		if took := time.Since(begin); took < 5*time.Second || l.rows < 39_000 {
			t.Errorf("%d rows in %v", l.rows, took)
		}
	})
}

// TestParseSource checks valid and invalid sources.
func TestParseSource(t *testing.T) {
	for _, text := range []string{"unix:/run/cells.sock", "tcp:192.0.2.1:9000", "tcp:[::1]:9000", "/tmp/cells",
		"cells"} {
		if s, err := ParseSource(text); err != nil || s.String() != text {
			t.Errorf("%s: %v, %v", text, s, err)
		}
	}
	for _, text := range []string{"", "unix:", "tcp:", "tcp:host"} {
		if _, err := ParseSource(text); fault.KindOf(err) != fault.Config || fault.HintOf(err) == "" {
			t.Errorf("%q: %v", text, err)
		}
	}
	dir := t.TempDir()
	ln, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Skipf("no Unix sockets here: %v", err)
	}
	defer ln.Close()
	for path, kind := range map[string]fault.Kind{dir: fault.Config, dir + "/none": fault.NotFound,
		dir + "/s": fault.Config, "unix:" + dir + "/none": fault.Unreachable} {
		s, err := ParseSource(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := s.Open(t.Context()); fault.KindOf(err) != kind || fault.HintOf(err) == "" {
			t.Errorf("%s: %v, %v", path, fault.KindOf(err), err)
		}
	}
}
