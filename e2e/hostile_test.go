// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"mpbond/base/config"
	"mpbond/base/identity"
	"mpbond/base/unit"
	"mpbond/e2e/rig"
	"mpbond/link/wire"
)

// interceptConns accepts connections until the test ends and returns its address. It opens a
// connection to addr for each one, passes both to pass, and closes both when pass returns.
func interceptConns(t *testing.T, addr string, pass func(near, far net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer near.Close()
				far, err := net.Dial("tcp", addr)
				if err != nil {
					return
				}
				defer far.Close()
				defer context.AfterFunc(t.Context(), func() { near.Close(); far.Close() })()
				pass(near, far)
			})
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
	return l.Addr().String()
}

// meddler sits between helpers and the server, as a helper could, and changes one frame that it
// forwards.
type meddler struct {
	down   bool                // change what comes from the server, not what goes there
	change func([]byte) []byte // returns what replaces a frame of ciphertext; nil for an orderly end

	subflows atomic.Int32
	done     atomic.Bool
}

// honestBytes is the number of bytes of a subflow that are forwarded unchanged first.
const honestBytes = 128 * unit.KB

// passFrames forwards frames in both directions, of helpers only.
func (m *meddler) passFrames(near, far net.Conn) {
	up := wire.NewReader(near)
	typ, hello, err := up.Next()
	if err != nil || typ != wire.TypeHello {
		return
	}
	m.subflows.Add(1)
	if _, err := far.Write(encodeFrame(typ, hello)); err != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() {
		defer near.Close()
		m.copyFrames(near, wire.NewReader(far), m.down)
	})
	m.copyFrames(far, up, !m.down)
	far.Close()
	both.Wait()
}

// copyFrames forwards frames. If meddles is set, it changes one after honestBytes.
func (m *meddler) copyFrames(to net.Conn, from *wire.Reader, meddles bool) {
	var passed unit.Bytes
	for {
		typ, payload, err := from.Next()
		if err != nil {
			return
		}
		f := encodeFrame(typ, payload)
		if meddles && typ == wire.TypeHopData {
			if passed += unit.Bytes(len(payload)); passed > honestBytes && !m.done.Swap(true) {
				if m.change == nil {
					_ = to.(*net.TCPConn).CloseWrite()
					for err == nil {
						_, _, err = from.Next()
					}
					return
				}
				f = m.change(f)
			}
		}
		if _, err := to.Write(f); err != nil {
			return
		}
	}
}

// encodeFrame returns a frame with its header.
func encodeFrame(typ wire.Type, payload []byte) []byte {
	return append(wire.AppendHeader(nil, typ, len(payload)), payload...)
}

// TestHelperMeddles: a helper that alters, repeats or drops what it carries, or ends it in order,
// loses that subflow. No byte of a stream changes, though all bytes go by this helper.
func TestHelperMeddles(t *testing.T) {
	for name, change := range map[string]func([]byte) []byte{
		"alters":     func(f []byte) []byte { f[len(f)-1] ^= 1; return f },
		"repeats":    func(f []byte) []byte { return slices.Concat(f, f) },
		"leaves out": func([]byte) []byte { return nil },
		"ends":       nil,
	} {
		for _, down := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, down %v", name, down), func(t *testing.T) {
				w := newTestbed(t)
				w.startServer()
				m := &meddler{down: down, change: change}
				w.scfg.Listen = interceptConns(t, w.scfg.Listen, m.passFrames)
				w.startPrimary()
				w.startHelper(w.newHelper("phone"))
				w.awaitSubflows("phone")
				transfer := w.upload
				if down {
					transfer = w.download
				}
				if err := transfer(2 * mb); err != nil {
					t.Error(err)
				}
				if !m.done.Load() || m.subflows.Load() < 2 {
					t.Errorf("meddled: %v, then %d subflows", m.done.Load(), m.subflows.Load())
				}
			})
		}
	}
}

// TestForgedEndOfOnlySubflow: a helper carries everything, and somebody forges an orderly end on the
// HS-path. The app sees a reset.
func TestForgedEndOfOnlySubflow(t *testing.T) {
	w := newTestbed(t)
	w.startServer()
	m := &meddler{down: true}
	server := w.scfg.Listen
	w.scfg.Listen = interceptConns(t, server, func(near, far net.Conn) {
		if !m.done.Load() { // afterwards there is no path to the server
			m.passFrames(near, far)
		}
	})
	w.pcfg.GiveUp = config.Duration(time.Second)
	w.startPrimary()
	w.startHelper(w.newHelper("phone"))
	w.awaitSubflows("phone")
	if err := w.download(2 * mb); err == nil || errors.Is(err, io.EOF) ||
		!strings.Contains(err.Error(), "no way to the server") {
		t.Errorf("the download ended with %v", err)
	}
	if !m.done.Load() {
		t.Error("no frame was changed")
	}
}

// TestReplayedConnection: a recorded connection of a device to the server is of no use to the
// attacker who recorded it.
func TestReplayedConnection(t *testing.T) {
	w := newTestbed(t)
	w.startServer()
	var mu sync.Mutex
	var recordings []*rig.Journal
	addr := interceptConns(t, w.scfg.Listen, func(near, far net.Conn) {
		j := new(rig.Journal)
		mu.Lock()
		recordings = append(recordings, j)
		mu.Unlock()
		var both sync.WaitGroup
		both.Go(func() {
			_, _ = io.Copy(near, far)
			_, _ = io.Copy(io.Discard, far) // unread bytes would cause a reset
		})
		_, _ = io.Copy(io.MultiWriter(j, far), near)
		_ = far.(*net.TCPConn).CloseWrite()
		both.Wait()
	})
	w.primary.addPeer(w.server, identity.RoleServer, addr)
	w.startPrimary()
	w.awaitSubflows("laptop")
	if err := w.upload(1000); err != nil {
		t.Error(err)
	}
	w.primary.stop()
	rig.Eventually(t, func() error {
		if b := w.s.Status(false); len(b) > 0 {
			return fmt.Errorf("%+v", b)
		}
		return nil
	})
	mu.Lock()
	said := recordings[0].String()
	mu.Unlock()
	conn := dialAndSend(t, w.scfg.Listen, []byte(said))
	expectHangup(t, conn)
	w.server.awaitLog("connection refused", conn.LocalAddr().String(), "tls: ")
	if b := w.s.Status(false); len(b) > 0 {
		t.Errorf("the replay was accepted: %+v", b)
	}
}

// TestNeighbour: a device that knows the ID of another device's bond gets nothing of it.
func TestNeighbour(t *testing.T) {
	w := newTestbed(t)
	w.startServer()
	neighbour := newDevice(t, "neighbour")
	w.server.addPeer(neighbour, identity.RolePrimary)
	open := wire.Append(nil, wire.Open{Stream: 1, Dest: w.web.addr})
	awaitConns := func(want int) {
		t.Helper()
		rig.Eventually(t, func() error {
			if n := w.web.countConns(); n != want {
				return fmt.Errorf("%d connections to the web, want %d", n, want)
			}
			return nil
		})
	}
	own, ok, err := w.joinServer(w.primary, goodJoin)
	if err == nil {
		err = own.Write(open)
	}
	if err != nil {
		t.Fatal(err)
	}
	awaitConns(1)

	// It joins with one more subflow of that bond.
	more := goodJoin
	more.Subflow, more.Instance = 2, ok.Instance
	sf, answer, err := w.joinServer(neighbour, more)
	if err != nil {
		t.Fatal(err)
	}
	if answer.Instance == ok.Instance {
		t.Error("the neighbour is in the bond")
	}
	if _, _, err := sf.Next(); err == nil {
		t.Error("the neighbour has a subflow of no bond")
	}

	// It opens a bond with the same ID.
	more.Instance = 0
	if sf, answer, err = w.joinServer(neighbour, more); err != nil || answer.Instance == ok.Instance {
		t.Fatalf("%+v, %v", answer, err)
	}
	if err := sf.Write(open); err != nil {
		t.Fatal(err)
	}
	awaitConns(2)
	if err := sf.Write(wire.Append(nil, wire.Reset{Stream: 1, Code: wire.CodeConnReset})); err != nil {
		t.Fatal(err)
	}
	awaitConns(1)
	rig.Eventually(t, func() error {
		var paths []string
		for _, b := range w.s.Status(false) {
			for range b.Subflows {
				paths = append(paths, b.Peer)
			}
		}
		if list := w.s.Streams(); len(list) != 1 || list[0].Peer != "laptop" ||
			!slices.Equal(paths, []string{"laptop", "neighbour"}) {
			return fmt.Errorf("subflows of %v, streams %+v", paths, list)
		}
		return nil
	})

	// The server's status names the two bonds differently.
	bonds := map[string]string{}
	for _, b := range w.s.Status(false) {
		bonds[b.Peer] = b.ID
	}
	if err := w.s.CloseSubflow(bonds["neighbour"], uint32(more.Subflow)); err != nil ||
		bonds["laptop"] == bonds["neighbour"] || w.s.Streams()[0].Bond != bonds["laptop"] {
		t.Errorf("bonds %v: %v", bonds, err)
	}
	for err = nil; err == nil; { // first what was in flight, then the end
		_, _, err = sf.Next()
	}
	if list := w.s.Streams(); len(list) != 1 || list[0].Peer != "laptop" {
		t.Errorf("the laptop's streams: %+v", list)
	}
}

// TestCrowdAtThePipe: a client keeps as many connections to the primary as may wait there. That
// does not keep a helper away, and leaves nothing behind when it ends.
func TestCrowdAtThePipe(t *testing.T) {
	w := newTestbed(t)
	w.startServer()
	w.startPrimary()
	phone := w.newHelper("phone")
	crowd := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	shake := func(from net.Dialer) error {
		c, err := from.DialContext(t.Context(), "tcp", w.pcfg.Pipe)
		if err != nil {
			return err
		}
		defer c.Close()
		return tls.Client(c, phone.key.ClientConfig(w.primary.key.Public(),
			wire.PipeALPN)).HandshakeContext(t.Context())
	}
	var conns []net.Conn
	for range 64 {
		if c, err := crowd.Dial("tcp", w.pcfg.Pipe); err == nil { // if it fails, the reset was faster
			conns = append(conns, c)
		}
	}
	if err := shake(net.Dialer{}); err != nil {
		t.Errorf("the helper is refused: %v", err)
	}
	for _, c := range conns {
		c.Close()
	}
	rig.Eventually(t, func() error { return shake(crowd) })
}
