// SPDX-License-Identifier: Apache-2.0

// Package e2e tests the roles together: here in one process, over real TCP and TLS on loopback; in
// lab_test.go as processes in network namespaces.
//
//	testbed_test.go  the devices and how to wait for them
//	roles_test.go    roles work, stop and start again
//	refuse_test.go   unknown devices, limits, private destinations, revoked trust
//	garbage_test.go  peers that break the protocol
//	hostile_test.go  attackers on the path, on another device or at a port
//	attack_test.go   floods and exhaustion of the real program
//	false_reports_test.go  a trusted helper that reports falsely
//	lab_test.go      the real program in an emulated network
package e2e

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"mpbond/api"
	"mpbond/base/identity"
	"mpbond/base/porttest"
	"mpbond/e2e/rig"
	"mpbond/node/helper"
	"mpbond/node/primary"
	"mpbond/node/server"
)

// promptly bounds what waits for no timer. On a quiet machine that takes tenths of a second, and a
// second between two tries.
const promptly = 5 * time.Second

// device is a device with its key, its trust file and its log.
type device struct {
	t     testing.TB
	name  string
	key   *identity.Key
	trust *identity.Trust
	log   *rig.Journal
	stop  func() // ends the role and waits; nil while none runs
}

// newDevice makes a device with a new key that trusts nobody.
func newDevice(t testing.TB, name string) *device {
	t.Helper()
	key, err := identity.Generate()
	if err != nil {
		t.Fatal(err)
	}
	trust, err := identity.OpenTrust(filepath.Join(t.TempDir(), "trust.toml"))
	if err != nil {
		t.Fatal(err)
	}
	return &device{t: t, name: name, key: key, trust: trust, log: new(rig.Journal)}
}

// addPeer makes the device trust another one in a role.
func (d *device) addPeer(other *device, r identity.Role, addr ...string) {
	d.t.Helper()
	if err := d.trust.Add(identity.Peer{Name: other.name, Roles: []identity.Role{r}, Key: other.key.Public(),
		Addresses: addr}); err != nil {
		d.t.Fatal(err)
	}
}

// runRole runs a role until stop is called or the test ends.
func (d *device) runRole(run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	d.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil && !errors.Is(err, context.Canceled) {
				d.t.Errorf("%s ended with %v", d.name, err)
			}
		case <-time.After(rig.Patience):
			stacks := make([]byte, 1<<20)
			d.t.Errorf("%s does not end:\n%s", d.name, stacks[:runtime.Stack(stacks, true)])
		}
	})
	d.t.Cleanup(d.stop)
}

// testbed is a server with a web server behind it, and a primary.
type testbed struct {
	testing.TB
	server, primary *device
	s               *server.Server
	p               *primary.Primary
	web             *web
	scfg            server.Config
	pcfg            primary.Config
}

// newTestbed makes the devices. No role runs yet.
func newTestbed(t testing.TB) *testbed {
	t.Helper()
	w := &testbed{TB: t, server: newDevice(t, "home"), primary: newDevice(t, "laptop"), web: newWeb(t)}
	w.scfg, w.pcfg = server.Default, primary.Default
	w.scfg.Listen, w.scfg.Allow = porttest.FreeAddress(t), []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	w.pcfg.Pipe, w.pcfg.Name = porttest.FreeAddress(t), "laptop"
	w.server.addPeer(w.primary, identity.RolePrimary)
	return w
}

// startServer starts the server, on its previous port if it had one.
func (w *testbed) startServer() {
	w.Helper()
	s, err := server.New(w.scfg, w.server.key, w.server.trust, w.server.log.Logger(), nil)
	if err != nil {
		w.Fatal(err)
	}
	w.s, w.scfg.Listen = s, s.Addr().String()
	w.server.runRole(s.Run)
}

// startPrimary starts the primary, on its previous port if it had one.
func (w *testbed) startPrimary() {
	w.Helper()
	if len(w.primary.trust.ByRole(identity.RoleServer)) == 0 {
		w.primary.addPeer(w.server, identity.RoleServer, w.scfg.Listen)
	}
	p, err := primary.New(w.pcfg, w.primary.key, w.primary.trust, w.primary.log.Logger(), nil)
	if err != nil {
		w.Fatal(err)
	}
	w.p, w.pcfg.Pipe = p, p.PipeAddr().String()
	w.primary.runRole(p.Run)
}

// newHelper makes a helper that trusts server and primary, and that the primary trusts.
func (w *testbed) newHelper(name string) *device {
	w.Helper()
	d := newDevice(w.TB, name)
	w.primary.addPeer(d, identity.RoleHelper)
	d.addPeer(w.primary, identity.RolePrimary, w.pcfg.Pipe)
	d.addPeer(w.server, identity.RoleServer, w.scfg.Listen)
	return d
}

// startHelper starts a helper on a device.
func (w *testbed) startHelper(d *device) *helper.Helper {
	w.Helper()
	h, err := helper.New(helper.Config{}, d.name, helper.Identity{Key: d.key, Trust: d.trust}, d.log.Logger(), nil)
	if err != nil {
		w.Fatal(err)
	}
	d.runRole(h.Run)
	return h
}

// startAll starts a server, a primary and helpers, and waits for their subflows.
func (w *testbed) startAll(helpers ...string) (list []*device) {
	w.Helper()
	w.startServer()
	w.startPrimary()
	for _, name := range helpers {
		d := w.newHelper(name)
		w.startHelper(d)
		list = append(list, d)
	}
	w.awaitSubflows(append([]string{"laptop"}, helpers...)...)
	return list
}

// awaitSubflows waits until exactly these devices have subflows.
func (w *testbed) awaitSubflows(devices ...string) {
	w.Helper()
	rig.Eventually(w.TB, func() error {
		up := map[string]bool{}
		for _, path := range w.p.Status(false).Subflows {
			if path.State == api.Up {
				up[path.Device] = true
			}
		}
		for _, d := range devices {
			if !up[d] {
				return fmt.Errorf("no subflow by %s: %+v", d, w.p.Status(false).Subflows)
			}
		}
		if len(up) != len(devices) {
			return fmt.Errorf("subflows by %v, want %v", up, devices)
		}
		return nil
	})
}

// lastError returns the error that the primary's status gives for a device.
func (w *testbed) lastError(device string) string {
	for _, path := range w.p.Status(false).Subflows {
		if path.Device == device {
			return path.LastError
		}
	}
	return ""
}

// dialStream opens a stream that ends with the test.
func (w *testbed) dialStream(dest string) net.Conn {
	w.Helper()
	c, err := w.p.DialStream(w.Context(), dest)
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(2 * rig.Patience))
	return c
}

// download downloads n bytes over a new stream.
func (w *testbed) download(n int64) error {
	c, err := w.p.DialStream(w.Context(), w.web.addr)
	if err != nil {
		return err
	}
	defer c.Close()
	return w.web.getBytes(c, n)
}

// upload uploads n bytes over a new stream.
func (w *testbed) upload(n int64) error {
	c, err := w.p.DialStream(w.Context(), w.web.addr)
	if err != nil {
		return err
	}
	defer c.Close()
	return w.web.putBytes(c, n)
}

// web answers "get N\n" with N bytes. It answers "put N\n", followed by N bytes, with rig.Sum of
// these.
type web struct {
	addr string
	mu   sync.Mutex
	all  map[net.Conn]bool
}

// newWeb starts a web server that ends with the test.
func newWeb(t testing.TB) *web {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &web{addr: l.Addr().String(), all: map[net.Conn]bool{}}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.trackConn(c, true)
			wg.Go(func() {
				defer s.trackConn(c, false)
				defer c.Close()
				serveWeb(c)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		s.mu.Lock()
		for c := range s.all {
			c.Close()
		}
		s.mu.Unlock()
		wg.Wait()
	})
	return s
}

// trackConn registers an open connection, or removes a closed one.
func (s *web) trackConn(c net.Conn, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if on {
		s.all[c] = true
	} else {
		delete(s.all, c)
	}
}

// countConns returns the number of open connections.
func (s *web) countConns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
}

// serveWeb answers one request.
func serveWeb(c net.Conn) {
	var verb string
	var n int64
	if _, err := fmt.Fscanf(c, "%s %d\n", &verb, &n); err != nil {
		return
	}
	switch verb {
	case "get":
		_, _ = io.Copy(c, rig.Noise(n))
	case "put":
		if got, err := rig.Sum(io.LimitReader(c, n)); err == nil {
			_, _ = io.WriteString(c, got)
		}
	case "wait": // until the peer closes
		_, _ = io.Copy(io.Discard, c)
	}
}

// getBytes requests n bytes over c and checks them.
func (s *web) getBytes(c net.Conn, n int64) error {
	if _, err := fmt.Fprintf(c, "get %d\n", n); err != nil {
		return err
	}
	want, _ := rig.Sum(rig.Noise(n))
	got, err := rig.Sum(c)
	if err == nil && got != want {
		err = fmt.Errorf("got %s, want %s", got, want)
	}
	return err
}

// putBytes sends n bytes over c and checks the answer.
func (s *web) putBytes(c net.Conn, n int64) error {
	if _, err := fmt.Fprintf(c, "put %d\n", n); err != nil {
		return err
	}
	if _, err := io.Copy(struct{ io.Writer }{c}, rig.Noise(n)); err != nil {
		return err
	}
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		return err
	}
	want, _ := rig.Sum(rig.Noise(n))
	got, err := io.ReadAll(c)
	if err == nil && string(got) != want {
		err = fmt.Errorf("got %s, want %s", got, want)
	}
	return err
}

// awaitLog waits until one line of the log has all the words.
func (d *device) awaitLog(words ...string) {
	d.t.Helper()
	rig.Eventually(d.t, func() error {
		for line := range strings.Lines(d.log.String()) {
			found := 0
			for _, word := range words {
				if strings.Contains(line, word) {
					found++
				}
			}
			if found == len(words) {
				return nil
			}
		}
		return fmt.Errorf("%s does not log %q:\n%s", d.name, words, cmp.Or(d.log.String(), "(nothing)"))
	})
}
