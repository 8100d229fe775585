// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"mpbond/api"
	"mpbond/base/identity"
	"mpbond/base/porttest"
	"mpbond/base/unit"
	"mpbond/e2e/rig"
	"mpbond/link/wire"
	"mpbond/node/primary"
)

// awaitRefusal waits until the primary's status gives a reason, with a hint, why a device carries
// nothing.
func (w *testbed) awaitRefusal(device, reason, hint string) {
	w.Helper()
	rig.Eventually(w.TB, func() error {
		e := w.lastError(device)
		if !strings.Contains(e, reason) || !strings.Contains(e, hint) {
			return fmt.Errorf("%s: %q, want %q and %q", device, e, reason, hint)
		}
		return nil
	})
}

func TestPrimaryUnknownToServer(t *testing.T) {
	w := newTestbed(t)
	if err := w.server.trust.Remove("laptop"); err != nil {
		t.Fatal(err)
	}
	w.startServer()
	w.startPrimary()
	w.awaitRefusal("laptop", "refused the key of this device", "mpbond trust add")
	w.server.awaitLog("connection refused", "unknown device", w.primary.key.ID().String(), "mpbond trust add")
}

func TestPrimaryIsNoPrimary(t *testing.T) {
	w := newTestbed(t)
	if err := w.server.trust.Remove("laptop"); err != nil {
		t.Fatal(err)
	}
	w.server.addPeer(w.primary, identity.RoleHelper)
	w.startServer()
	w.startPrimary()
	w.awaitRefusal("laptop", "refused the key of this device", "mpbond trust add")
}

func TestServerHasAnotherKey(t *testing.T) {
	w := newTestbed(t)
	w.startServer()
	w.primary.addPeer(newDevice(t, "imposter"), identity.RoleServer, w.scfg.Listen)
	w.startPrimary()
	w.awaitRefusal("laptop", "another key answered", "key")
}

func TestHelperUnknownToPrimary(t *testing.T) {
	w := newTestbed(t)
	w.startAll()
	phone := w.newHelper("phone")
	if err := w.primary.trust.Remove("phone"); err != nil {
		t.Fatal(err)
	}
	w.startHelper(phone)
	w.primary.awaitLog("pipe refused", "unknown device", phone.key.ID().String(), "mpbond trust add")
	phone.awaitLog("no pipe", "refused the key of this device", "mpbond trust add")
	if err := w.download(100_000); err != nil {
		t.Error(err)
	}
}

func TestPrimaryHasAnotherKeyThanTheHelperThinks(t *testing.T) {
	w := newTestbed(t)
	w.startAll()
	phone := newDevice(t, "phone")
	w.primary.addPeer(phone, identity.RoleHelper)
	phone.addPeer(newDevice(t, "imposter"), identity.RolePrimary, w.pcfg.Pipe)
	w.startHelper(phone)
	phone.awaitLog("no pipe", "another key answered", "hint=\"")
}

// TestServerUnknownToHelper: a helper that knows no server uses the one that its primary names. It
// learns of another one when the primary does.
func TestServerUnknownToHelper(t *testing.T) {
	w := newTestbed(t)
	w.startAll()
	phone := w.newHelper("phone")
	if err := phone.trust.Remove("home"); err != nil {
		t.Fatal(err)
	}
	w.startHelper(phone)
	w.awaitSubflows("laptop", "phone")
	if p, _ := phone.trust.LookupName("laptop"); len(p.Servers) != 1 || p.Servers[0] != w.scfg.Listen ||
		len(phone.trust.Peers()) != 1 {
		t.Errorf("the helper knows %+v", phone.trust.Peers())
	}
	w.primary.addPeer(newDevice(t, "other"), identity.RoleServer, "127.0.0.1:1")
	w.reloadTrust(w.primary, w.p.TrustChanged)
	rig.Eventually(t, func() error {
		if p, _ := phone.trust.LookupName("laptop"); len(p.Servers) != 2 || p.Servers[1] != "127.0.0.1:1" {
			return fmt.Errorf("the helper knows %+v", p)
		}
		return nil
	})
}

// expectStreamReset reads a stream to its end and checks the reset that ends it.
func (w *testbed) expectStreamReset(c net.Conn, code wire.Code, text string) {
	w.Helper()
	_, err := io.Copy(io.Discard, struct{ io.Reader }{c})
	var r wire.Reset
	if !errors.As(err, &r) || r.Code != code || !strings.Contains(r.Text, text) {
		w.Errorf("the stream ended with %v, want %v and %q", err, code, text)
	}
}

func TestDestinations(t *testing.T) {
	w := newTestbed(t)
	w.startAll()
	gone := porttest.FreeAddress(t)
	for _, c := range []struct {
		dest string
		code wire.Code
		text string
	}{
		{"127.0.0.2:80", wire.CodeForbidden, "does not connect to private addresses"},
		{"[::1]:80", wire.CodeForbidden, "does not connect to private addresses"},
		{"[::ffff:10.0.0.1]:80", wire.CodeForbidden, "does not connect to private addresses"},
		{gone, wire.CodeConnRefused, "connection refused"},
		{"127.0.0.1:x", wire.CodeUnreachable, "numeric"},
	} {
		w.expectStreamReset(w.dialStream(c.dest), c.code, c.text)
	}
	if _, err := w.p.DialStream(t.Context(), "no port"); err == nil {
		t.Error("a destination without port was taken")
	}
	if _, err := w.p.DialStream(t.Context(), strings.Repeat("x", wire.MaxDest)+":80"); err == nil {
		t.Error("a destination that is too long was taken")
	}
	if err := w.download(100_000); err != nil {
		t.Error(err)
	}
}

func TestStreamLimit(t *testing.T) {
	w := newTestbed(t)
	w.scfg.MaxStreams = 3
	w.startAll("phone")
	var open []net.Conn
	for range 3 {
		c := w.dialStream(w.web.addr)
		if _, err := fmt.Fprintf(c, "wait 0\n"); err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	rig.Eventually(t, func() error {
		if n := w.web.countConns(); n != 3 {
			return fmt.Errorf("%d connections", n)
		}
		return nil
	})
	for range 20 {
		w.expectStreamReset(w.dialStream(w.web.addr), wire.CodeLimit,
			"3 streams of the device are open, which is the server's limit")
	}
	w.awaitSubflows("laptop", "phone") // no subflow has suffered
	// Another bond of the device shares its limit of streams.
	cfg := w.pcfg
	cfg.Pipe = ""
	p, err := primary.New(cfg, w.primary.key, w.primary.trust, w.primary.log.Logger(), nil)
	if err != nil {
		t.Fatal(err)
	}
	twin := &device{t: t, name: "twin"}
	twin.runRole(p.Run)
	other := *w
	other.p = p
	other.awaitSubflows("laptop")
	for range 5 {
		w.expectStreamReset(other.dialStream(w.web.addr), wire.CodeLimit,
			"3 streams of the device are open, which is the server's limit")
	}
	twin.stop()
	for _, c := range open {
		c.Close()
	}
	rig.Eventually(t, func() error { return w.download(1000) })
}

func TestSubflowLimit(t *testing.T) {
	w := newTestbed(t)
	w.scfg.MaxSubflows = 2
	w.pcfg.Subflows = 2
	w.startAll()
	phone := w.newHelper("phone")
	w.startHelper(phone)
	w.awaitRefusal("phone", "the bond has 2 subflows, which is the limit", "max_subflows")
	if err := w.download(mb); err != nil {
		t.Error(err)
	}
}

func TestBondLimit(t *testing.T) {
	w := newTestbed(t)
	w.scfg.MaxBonds = 1
	w.startAll()
	cfg := w.pcfg // a second process with the same key
	cfg.Pipe = ""
	p, err := primary.New(cfg, w.primary.key, w.primary.trust, w.primary.log.Logger(), nil)
	if err != nil {
		t.Fatal(err)
	}
	second := *w.primary
	second.runRole(p.Run)
	other := *w
	other.p = p
	other.awaitRefusal("laptop", "the device has 1 bonds, which is the limit", "max_bonds")
	if err := w.download(mb); err != nil {
		t.Error(err)
	}
}

// reloadTrust does what SIGHUP does.
func (w *testbed) reloadTrust(d *device, changed func()) {
	w.Helper()
	if err := d.trust.Reload(); err != nil {
		w.Fatal(err)
	}
	changed()
}

func TestServerTrustsTheDeviceNoLonger(t *testing.T) {
	w := newTestbed(t)
	w.startAll("phone")
	ended := w.startReading()
	if err := w.server.trust.Remove("laptop"); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	w.reloadTrust(w.server, w.s.TrustChanged)
	w.awaitReset(ended, wire.CodeUnknown)
	w.awaitSubflows()
	if d := time.Since(began); d > promptly {
		t.Errorf("the refusal took %v", d)
	}
	w.awaitRefusal("laptop", "refused the key of this device", "mpbond trust add")
	rig.Eventually(t, func() error {
		if b, n := w.s.Status(false), w.web.countConns(); len(b)+n > 0 {
			return fmt.Errorf("%d connections to the web are left, bonds %+v", n, b)
		}
		return nil
	})
	w.server.addPeer(w.primary, identity.RolePrimary)
	w.reloadTrust(w.server, w.s.TrustChanged)
	w.awaitSubflows("laptop", "phone")
	if err := w.download(mb); err != nil {
		t.Error(err)
	}
}

func TestPrimaryTrustsTheHelperNoLonger(t *testing.T) {
	w := newTestbed(t)
	phone := w.startAll("phone", "tablet")[0]
	c := w.dialStream(w.web.addr)
	result := make(chan error, 1)
	go func() { result <- w.web.getBytes(c, 50*mb) }()
	if err := w.primary.trust.Remove("phone"); err != nil {
		t.Fatal(err)
	}
	w.reloadTrust(w.primary, w.p.TrustChanged)
	w.awaitSubflows("laptop", "tablet")
	phone.awaitLog("no pipe", "refused the key of this device")
	if err := <-result; err != nil {
		t.Error(err)
	}
	w.primary.addPeer(phone, identity.RoleHelper)
	w.reloadTrust(w.primary, w.p.TrustChanged)
	w.awaitSubflows("laptop", "phone", "tablet")
}

func TestPrimaryTrustsTheServerNoLonger(t *testing.T) {
	w := newTestbed(t)
	w.startAll("phone")
	ended := w.startReading()
	if err := w.primary.trust.Remove("home"); err != nil {
		t.Fatal(err)
	}
	w.reloadTrust(w.primary, w.p.TrustChanged)
	w.awaitReset(ended, wire.CodeConnReset)
	w.awaitSubflows()
	w.awaitRefusal("laptop", "no server is trusted", "mpbond trust add")
	w.primary.addPeer(w.server, identity.RoleServer, w.scfg.Listen)
	w.reloadTrust(w.primary, w.p.TrustChanged)
	w.awaitSubflows("laptop", "phone")
	if err := w.download(mb); err != nil {
		t.Error(err)
	}
}

func TestHelperTrustsThePrimaryNoLonger(t *testing.T) {
	w := newTestbed(t)
	w.startAll()
	phone := w.newHelper("phone")
	h := w.startHelper(phone)
	w.awaitSubflows("laptop", "phone")
	if err := phone.trust.Remove("laptop"); err != nil {
		t.Fatal(err)
	}
	w.reloadTrust(phone, h.TrustChanged)
	w.awaitSubflows("laptop")
	if s := h.Status(); len(s.Pipes) != 0 {
		t.Errorf("the helper still calls: %+v", s)
	}
	phone.addPeer(w.primary, identity.RolePrimary, w.pcfg.Pipe)
	w.reloadTrust(phone, h.TrustChanged)
	w.awaitSubflows("laptop", "phone")
}

// TestHelperIsRenamed: a helper whose subflow is up is reported by its new name, and so is its next
// subflow.
func TestHelperIsRenamed(t *testing.T) {
	w := newTestbed(t)
	w.startAll("phone")
	if err := w.primary.trust.Rename("phone", "pixel"); err != nil {
		t.Fatal(err)
	}
	w.reloadTrust(w.primary, w.p.TrustChanged)
	w.awaitSubflows("laptop", "pixel")
	for _, path := range w.p.Status(false).Subflows {
		if path.Device == "pixel" {
			if err := w.p.CloseSubflow(w.p.Status(false).ID, path.ID); err != nil {
				t.Error(err)
			}
			rig.Eventually(t, func() error {
				for _, now := range w.p.Status(false).Subflows {
					if now.Device == "pixel" && now.ID > path.ID && now.State == api.Up {
						return nil
					}
				}
				return fmt.Errorf("no further subflow by pixel: %+v", w.p.Status(false).Subflows)
			})
		}
	}
	w.awaitSubflows("laptop", "pixel")
}

// TestRatePerDevice: all streams of a device together move at most the rate that the server allows,
// each way.
func TestRatePerDevice(t *testing.T) {
	w := newTestbed(t)
	w.scfg.Rate = 40 * unit.Mbps
	w.startAll("phone")
	const each = 2_000_000
	began := time.Now()
	var all sync.WaitGroup
	for _, f := range []func(int64) error{w.download, w.download, w.upload, w.upload} {
		all.Go(func() {
			if err := f(each); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	const burst = 250_000 // 50 ms of the rate
	if took, least := time.Since(began), w.scfg.Rate.Time(2*each-burst); took < least || took > 4*least+rig.Patience {
		t.Errorf("took %v, the limit is %v", took, least)
	}
}
