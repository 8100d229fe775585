// SPDX-License-Identifier: Apache-2.0

package air

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"

	"mpbond/base/fault"
	"mpbond/base/waittest"
	"mpbond/pbe/cell"
	"mpbond/pbe/lte"
)

// testSubframe returns a subframe of a carrier, with a user of two blocks.
func testSubframe(c cell.ID, number int64, prb uint8) *Subframe {
	return &Subframe{Cell: c, Number: number, PRB: prb,
		Subframe: &lte.Subframe{DCIs: []lte.DCI{{RNTI: 500, Format: cell.Format1, PRB: 2}}}}
}

// readRecording reads a recording to its end.
func readRecording(t *testing.T, in io.Reader) (prb [cell.MaxCells]uint8, numbers [2][]int64) {
	t.Helper()
	r, err := cell.NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	for {
		s, err := r.Read()
		if err == io.EOF {
			return r.PRB, numbers
		}
		if err != nil || len(s.Grants) != 1 || r.Self != 7000 {
			t.Fatalf("%v: %+v, %d", err, s, r.Self)
		}
		numbers[s.Cell] = append(numbers[s.Cell], s.Number)
	}
}

// TestRecorder checks that the head of a recording waits until both carriers were received, but not
// forever, and that subframes that do not fit are omitted and counted.
func TestRecorder(t *testing.T) {
	for name, c := range map[string]struct {
		feed func(add func(*Subframe))
		prb  [2]uint8
		n    [2]int
		odd  bool
	}{
		"both": {func(add func(*Subframe)) {
			for i := range int64(100) {
				if add(testSubframe(0, i, 50)); i > 40 {
					add(testSubframe(1, i, 25))
				}
			}
		}, [2]uint8{50, 25}, [2]int{100, 59}, false},
		"one is late": {func(add func(*Subframe)) {
			for i := range int64(maxHeadWait + 10) {
				add(testSubframe(0, i, 50))
			}
			add(testSubframe(1, maxHeadWait+10, 25))
		}, [2]uint8{50}, [2]int{maxHeadWait + 10}, true},
		"another cell": {func(add func(*Subframe)) {
			add(testSubframe(0, 1, 50))
			add(testSubframe(1, 1, 25))
			add(testSubframe(1, 2, 6))
		}, [2]uint8{50, 25}, [2]int{1, 1}, true},
		"few of one": {func(add func(*Subframe)) { add(testSubframe(0, 1, 50)) }, [2]uint8{50}, [2]int{1}, false},
		"nothing":    {func(func(*Subframe)) {}, [2]uint8{}, [2]int{}, false},
	} {
		var out bytes.Buffer
		r := NewRecorder(&out, 2)
		r.Self = 7000
		c.feed(func(s *Subframe) {
			if err := r.Add(s); err != nil {
				t.Fatal(err)
			}
		})
		if err := r.Close(); (err != nil) != c.odd || c.odd && fault.HintOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
		prb, numbers := readRecording(t, &out)
		if [2]uint8(prb[:2]) != c.prb || len(numbers[0]) != c.n[0] || len(numbers[1]) != c.n[1] {
			t.Errorf("%s: %v, %d and %d subframes", name, prb, len(numbers[0]), len(numbers[1]))
		}
	}
	full := NewRecorder(fullDisk{}, 1)
	var err error
	for i := int64(0); i < 10_000 && err == nil; i++ {
		err = full.Add(testSubframe(0, i, 50))
	}
	if err == nil {
		t.Error("a full disk is not noticed")
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("full") }

// TestServer checks that each client gets the head and later subframes, and that a client that does
// not read is disconnected without delaying others.
func TestServer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	s, err := Serve("unix:" + path)
	if err != nil {
		t.Skipf("no Unix sockets here: %v", err)
	}
	call := func() net.Conn {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	callers := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.clients)
	}
	until := func(n int) {
		t.Helper()
		waittest.Until(t, fmt.Sprint(n, " callers"), func() bool { return callers() == n })
	}
	r := s.Recorder(1)
	r.Self = 7000
	first := call()
	until(1)
	var fast *client
	s.mu.Lock()
	for c := range s.clients {
		fast = c
	}
	s.mu.Unlock()
	slow := call()
	until(2)
	type result struct {
		prb     [cell.MaxCells]uint8
		numbers []int64
	}
	results := make(chan result, 2)
	listen := func(c net.Conn) {
		go func() {
			prb, numbers := readRecording(t, c)
			results <- result{prb, numbers[0]}
		}()
	}
	listen(first)
	number := int64(0)
	for ; callers() == 2; number++ { // until the slow client is disconnected
		if err := r.Add(testSubframe(0, number, 50)); err != nil {
			t.Fatal(err)
		}
		if number%500 == 0 {
			waittest.Until(t, "the fast client reads", func() bool { return len(fast.out) == 0 })
		}
	}
	later := call()
	until(2)
	listen(later)
	for range 100 {
		if err := r.Add(testSubframe(0, number, 50)); err != nil {
			t.Fatal(err)
		}
		number++
	}
	if err := errors.Join(r.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	a, b := <-results, <-results
	if len(a.numbers) < len(b.numbers) {
		a, b = b, a
	}
	if a.prb[0] != 50 || b.prb[0] != 50 || int64(len(a.numbers)) != number || a.numbers[0] != 0 ||
		len(b.numbers) != 100 || b.numbers[0] != number-100 {
		t.Errorf("%d and %d subframes of %d", len(a.numbers), len(b.numbers), number)
	}
	if s.Dropped() != 1 {
		t.Errorf("%d dropped", s.Dropped())
	}
	slow.Close()
	if _, err := os.Stat(path); err == nil {
		t.Error("the socket is left")
	}
	// The socket of an earlier server is replaced.
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	ln.Close()
	again, err := Serve("unix:" + path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Serve("unix:" + path); fault.KindOf(err) != fault.AlreadyRunning {
		t.Errorf("served twice: %v", err)
	}
	early := call() // connects before the first subframe
	again.Recorder(1)
	waittest.Until(t, "this client, and the check for a running server", func() bool {
		again.mu.Lock()
		defer again.mu.Unlock()
		return len(again.clients) == 2
	})
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	if n, err := io.Copy(io.Discard, early); n != 0 || err != nil {
		t.Errorf("%d bytes of nothing, %v", n, err)
	}
	for _, bad := range []string{"", "unix:", "udp:1", "tcp:nowhere", "unix:/nowhere/at/all", "unix:" + t.TempDir()} {
		if _, err := Serve(bad); err == nil || fault.HintOf(err) == "" {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestAll checks that both cells at one frequency are listed, and the stronger one is decoded.
func TestAll(t *testing.T) {
	samples := testSignal(t, 20)
	tx, err := lte.NewTransmitter(lte.Cell{ID: 300, PRB: 6, Ports: 1, PHICHSixths: 6}, 1_920_000,
		lte.Channel{SNR: 30, Offset: 700}, 1)
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(20) {
		for k, s := range tx.SendGrants(i, nil) {
			samples[i*1920+int64(k)] += 0.7 * s
		}
	}
	l, err := Open(t.Context(), Config{Inputs: []Input{{Source: writeSamples(t, "x.cf32",
		encodeSamples(CF32, samples)), Rate: 1_920_000}}, AllCells: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Run(t.Context(), func(s *Subframe) {}); err != nil {
		t.Error(err)
	}
	if s := l.State()[0]; len(s.AllCells) != 2 || s.AllCells[0].ID != 77 || s.AllCells[1].ID != 300 ||
		s.Cell.ID != 77 || s.RateDetected {
		t.Errorf("%+v", s)
	}
}
