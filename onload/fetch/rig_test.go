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
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"mpbond/unit"
)

func TestMain(m *testing.M) {
	if os.Getenv("FETCH_CHILD") != "" {
		child()
		return
	}
	goleak.VerifyTestMain(m)
}

// brisk are times for tests.
var brisk = times{
	stall: 300 * time.Millisecond, answer: time.Second, backoff: 20 * time.Millisecond,
	patience: 1500 * time.Millisecond, save: 30 * time.Millisecond, tick: 10 * time.Millisecond,
}

func random(n int, seed uint64) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed)})
	_, _ = r.Read(b)
	return b
}

// line is a device's transport: it calls from an address of its own, carries so much,
// and can be cut.
type line struct {
	*http.Transport
	rate unit.Rate // 0: no bound
	cut  atomic.Bool
	read atomic.Int64

	mu    sync.Mutex
	conns map[net.Conn]bool
}

func newLine(t *testing.T, i int, rate unit.Rate) *line {
	l := &line{rate: rate, conns: map[net.Conn]bool{}}
	d := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i))}}
	l.Transport = &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if l.cut.Load() {
			return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("no such helper")}
		}
		c, err := d.DialContext(ctx, network, addr)
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

// down cuts it, or repairs it.
func (l *line) down(yes bool) {
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
	l *line
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

func devices(lines ...*line) (list []Device) {
	for i, l := range lines {
		list = append(list, Device{fmt.Sprintf("device%d", i), l})
	}
	return list
}

func lines(t *testing.T, n int, rate unit.Rate) (list []*line) {
	for i := range n {
		list = append(list, newLine(t, i, rate))
	}
	return list
}

// origin is a web server with one object, that can do everything wrong.
type origin struct {
	data  []byte
	etag  string
	asked atomic.Int64
	calls atomic.Int64 // for wrong
	// wrong answers a request in its own way, or returns false.
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

// serve answers as it should be.
func (o *origin) serve(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("ETag", o.etag)
	http.ServeContent(w, r, "x.bin", modified, bytes.NewReader(o.data))
}

func serve(t *testing.T, o *origin) string {
	s := httptest.NewServer(o)
	t.Cleanup(s.Close)
	return s.URL + "/file.bin"
}

// get fetches one object into a new directory.
func get(t *testing.T, url string, dev []Device, change func(*Config)) (Result, string, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "file.bin")
	cfg := Config{Devices: dev, Objects: []Object{{URL: url, File: file}}, times: brisk}
	if testing.Verbose() {
		cfg.Log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
	}
	if change != nil {
		change(&cfg)
	}
	r, err := Get(t.Context(), cfg)
	return r, file, err
}

// same checks that the file is right, and that nothing else is left.
func same(t *testing.T, file string, want []byte) {
	t.Helper()
	got, err := os.ReadFile(file)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes instead of %d, %v", len(got), len(want), err)
	}
	alone(t, file)
}

func alone(t *testing.T, file string) {
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

// total sums what the devices did.
func total(r Result) (bytes, wasted unit.Bytes) {
	for _, d := range r.Devices {
		bytes, wasted = bytes+d.Bytes, wasted+d.Wasted
	}
	return bytes, wasted
}

// pieces writes in steps, so that the other side sees the beginning before the end.
func pieces(w io.Writer, b []byte, n int, pause time.Duration) {
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

// span reads a request's range; to is one behind.
func span(r *http.Request, size int) (from, to int, ok bool) {
	s, ok := strings.CutPrefix(r.Header.Get("Range"), "bytes=")
	if !ok {
		return 0, size, false
	}
	if n, _ := fmt.Sscanf(s, "%d-%d", &from, &to); n == 1 {
		return from, size, true
	}
	return from, to + 1, true
}

// sendPart answers with a range.
func sendPart(w http.ResponseWriter, o *origin, from, to int) {
	w.Header().Set("ETag", o.etag)
	w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to-1, len(o.data)))
	w.Header().Set("Content-Length", fmt.Sprint(to-from))
	w.WriteHeader(http.StatusPartialContent)
	_, _ = w.Write(o.data[from:to])
}
