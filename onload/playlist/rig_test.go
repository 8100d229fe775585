// SPDX-License-Identifier: Apache-2.0

package playlist

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"mpbond/base/unit"
	"mpbond/onload/fetch"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pipes is a listener in memory, for virtual time.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

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

func (p *pipes) dial(context.Context, string, string) (net.Conn, error) {
	mine, its := net.Pipe()
	select {
	case p.conns <- its:
		return mine, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

// slowBody limits the rate of a device, over all of its connections.
type slowBody struct {
	net.Conn
	l      *testLine
	closed chan struct{}
	once   *sync.Once
}

func (s slowBody) Close() error {
	s.once.Do(func() { close(s.closed) })
	return s.Conn.Close()
}

func (s slowBody) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b[:min(len(b), 8<<10)])
	s.l.mu.Lock()
	s.l.free = s.l.after(slices.MaxFunc([]time.Time{s.l.free, time.Now()}, time.Time.Compare), unit.Bytes(n))
	wait := time.Until(s.l.free)
	s.l.mu.Unlock()
	select {
	case <-time.After(wait):
	case <-s.closed:
		return 0, net.ErrClosed
	}
	return n, err
}

// rateStep is the rate of a device from a time on.
type rateStep struct {
	at   time.Duration
	rate unit.Rate
}

// after returns when n bytes that begin at a time have been carried.
func (l *testLine) after(begin time.Time, n unit.Bytes) time.Time {
	rate, left := l.rate, n
	for _, s := range l.steps {
		if at := l.born.Add(s.at); at.After(begin) {
			if rate > 0 {
				if end := begin.Add(rate.Time(left)); !end.After(at) {
					return end
				}
				left -= rate.Bytes(at.Sub(begin))
			}
			begin = at
		}
		rate = s.rate
	}
	if rate == 0 {
		return begin.Add(1000 * time.Hour)
	}
	return begin.Add(rate.Time(max(0, left)))
}

type testLine struct {
	*http.Transport
	name string // sent to the web server as X-Line
	rate unit.Rate
	rtt  time.Duration // of a response; a new connection costs the same again
	// steps change the rate with time since born.
	steps []rateStep
	born  time.Time
	mu    sync.Mutex
	free  time.Time
	down  bool
	log   []string // requested "host/path"
}

func (l *testLine) RoundTrip(r *http.Request) (*http.Response, error) {
	l.mu.Lock()
	down := l.down
	l.log = append(l.log, r.URL.Host+r.URL.Path)
	l.mu.Unlock()
	if down {
		return nil, &net.OpError{Op: "dial", Err: net.ErrClosed}
	}
	select {
	case <-time.After(l.rtt):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	r = r.Clone(r.Context())
	r.Header.Set("X-Line", l.name)
	return l.Transport.RoundTrip(r)
}

// webServer is a web server with files that records its requests.
type webServer struct {
	mu    sync.Mutex
	files map[string][]byte
	log   []string // "path range"
	wrong func(w http.ResponseWriter, r *http.Request) bool
}

func (s *webServer) put(name string, data []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.files[name] = data
	return data
}

func (s *webServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	name := r.URL.RequestURI()
	data, ok := s.files[name]
	wrong := s.wrong
	s.log = append(s.log, strings.TrimSpace(name+" "+r.Header.Get("Range")))
	s.mu.Unlock()
	if wrong != nil && wrong(w, r) {
		return
	}
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("ETag", fmt.Sprintf("%q", fmt.Sprintf("%d-%x", len(data), data[:min(8, len(data))])))
	w.Header().Set("X-Name", name)
	http.ServeContent(w, r, r.URL.Path, time.Time{}, bytes.NewReader(data))
}

// asked counts requests whose line has a prefix.
func (s *webServer) asked(begin string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.log {
		if strings.HasPrefix(l, begin) {
			n++
		}
	}
	return n
}

type rig struct {
	t      *testing.T
	origin *pipes
	joins  chan fetch.Device
	web    *webServer
	lines  []*testLine
	proxy  *Proxy
	player *http.Client
	stop   func() Result
}

// newRig creates a server, a proxy with a device for each rate, and a player, all in memory.
func newRig(t *testing.T, memory unit.Bytes, rates ...unit.Rate) *rig {
	r := &rig{t: t, web: &webServer{files: map[string][]byte{}}, origin: newPipes(), joins: make(chan fetch.Device)}
	server := &http.Server{Handler: r.web}
	go func() { _ = server.Serve(r.origin) }()
	cfg := Config{memory: memory, NewDevices: r.joins}
	for _, rate := range rates {
		cfg.Devices = append(cfg.Devices, r.device(rate))
	}
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r.proxy = p
	at := newPipes()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan Result, 1)
	go func() {
		res, err := p.Serve(ctx, at)
		if err != nil {
			t.Error(err)
		}
		ended <- res
	}()
	through := &http.Transport{DialContext: at.dial, Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: "proxy"}),
		DisableCompression: true}
	r.player = &http.Client{Transport: through, CheckRedirect: keepRedirect}
	r.stop = func() Result {
		through.CloseIdleConnections()
		cancel()
		res := <-ended
		for _, l := range r.lines {
			l.CloseIdleConnections()
		}
		server.Close()
		time.Sleep(time.Minute) // virtual time: bytes under way arrive
		if !p.prefetcher.loop.Board.IsDone() && len(p.prefetcher.queue.segments) == 0 {
			t.Error("the board has items without a segment")
		}
		return res
	}
	return r
}

// device returns a further device.
func (r *rig) device(rate unit.Rate) fetch.Device {
	l := &testLine{name: fmt.Sprintf("line%d", len(r.lines)), rate: rate, born: time.Now()}
	l.Transport = &http.Transport{DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		time.Sleep(l.rtt)
		c, err := r.origin.dial(ctx, network, addr)
		return slowBody{c, l, make(chan struct{}), new(sync.Once)}, err
	}}
	r.lines = append(r.lines, l)
	return fetch.Device{Name: l.name, Transport: l}
}

// get sends a request of a player; want, if not nil, is the expected body.
func (r *rig) get(path string, want []byte, headers ...string) (*http.Response, []byte) {
	r.t.Helper()
	q, err := http.NewRequest(http.MethodGet, "http://tv.test"+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		q.Header.Set(headers[i], headers[i+1])
	}
	a, err := r.player.Do(q)
	if err != nil {
		r.t.Errorf("%s: %v", path, err)
		return nil, nil
	}
	defer a.Body.Close()
	data, err := io.ReadAll(a.Body)
	if want != nil && (err != nil || !bytes.Equal(data, want)) {
		r.t.Errorf("%s: %s, %d bytes instead of the %d wanted, %v", path, a.Status, len(data), len(want), err)
	}
	return a, data
}

// held returns the stored bytes of the proxy, and their URLs.
func (r *rig) held() (n unit.Bytes, urls []string) {
	r.proxy.prefetcher.loop.Lock()
	defer r.proxy.prefetcher.loop.Unlock()
	for k, s := range r.proxy.prefetcher.segments {
		n += s.heldBytes
		urls = append(urls, k.url)
	}
	if n != r.proxy.prefetcher.heldBytes {
		r.t.Errorf("%v held, %v counted", n, r.proxy.prefetcher.heldBytes)
	}
	return n, urls
}

func randomBytes(n int, seed int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}).Read(b)
	return b
}

// vod adds an HLS video to the server and returns its segments.
func (r *rig) vod(dir string, n, size int) (all [][]byte) {
	text := "#EXTM3U\n#EXT-X-TARGETDURATION:4\n#EXT-X-MEDIA-SEQUENCE:5\n"
	for i := range n {
		text += fmt.Sprintf("#EXTINF:4.0,\nseg%d.ts?k=%d\n", i, i)
		all = append(all, r.web.put(fmt.Sprintf("%s/seg%d.ts?k=%d", dir, i, i), randomBytes(size, i)))
	}
	r.web.put(dir+"/list.m3u8", []byte(text+"#EXT-X-ENDLIST\n"))
	return all
}

// play plays segments like a player with a buffer of keep, and returns how long it stalled after
// the start.
func (r *rig) play(paths []string, data [][]byte, each, keep time.Duration) (stalled time.Duration) {
	return r.playNoting(paths, data, each, keep, func(int) {})
}

// playNoting is play, and calls note after each segment.
func (r *rig) playNoting(
	paths []string,
	data [][]byte,
	each, keep time.Duration,
	note func(i int),
) (stalled time.Duration) {
	var ready time.Time // when the buffer runs empty
	for i, p := range paths {
		if i > 0 {
			time.Sleep(max(0, time.Until(ready)-keep)) // its buffer is full
		}
		r.get(p, data[i])
		note(i)
		now := time.Now()
		if i > 0 && now.After(ready) {
			stalled += now.Sub(ready)
		}
		ready = slices.MaxFunc([]time.Time{ready, now}, time.Time.Compare).Add(each)
	}
	return stalled
}
