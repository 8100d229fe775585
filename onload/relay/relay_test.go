// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/porttest"
	"mpbond/base/waittest"
	"mpbond/link/discovery"
	"mpbond/link/tcp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// keys are the device keys of all tests.
var keys = sync.OnceValue(func() (k struct{ helper, laptop, other, stranger *identity.Key }) {
	for _, key := range []**identity.Key{&k.helper, &k.laptop, &k.other, &k.stranger} {
		var err error
		if *key, err = identity.Generate(); err != nil {
			panic(err)
		}
	}
	return k
})

// world is a listening helper and its permissions.
type world struct {
	t     testing.TB
	r     *Relay
	trust *identity.Trust
	addr  string
	may   atomic.Pointer[error]
	stop  func()
}

func newWorld(t testing.TB, prepare ...func(*Relay)) *world {
	t.Helper()
	trust, err := identity.OpenTrust(filepath.Join(t.TempDir(), "trust.toml"))
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string]*identity.Key{"laptop": keys().laptop, "other": keys().other} {
		if err := trust.Add(identity.Peer{Name: name, Roles: []identity.Role{identity.RolePrimary},
			Key: key.Public()}); err != nil {
			t.Fatal(err)
		}
	}
	w := &world{t: t, trust: trust}
	w.r = New(Config{Key: keys().helper, Trust: trust,
		AllowedPrefixes: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Log: slog.New(slog.DiscardHandler),
		CheckAllowed: func(context.Context, identity.Peer, string) error {
			if err := w.may.Load(); err != nil {
				return *err
			}
			return nil
		}})
	w.r.reviewInterval = 10 * time.Millisecond
	for _, p := range prepare {
		p(w.r)
	}
	w.serve()
	return w
}

func (w *world) serve() {
	w.t.Helper()
	l, err := tcp.Listen(w.t.Context(), "127.0.0.1:0", tcp.Options{})
	if err != nil {
		w.t.Fatal(err)
	}
	w.addr = l.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.r.Serve(ctx, l) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			w.t.Errorf("Serve ended with %v", err)
		}
	})
	w.t.Cleanup(w.stop)
}

func (w *world) forbid(err error) { w.may.Store(&err) }

func (w *world) dialer(key *identity.Key) *Dialer {
	return &Dialer{Key: key, Helper: identity.Peer{Name: "phone", Key: keys().helper.Public()},
		Addresses: []string{w.addr}}
}

// client returns a client that fetches through the helper.
func (w *world) client() *http.Client {
	tr := w.dialer(keys().laptop).Transport()
	w.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr, Timeout: 20 * time.Second}
}

// echoServer starts a server that echoes each connection until its end.
func echoServer(t testing.TB) string {
	t.Helper()
	return listen(t, func(c *net.TCPConn) {
		_, _ = io.Copy(c, c)
		_ = c.CloseWrite()
	})
}

// listen serves connections with serve, and closes them then.
func listen(t testing.TB, serve func(*net.TCPConn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				defer context.AfterFunc(ctx, func() { c.Close() })()
				serve(c.(*net.TCPConn))
			})
		}
	})
	t.Cleanup(func() { cancel(); l.Close(); all.Wait() })
	return l.Addr().String()
}

func getBody(t testing.TB, c *http.Client, url string) []byte {
	t.Helper()
	a, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	b, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestRoundTrips checks that HTTP and end-to-end HTTPS work, over as few connections as
// http.Transport uses.
func TestRoundTrips(t *testing.T) {
	w := newWorld(t)
	big := bytes.Repeat([]byte("0123456789abcdef"), 1<<17) // 2 MB
	var connections atomic.Int32
	serve := http.HandlerFunc(func(a http.ResponseWriter, q *http.Request) {
		if q.Method == http.MethodPut {
			n, _ := io.Copy(io.Discard, q.Body)
			if n != int64(len(big)) {
				a.WriteHeader(http.StatusBadRequest)
			}
			return
		}
		_, _ = a.Write(big)
	})
	for _, secure := range []bool{false, true} {
		site := httptest.NewUnstartedServer(serve)
		connections.Store(0)
		site.Config.ConnState = func(_ net.Conn, s http.ConnState) {
			if s == http.StateNew {
				connections.Add(1)
			}
		}
		c := w.client()
		if secure {
			site.StartTLS()
			c.Transport.(*http.Transport).TLSClientConfig = site.Client().Transport.(*http.Transport).TLSClientConfig
		} else {
			site.Start()
		}
		for range 4 {
			if got := getBody(t, c, site.URL); !bytes.Equal(got, big) {
				t.Fatalf("%d bytes came, or others", len(got))
			}
		}
		q, _ := http.NewRequest(http.MethodPut, site.URL, bytes.NewReader(big))
		a, err := c.Do(q)
		if err != nil || a.StatusCode != http.StatusOK {
			t.Fatal(a, err)
		}
		a.Body.Close()
		if n := connections.Load(); n != 1 {
			t.Errorf("%d connections for five requests", n)
		}
		var s Status
		waittest.Until(t, "all is counted", func() bool {
			s = w.r.Status()
			return len(s.Tunnels) == 1 && s.Tunnels[0].Up >= 2<<20 && s.Tunnels[0].Down >= 8<<20
		})
		if len(s.Tunnels) != 1 || s.Tunnels[0].Primary != "laptop" ||
			s.Tunnels[0].Server != site.Listener.Addr().String() {
			t.Errorf("%+v", s)
		}
		c.CloseIdleConnections()
		waittest.Until(t, "the tunnel ends", func() bool { return len(w.r.Status().Tunnels) == 0 })
		if now := w.r.Status(); now.Bytes < s.Bytes {
			t.Errorf("%d bytes were carried, now %d", s.Bytes, now.Bytes)
		}
		site.Close()
	}
}

// TestHalfClose checks that one direction may end before the other.
func TestHalfClose(t *testing.T) {
	w := newWorld(t)
	c, err := w.dialer(keys().laptop).DialContext(t.Context(), "tcp", echoServer(t))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err := io.ReadAll(c); err != nil || string(got) != "hello" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestEndsBesideSilentServer checks that Serve ends although a server, which has seen the end of a
// primary's direction, neither sends nor closes.
func TestEndsBesideSilentServer(t *testing.T) {
	w := newWorld(t)
	seen, leave := make(chan error, 1), make(chan struct{})
	at := listen(t, func(c *net.TCPConn) {
		_, err := io.Copy(io.Discard, c)
		seen <- err
		<-leave
	})
	defer close(leave)
	c, err := w.dialer(keys().laptop).DialContext(t.Context(), "tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-seen; err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { w.stop(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(20 * time.Second): // below userTimeout
		t.Error("Serve does not end")
	}
}

// TestEarlyWords checks that nothing is lost if the server sends first.
func TestEarlyWords(t *testing.T) {
	w := newWorld(t)
	greeting := strings.Repeat("220 ready\r\n", 2000)
	at := listen(t, func(c *net.TCPConn) { _, _ = io.WriteString(c, greeting) })
	c, err := w.dialer(keys().laptop).DialContext(t.Context(), "tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got, err := io.ReadAll(c); err != nil || string(got) != greeting {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// TestErrors checks the kinds and hints of errors.
func TestErrors(t *testing.T) {
	w := newWorld(t)
	gone := porttest.FreeAddress(t)
	for _, c := range []struct {
		name, network, addr string
		change              func(*Dialer)
		kind                fault.Kind
		hint                bool
	}{
		{"nobody there", "tcp", gone, nil, fault.Unreachable, true},
		{"private", "tcp", "10.0.0.1:80", nil, fault.Permission, true},
		{"the helper itself", "tcp", "[::1]:80", nil, fault.Permission, true},
		{"embedded", "tcp", "[64:ff9b::a00:1]:80", nil, fault.Permission, true},
		{"no port", "tcp", "127.0.0.1", nil, fault.Usage, false},
		{"more than an address", "tcp", "127.0.0.1:80 HTTP/1.1\r\nX: y\r\n:80", nil, fault.Usage, false},
		{"datagrams", "udp", "127.0.0.1:80", nil, fault.Unsupported, false},
		{"a stranger", "tcp", gone, func(d *Dialer) { d.Key = keys().stranger }, fault.UnknownDevice, true},
		{"another helper", "tcp", gone, func(d *Dialer) { d.Helper.Key = keys().other.Public() }, fault.WrongKey, true},
		{"no helper", "tcp", gone, func(d *Dialer) { d.Addresses = []string{gone} }, fault.Unreachable, true},
		{"no address", "tcp", gone, func(d *Dialer) { d.Addresses = nil }, fault.NotFound, true},
	} {
		d := w.dialer(keys().laptop)
		if c.change != nil {
			c.change(d)
		}
		conn, err := d.DialContext(t.Context(), c.network, c.addr)
		if err == nil {
			conn.Close()
		}
		if !fault.Is(err, c.kind) || c.hint && fault.HintOf(err) == "" {
			t.Errorf("%s: %v (%s; %q)", c.name, err, fault.KindOf(err), fault.HintOf(err))
		}
	}
	w.forbid(fault.New(fault.Limit, errors.New("suspended: 9 %\x1b[31m of its battery\nare left"), ""))
	_, err := w.dialer(keys().laptop).DialContext(t.Context(), "tcp", gone)
	if !fault.Is(err, fault.Limit) || !strings.Contains(err.Error(), "suspended: 9 %?[31m of its battery?are left") {
		t.Errorf("%v (%s)", err, fault.KindOf(err))
	}
	if n := len(w.r.Status().Tunnels); n != 0 {
		t.Errorf("%d tunnels remain", n)
	}
}

// TestAddresses checks that an address without a response is skipped, and is not tried first
// afterwards.
func TestAddresses(t *testing.T) {
	w := newWorld(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var calls atomic.Int32
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			calls.Add(1)
			_, _ = io.WriteString(c, "SSH-2.0-something\r\n")
			c.Close()
		}
	}()
	defer l.Close()
	d := w.dialer(keys().laptop)
	d.Addresses = []string{l.Addr().String(), w.addr}
	at := echoServer(t)
	for range 3 {
		c, err := d.DialContext(t.Context(), "tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	if calls.Load() != 1 {
		t.Errorf("the wrong address was dialled %d times", calls.Load())
	}
}

// TestCancel checks that the end of a context cancels each step at once.
func TestCancel(t *testing.T) {
	reached := make(chan struct{}, 1)
	silent := listen(t, func(c *net.TCPConn) {
		reached <- struct{}{}
		_, _ = io.Copy(io.Discard, c)
	})
	d := &Dialer{Key: keys().laptop, Helper: identity.Peer{Name: "phone", Key: keys().helper.Public()},
		Addresses: []string{silent}}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	go func() { <-reached; cancel(why) }()
	if _, err := d.DialContext(ctx, "tcp", "192.0.2.1:80"); !errors.Is(err, why) {
		t.Errorf("during the handshake: %v", err) // without the cancel: a fault of kind Timeout
	}

	w := newWorld(t, func(r *Relay) {
		r.cfg.CheckAllowed = func(ctx context.Context, _ identity.Peer, server string) error {
			if server != "" {
				reached <- struct{}{}
			}
			<-ctx.Done() // like a name server that does not respond
			return ctx.Err()
		}
	})
	ctx, cancel = context.WithCancelCause(t.Context())
	go func() { <-reached; cancel(why) }()
	if _, err := w.dialer(keys().laptop).DialContext(ctx, "tcp", "192.0.2.1:80"); !errors.Is(err, why) {
		t.Errorf("while the helper checks the request: %v", err)
	}
}

// TestFind checks that discovered helpers are identified by their keys, and that the trust file
// adds others.
func TestFind(t *testing.T) {
	w := newWorld(t)
	trust, err := identity.OpenTrust(filepath.Join(t.TempDir(), "trust.toml"))
	if err != nil {
		t.Fatal(err)
	}
	add := func(name string, key *identity.Key, role identity.Role, addrs ...string) {
		t.Helper()
		if err := trust.Add(identity.Peer{Name: name, Roles: []identity.Role{role}, Key: key.Public(),
			Addresses: addrs}); err != nil {
			t.Fatal(err)
		}
	}
	at := netip.MustParseAddrPort
	found := []discovery.Found{{Addr: at(w.addr)}, {Addr: at(echoServer(t))}, {ID: "lies", Addr: at("127.0.0.1:1")}}
	f := Finder{Key: keys().laptop, Trust: trust, Discover: func(context.Context) ([]discovery.Found,
		error) {
		return found, nil
	}}
	find := func(want string) {
		t.Helper()
		list, err := f.Find(t.Context())
		got := ""
		for _, d := range list {
			got += d.Helper.Name + strings.ReplaceAll(fmt.Sprint(d.Addresses), w.addr, "found") + " "
		}
		if strings.TrimSpace(got) != want || err != nil && want != "" {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	find("")
	add("old", keys().other, identity.RoleHelper, "192.0.2.7:7603", "rfcomm://AA:BB:CC:DD:EE:FF/1")
	add("vps", keys().stranger, identity.RoleServer, "192.0.2.8:7600")
	add("phone", keys().helper, identity.RoleHelper)
	find("phone[found] old[192.0.2.7:7604]")
	f.Discover = func(context.Context) ([]discovery.Found, error) { return nil, errors.New("no network") }
	find("old[192.0.2.7:7604]")
	if err := trust.SetPaused("old", true); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Find(t.Context()); err == nil {
		t.Error("no helper found, and no error returned")
	}
}
