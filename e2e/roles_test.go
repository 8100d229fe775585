// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"mpbond/base/config"
	"mpbond/e2e/rig"
	"mpbond/link/wire"
	"mpbond/node/primary"
)

const mb = 1 << 20

func TestBothWaysOverAllSubflows(t *testing.T) {
	w := newTestbed(t)
	w.pcfg.Subflows = 2
	w.startAll("phone", "tablet")
	for range 2 {
		if err := w.download(15 * mb); err != nil {
			t.Error(err)
		}
		if err := w.upload(15 * mb); err != nil {
			t.Error(err)
		}
	}
	carried := map[string]bool{}
	for _, path := range w.p.Status(true).Subflows {
		if path.RxBytes > 0 && path.TxBytes > 0 {
			carried[path.Device+" "+string(path.Kind)] = true
		}
	}
	for _, d := range []string{"laptop direct", "phone helped", "tablet helped"} {
		if !carried[d] {
			t.Errorf("%s has carried nothing: %+v", d, w.p.Status(false).Subflows)
		}
	}
	if b := w.s.Status(true); len(b) != 1 || b[0].Peer != "laptop" || len(b[0].Subflows) != 4 {
		t.Errorf("the server's status: %+v", b)
	}
}

func TestStreamsAtOnce(t *testing.T) {
	w := newTestbed(t)
	w.startAll("phone")
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			f := w.download
			if i%2 == 0 {
				f = w.upload
			}
			if err := f(100_000); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

// TestOpenedAfterTheFirstBytes: the answer to OPEN also arrives when the app's bytes reach the
// server before the destination is connected.
func TestOpenedAfterTheFirstBytes(t *testing.T) {
	w := newTestbed(t)
	w.startAll("phone")
	for range 20 {
		c := w.dialStream(w.web.addr)
		if _, err := fmt.Fprintf(c, "put %d\n", mb); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), rig.Patience)
		err := c.(interface{ WaitOpen(context.Context) error }).WaitOpen(ctx)
		cancel()
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
}

// startReading opens a stream with an endless download and reads a little of it. The returned
// channel receives the error that ends it.
func (w *testbed) startReading() <-chan error {
	w.Helper()
	c := w.dialStream(w.web.addr)
	if _, err := fmt.Fprintf(c, "get %d\n", int64(1<<40)); err != nil {
		w.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1000)); err != nil {
		w.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := io.Copy(io.Discard, struct{ io.Reader }{c})
		ended <- err
	}()
	return ended
}

// awaitReset waits for the reset of a stream of startReading.
func (w *testbed) awaitReset(ended <-chan error, code wire.Code) {
	w.Helper()
	select {
	case err := <-ended:
		var r wire.Reset
		if !errors.As(err, &r) || r.Code != code || r.Text == "" {
			w.Errorf("the stream ended with %v, want %v", err, code)
		}
	case <-time.After(rig.Patience):
		w.Error("the stream is still open")
	}
}

func TestServerRestart(t *testing.T) {
	w := newTestbed(t)
	w.startAll("phone")
	for range 3 {
		ended := w.startReading()
		w.server.stop()
		w.awaitReset(ended, wire.CodeClosed)
		if n := w.web.countConns(); n > 1 {
			t.Errorf("%d connections are left at the web server", n)
		}
		w.awaitSubflows() // until the primary has noticed; a stream opened before would be reset too
		w.startServer()
		began := time.Now()
		if err := w.download(100_000); err != nil {
			t.Error(err)
		}
		if d := time.Since(began); d > promptly {
			t.Errorf("the first download took %v", d)
		}
		w.awaitSubflows("laptop", "phone")
	}
	rig.Eventually(t, func() error { // no unused bond is left
		if b := w.s.Status(false); len(b) != 1 || len(b[0].Subflows) != 2 {
			return fmt.Errorf("%d bonds: %+v", len(b), b)
		}
		return nil
	})
}

func TestHelperLeavesAndComesBack(t *testing.T) {
	w := newTestbed(t)
	phone := w.startAll("phone")[0]
	c := w.dialStream(w.web.addr)
	result := make(chan error, 1)
	go func() { result <- w.web.getBytes(c, 150*mb) }()
	for range 2 {
		phone.stop()
		w.awaitSubflows("laptop")
		w.startHelper(phone)
		w.awaitSubflows("laptop", "phone")
	}
	if err := <-result; err != nil {
		t.Error(err)
	}
	if err := w.upload(mb); err != nil {
		t.Error(err)
	}
}

func TestPrimaryRestart(t *testing.T) {
	w := newTestbed(t)
	w.startAll("phone")
	for range 3 {
		ended := w.startReading()
		w.primary.stop()
		w.awaitReset(ended, wire.CodeClosed)
		rig.Eventually(t, func() error {
			if b := w.s.Status(false); len(b) > 0 || w.web.countConns() > 0 {
				return fmt.Errorf("%d connections to the web are left, bonds %+v", w.web.countConns(), b)
			}
			return nil
		})
		w.startPrimary()
		w.awaitSubflows("laptop", "phone")
		if err := w.download(mb); err != nil {
			t.Error(err)
		}
	}
}

func TestTwoBonds(t *testing.T) {
	w := newTestbed(t)
	w.startAll("phone")
	second := newDevice(t, "desktop")
	w.server.addPeer(second, "primary")
	second.addPeer(w.server, "server", w.scfg.Listen)
	cfg := w.pcfg
	cfg.Pipe, cfg.Name = "", "desktop"
	p, err := primary.New(cfg, second.key, second.trust, second.log.Logger(), nil)
	if err != nil {
		t.Fatal(err)
	}
	second.runRole(p.Run)
	other := *w
	other.p = p
	other.awaitSubflows("desktop")
	var both sync.WaitGroup
	for _, w := range []*testbed{w, &other} {
		both.Go(func() {
			if err := w.download(5 * mb); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	if b := w.s.Status(false); len(b) != 2 || b[0].Peer != "desktop" || b[1].Peer != "laptop" {
		t.Errorf("%+v", b)
	}
	ended := w.startReading()
	second.stop() // ends one bond and not the other
	rig.Eventually(t, func() error {
		if b := w.s.Status(false); len(b) != 1 || b[0].Peer != "laptop" || b[0].Streams != 1 {
			return fmt.Errorf("%+v", b)
		}
		return nil
	})
	w.primary.stop()
	w.awaitReset(ended, wire.CodeClosed)
}

// TestStreamsLeaveNothing checks goroutines, descriptors and the state of the bond after many
// streams that end in many ways.
func TestStreamsLeaveNothing(t *testing.T) {
	w := newTestbed(t)
	w.startAll("phone")
	runStreams := func() {
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				c, err := w.p.DialStream(t.Context(), w.web.addr)
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				switch i % 4 {
				case 0:
					err = w.web.getBytes(c, 10_000)
				case 1:
					err = w.web.putBytes(c, 10_000)
				case 2: // leaves in the middle
					_, _ = fmt.Fprintf(c, "get %d\n", mb)
					_, err = io.ReadFull(c, make([]byte, 5000))
				case 3: // never reads
					_, err = fmt.Fprintf(c, "wait 0\n")
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		rig.Eventually(t, func() error {
			if n, m, k := w.p.Status(false).Streams, w.s.Status(false)[0].Streams, w.web.countConns(); n+m+k > 0 {
				return fmt.Errorf("%d streams at the primary, %d at the server, %d connections to the web", n, m, k)
			}
			return nil
		})
	}
	runStreams()
	goroutines, files := runtime.NumGoroutine(), countDescriptors(t)
	for range 20 {
		runStreams()
	}
	rig.Eventually(t, func() error {
		if g, f := runtime.NumGoroutine(), countDescriptors(t); g > goroutines+2 || f > files+2 {
			return fmt.Errorf("%d goroutines of %d, %d descriptors of %d", g, goroutines, f, files)
		}
		return nil
	})
	if s := w.s.Status(false)[0]; s.StreamsTotal != 21*50 || s.MetaBytes != 0 || s.ReorderBytes != 0 {
		t.Errorf("%+v", s)
	}
}

// countDescriptors returns the number of open file descriptors of this process.
func countDescriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc here")
	}
	return len(list)
}

// TestIdleStreams measures the memory of an idle stream at primary and server together.
func TestIdleStreams(t *testing.T) {
	const n = 500
	w := newTestbed(t)
	w.startAll()
	measureMemory := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	before := measureMemory()
	var conns []net.Conn
	for range n {
		c := w.dialStream(w.web.addr)
		if _, err := fmt.Fprintf(c, "wait 0\n"); err != nil {
			t.Fatal(err)
		}
		conns = append(conns, c)
	}
	rig.Eventually(t, func() error {
		if k := w.web.countConns(); k != n {
			return fmt.Errorf("%d connections to the web", k)
		}
		return nil
	})
	each := (int64(measureMemory()) - int64(before)) / n
	t.Logf("an idle stream costs %d KB", each>>10)
	if each > 80<<10 {
		t.Errorf("an idle stream costs %d KB", each>>10)
	}
	runtime.KeepAlive(conns)
}

func TestNobodyAtHome(t *testing.T) {
	w := newTestbed(t)
	w.startServer()
	w.server.stop()
	w.pcfg.GiveUp = config.Duration(300 * time.Millisecond)
	w.startPrimary()
	_, err := w.p.DialStream(t.Context(), w.web.addr)
	var r wire.Reset
	if !errors.As(err, &r) || r.Code != wire.CodeTimeout || !strings.Contains(r.Text, "no way to the server") {
		t.Errorf("the stream ended with %v", err)
	}
	if e := w.lastError("laptop"); !strings.Contains(e, "refused") || !strings.Contains(e, "is mpbond running") {
		t.Errorf("status: %q", e)
	}
}
