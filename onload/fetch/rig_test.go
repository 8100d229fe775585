// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"mpbond/base/unit"
	"mpbond/onload/transfer"
)

func TestMain(m *testing.M) {
	if os.Getenv("FETCH_CHILD") != "" {
		runChild()
		return
	}
	goleak.VerifyTestMain(m)
}

// fastTimes are time limits for tests.
var fastTimes = times{saveInterval: 30 * time.Millisecond, Times: transfer.Times{
	StallTimeout: 300 * time.Millisecond, ResponseTimeout: time.Second, FirstBackoff: 20 * time.Millisecond,
	IdleTimeout: 1500 * time.Millisecond, TickInterval: 10 * time.Millisecond}}

// socketTimes are time limits for tests in real time, where a busy machine must not exceed them.
var socketTimes = times{saveInterval: 30 * time.Millisecond, Times: transfer.Times{
	StallTimeout: 10 * time.Second, ResponseTimeout: 10 * time.Second, FirstBackoff: 20 * time.Millisecond,
	IdleTimeout: 20 * time.Second, TickInterval: 10 * time.Millisecond}}

func randomBytes(n int, seed uint64) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed)})
	_, _ = r.Read(b)
	return b
}

// testLine is the transport of a device: it has its own source address and rate, and can be cut.
type testLine struct {
	*http.Transport
	rate unit.Rate // 0: no bound
	cut  atomic.Bool
	read atomic.Int64

	mu    sync.Mutex
	conns map[net.Conn]bool
}

func newTestLine(t *testing.T, i int, rate unit.Rate) *testLine {
	l := &testLine{rate: rate, conns: map[net.Conn]bool{}}
	d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i))}}
	l.Transport = &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if l.cut.Load() {
			return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("no such helper")}
		}
		dial := d.DialContext
		if p, ok := inMemory.Load(addr); ok {
			dial = func(context.Context, string, string) (net.Conn, error) { return p.(*pipes).dial(d.LocalAddr) }
		}
		c, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.conns[c] = true
		return &lineConn{c, l}, nil
	}}
	t.Cleanup(l.CloseIdleConnections)
	return l
}

// down cuts or repairs the line.
func (l *testLine) down(yes bool) {
	l.cut.Store(yes)
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		c.Close()
	}
	clear(l.conns)
}

type lineConn struct {
	net.Conn
	l *testLine
}

func (c *lineConn) Read(p []byte) (int, error) {
	if c.l.rate > 0 && len(p) > 16<<10 {
		p = p[:16<<10]
	}
	n, err := c.Conn.Read(p)
	if c.l.rate > 0 {
		time.Sleep(c.l.rate.Time(unit.Bytes(n))) // the rate
	}
	c.l.read.Add(int64(n))
	return n, err
}

func testDevices(lines ...*testLine) (list []Device) {
	for i, l := range lines {
		list = append(list, Device{Name: fmt.Sprintf("device%d", i), Transport: l})
	}
	return list
}

func testLines(t *testing.T, n int, rate unit.Rate) (list []*testLine) {
	for i := range n {
		list = append(list, newTestLine(t, i, rate))
	}
	return list
}

// origin is a web server with one object that can misbehave.
type origin struct {
	data  []byte
	etag  string
	asked atomic.Int64
	calls atomic.Int64 // for wrong
	// wrong responds in its own way, or returns false.
	wrong func(w http.ResponseWriter, r *http.Request, device int) bool
}

var modified = time.Date(2020, 1, 2, 3, 4, 5, 0, time.UTC)

func (o *origin) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	host, _, _ := net.SplitHostPort(r.RemoteAddr)
	device := int(net.ParseIP(host).To4()[3]) - 2
	if r.Method == http.MethodGet {
		o.asked.Add(1)
	}
	if o.wrong != nil && o.wrong(w, r, device) {
		return
	}
	o.serve(w, r)
}

// serve responds correctly.
func (o *origin) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("ETag", o.etag)
	http.ServeContent(w, r, "x.bin", modified, bytes.NewReader(o.data))
}

// virtual runs a test in virtual time, so that the load of the machine has no effect.
func virtual(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		t.Cleanup(func() { time.Sleep(time.Minute) }) // at the end: wakes what still waits
		f(t)
	})
}

// inTime runs a part of a test in virtual time.
func inTime(t *testing.T, name string, f func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { virtual(t, f) })
}

// inMemory are the servers that are called without a socket, by address; and how many
// there were.
var (
	// inMemory are the servers that are reached without a socket, by address, and their number so
	// far.
	inMemory sync.Map
	servers  atomic.Int64
)

// pipes is a listener in memory.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.done) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "memory"} }

func (p *pipes) dial(from net.Addr) (net.Conn, error) {
	mine, its := net.Pipe()
	select {
	case p.conns <- pipeFrom{its, from}:
		return mine, nil
	case <-p.done:
		return nil, &net.OpError{Op: "dial", Err: net.ErrClosed}
	}
}

// pipeFrom is a connection with a source address.
type pipeFrom struct {
	net.Conn
	from net.Addr
}

func (c pipeFrom) RemoteAddr() net.Addr { return &net.TCPAddr{IP: c.from.(*net.TCPAddr).IP, Port: 1} }

// serveOrigin serves an origin in memory, for tests in virtual time.
func serveOrigin(t *testing.T, o *origin) string {
	p := &pipes{conns: make(chan net.Conn), done: make(chan struct{})}
	host := fmt.Sprintf("web%d.test:80", servers.Add(1))
	inMemory.Store(host, p)
	s := &http.Server{Handler: o}
	go func() { _ = s.Serve(p) }()
	t.Cleanup(func() {
		inMemory.Delete(host)
		s.Close()
	})
	return "http://" + host + "/file.bin"
}

// runGet fetches one object into a new directory.
func runGet(t *testing.T, url string, dev []Device, change func(*Config)) (Result, string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file.bin")
	cfg := Config{Devices: dev, Objects: []Object{{URL: url, File: file}}, times: fastTimes}
	if testing.Verbose() {
		cfg.Log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if change != nil {
		change(&cfg)
	}
	r, err := Get(t.Context(), cfg)
	return r, file, err
}

// expectContent checks that the file is right, and that no other file is left.
func expectContent(t *testing.T, file string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes instead of %d, %v", len(got), len(want), err)
	}
	expectOnlyFile(t, file)
}

func expectOnlyFile(t *testing.T, file string) {
	t.Helper()
	list, err := os.ReadDir(filepath.Dir(file))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		if e.Name() != filepath.Base(file) {
			t.Errorf("%s is left", e.Name())
		}
	}
}

// totalBytes returns the sums of the device usage.
func totalBytes(r Result) (bytes, wasted unit.Bytes) {
	for _, d := range r.Devices {
		bytes, wasted = bytes+d.Bytes, wasted+d.Wasted
	}
	return bytes, wasted
}

// writePieces writes in steps, so that the receiver sees the beginning before the end.
func writePieces(w io.Writer, b []byte, n int, pause time.Duration) {
	for len(b) > 0 {
		k := min(n, len(b))
		if _, err := w.Write(b[:k]); err != nil {
			return
		}
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
		b = b[k:]
		time.Sleep(pause) // the rate
	}
}

// requestRange parses the range of a request; to is one past the last byte.
func requestRange(r *http.Request, size int) (from, to int, ok bool) {
	s, ok := strings.CutPrefix(r.Header.Get("Range"), "bytes=")
	if !ok {
		return 0, size, false
	}
	if n, _ := fmt.Sscanf(s, "%d-%d", &from, &to); n == 1 {
		return from, size, true
	}
	return from, to + 1, true
}

// sendPart responds with a range.
func sendPart(w http.ResponseWriter, o *origin, from, to int) {
	w.Header().Set("ETag", o.etag)
	w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to-1, len(o.data)))
	w.Header().Set("Content-Length", fmt.Sprint(to-from))
	w.WriteHeader(http.StatusPartialContent)
	_, _ = w.Write(o.data[from:to])
}

// writeFile replaces a file atomically.
func writeFile(t *testing.T, file string, data []byte) {
	t.Helper()
	if err := os.WriteFile(file+".new", data, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
}
