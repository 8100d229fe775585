// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/e2e/rig"
	"mpbond/link/subflow"
	"mpbond/link/tcp"
	"mpbond/link/wire"
)

// joinAsPrimary joins the server with the primary's key, so that a test can send what a primary
// never sends.
func (w *testbed) joinAsPrimary(j wire.Join) (*subflow.Subflow, error) {
	w.Helper()
	sf, _, err := w.joinServer(w.primary, j)
	return sf, err
}

// joinServer joins the server with a device's key.
func (w *testbed) joinServer(d *device, j wire.Join) (*subflow.Subflow, wire.OK, error) {
	w.Helper()
	c, err := tcp.Dial(w.Context(), w.scfg.Listen, tcp.Options{})
	if err != nil {
		w.Fatal(err)
	}
	sf, ok, err := subflow.Join(w.Context(), c, d.key.ClientConfig(w.server.key.Public(), wire.ALPN), j)
	if err == nil {
		w.Cleanup(func() { sf.Close() })
	}
	return sf, ok, err
}

var goodJoin = wire.Join{Version: wire.Version, Bond: wire.BondID{1}, Subflow: 1, Device: "rogue"}

// dialAndSend connects to addr and sends bytes at once.
func dialAndSend(t *testing.T, addr string, data []byte) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(rig.Patience))
	if _, err := c.Write(data); err != nil {
		t.Fatal(err)
	}
	return c
}

// expectHangup checks that the peer closes c, in whatever way, and returns what it sent before.
func expectHangup(t *testing.T, c net.Conn) []byte {
	t.Helper()
	said, err := io.ReadAll(c)
	var n net.Error
	if errors.As(err, &n) && n.Timeout() {
		t.Errorf("the peer does not close the connection: %v", err)
	}
	return said
}

func oversizeFrame(typ wire.Type) []byte { return []byte{byte(typ), 0xff, 0xff, 0xff} }

// TestGarbageAtThePorts: a peer that does not speak mpbond is cut off at once, and the log says so
// with a hint.
func TestGarbageAtThePorts(t *testing.T) {
	w := newTestbed(t)
	w.startAll("phone")
	other := wire.Append(nil, wire.Hello{Version: wire.Version - 1, Name: "old phone"})
	hello := wire.Append(nil, wire.Hello{Version: wire.Version, Name: "rogue"})
	for _, c := range []struct {
		name, port string
		said       []byte
		by         *device
		log        string
	}{
		{"web browser at the server", w.scfg.Listen, []byte("GET / HTTP/1.1\r\n\r\n"), w.server, "does not speak TLS"},
		{"zeros at the server", w.scfg.Listen, make([]byte, 1000), w.server, "does not speak TLS"},
		{"web browser at the pipe", w.pcfg.Pipe, []byte("GET / HTTP/1.1\r\n\r\n"), w.primary, "does not speak TLS"},
		{"oversize HELLO", w.scfg.Listen, oversizeFrame(wire.TypeHello), w.server, "longer than the protocol allows"},
		{"HELLO of another version", w.scfg.Listen, other, w.server,
			fmt.Sprintf("the helper speaks protocol version %d", wire.Version-1)},
		{"oversize frame after HELLO", w.scfg.Listen, append(hello[:len(hello):len(hello)],
			oversizeFrame(wire.TypeHopData)...),
			w.server, "longer than the protocol allows"},
		{"no TLS after HELLO", w.scfg.Listen, wire.Append(hello[:len(hello):len(hello)], hopData("SSH-2.0-x")), w.server,
			"does not speak TLS"},
	} {
		t.Run(c.name, func(t *testing.T) {
			conn := dialAndSend(t, c.port, c.said)
			said := expectHangup(t, conn)
			if strings.Contains(c.name, "version") && !strings.Contains(string(said), "install the same release") {
				t.Errorf("the caller received %q", said)
			}
			c.by.awaitLog("refused", conn.LocalAddr().String(), c.log, "hint=\"")
		})
	}
	if err := w.download(100_000); err != nil {
		t.Error(err)
	}
	w.awaitSubflows("laptop", "phone")
}

// hopData is a HOP_DATA frame, which carries ciphertext.
type hopData string

func (hopData) Type() wire.Type                 { return wire.TypeHopData }
func (d hopData) AppendPayload(b []byte) []byte { return append(b, d...) }

// TestGarbageInTLS: a known device breaks the protocol inside TLS.
func TestGarbageInTLS(t *testing.T) {
	w := newTestbed(t)
	phone := w.startAll("phone")[0]
	for _, c := range []struct {
		name string
		port string
		cfg  *tls.Config
		said []byte
		by   *device
		log  string
	}{
		{"oversize at the server", w.scfg.Listen, w.primary.key.ClientConfig(w.server.key.Public(), wire.ALPN),
			oversizeFrame(wire.TypeJoin), w.server, "longer than the protocol allows"},
		{"other frame at the server", w.scfg.Listen, w.primary.key.ClientConfig(w.server.key.Public(), wire.ALPN),
			wire.Append(nil, wire.Bye{}), w.server, "BYE during the handshake"},
		{"truncated MP_JOIN", w.scfg.Listen, w.primary.key.ClientConfig(w.server.key.Public(), wire.ALPN),
			[]byte{byte(wire.TypeJoin), 0, 0, 1, wire.Version}, w.server, "truncated"},
		{"oversize at the pipe", w.pcfg.Pipe, phone.key.ClientConfig(w.primary.key.Public(), wire.PipeALPN),
			oversizeFrame(wire.TypeHello), w.primary, "longer than the protocol allows"},
		{"version at the pipe", w.pcfg.Pipe, phone.key.ClientConfig(w.primary.key.Public(), wire.PipeALPN),
			wire.Append(nil, wire.Hello{Version: 9, Name: "x"}), w.primary, "version 9"},
	} {
		t.Run(c.name, func(t *testing.T) {
			raw := dialAndSend(t, c.port, nil)
			conn := tls.Client(raw, c.cfg)
			if _, err := conn.Write(c.said); err != nil {
				t.Fatal(err)
			}
			if said := expectHangup(t, conn); !strings.Contains(c.name, "oversize at the pipe") && len(said) == 0 {
				t.Error("the caller received nothing")
			}
			c.by.awaitLog("refused", raw.LocalAddr().String(), c.log, "hint=\"")
		})
	}
	t.Run("pipe protocol at the server", func(t *testing.T) {
		conn := tls.Client(dialAndSend(t, w.scfg.Listen, nil),
			w.primary.key.ClientConfig(w.server.key.Public(), wire.PipeALPN))
		if err := identity.ExplainTLS(conn.HandshakeContext(t.Context())); !fault.Is(err, fault.Protocol) ||
			fault.HintOf(err) == "" {
			t.Errorf("%v (%s)", err, fault.HintOf(err))
		}
	})
}

func TestJoinRefusals(t *testing.T) {
	w := newTestbed(t)
	w.startServer()
	w.primary.addPeer(w.server, identity.RoleServer, w.scfg.Listen)
	version, former, helped := goodJoin, goodJoin, goodJoin
	version.Version, former.Version, helped.Helped = 9, wire.Version-1, true
	for _, c := range []struct {
		join wire.Join
		code wire.Code
		text string
	}{
		{version, wire.CodeVersion, fmt.Sprintf("this server speaks protocol version %d, the device version 9",
			wire.Version)},
		{former, wire.CodeVersion, fmt.Sprintf("this server speaks protocol version %d, the device version %d",
			wire.Version, wire.Version-1)},
		{helped, wire.CodeMalformed, "a helped subflow must come over a helper"},
	} {
		_, err := w.joinAsPrimary(c.join)
		var r wire.Refuse
		if !errors.As(err, &r) || r.Code != c.code || !strings.Contains(err.Error(), c.text) ||
			!fault.Is(err, fault.Protocol) || !strings.Contains(fault.HintOf(err), "same release") {
			t.Errorf("%+v: %v (%v, %s)", c.join, err, fault.KindOf(err), fault.HintOf(err))
		}
	}
	if b := w.s.Status(false); len(b) > 0 {
		t.Errorf("a refused device has a bond: %+v", b)
	}
}

// breaches are frames that a peer must never send, and the error that each causes.
var breaches = []struct {
	name string
	said []byte
	log  string
}{
	{"data beyond the window", wire.Append(dataHeader(1, wire.DataSeq(wire.InitialWindow), 10), unknownFrame("")),
		"exceed the window"},
	{"acknowledgement of what was never sent", wire.Append(nil,
		wire.Ack{Subflows: []wire.SubflowAck{{Subflow: 1, Received: 1 << 40}}}), "which has sent"},
	{"oversize frame", oversizeFrame(wire.TypeData), "longer than the protocol allows"},
	{"truncated frame", []byte{byte(wire.TypeData), 0, 0, 1, 0x80}, "truncated"},
	{"frame of the handshake", wire.Append(nil, goodJoin), "is not allowed on a subflow"},
	{"end before the data", wire.Append(wire.Append(dataHeader(1, 0, 10), unknownFrame("")), wire.Fin{Stream: 1, Seq: 5}),
		"precedes received bytes"},
	{"unknown frame", []byte{0x3f, 0, 0, 0}, "is not allowed on a subflow"},
}

// unknownFrame is a frame of an unknown type that may be skipped.
type unknownFrame string

func (unknownFrame) Type() wire.Type                 { return 0xf0 }
func (r unknownFrame) AppendPayload(b []byte) []byte { return append(b, r...) }

// dataHeader returns a DATA frame of n zeros.
func dataHeader(s wire.StreamID, at wire.DataSeq, n int) []byte {
	return append(wire.AppendData(nil, s, at, n), make([]byte, n)...)
}

func TestBreachesAtTheServer(t *testing.T) {
	w := newTestbed(t)
	w.startAll("phone")
	more := append(breaches[:len(breaches):len(breaches)], struct {
		name string
		said []byte
		log  string
	}{"far too many streams", wire.Append(nil, wire.Open{Stream: 1 << 40, Dest: "127.0.0.1:1"}), "beyond the limit"})
	for i, c := range more {
		t.Run(c.name, func(t *testing.T) {
			j := goodJoin
			j.Bond = wire.BondID{0, byte(i)}
			sf, err := w.joinAsPrimary(j)
			if err != nil {
				t.Fatal(err)
			}
			said := wire.Append(nil, wire.Open{Stream: 1, Dest: w.web.addr})
			if err := sf.Write(append(said, c.said...)); err != nil {
				t.Fatal(err)
			}
			for err == nil {
				_, _, err = sf.Next()
			}
			w.server.awaitLog("subflow ended", "rogue", c.log)
			if err := sf.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
			// The bonds end in order, so that they do not reach the limit of the device.
			if sf, err = w.joinAsPrimary(j); err != nil {
				t.Fatal(err)
			}
			bye := wire.Append(nil, wire.Bye{})
			if err := sf.Write(bye); err != nil {
				t.Fatal(err)
			}
			awaitAck(t, sf, len(bye)) // closing with unread bytes resets the connection: BYE could be lost
			sf.Close()
			rig.Eventually(t, func() error {
				if n := len(w.s.Status(false)); n != 1 {
					return errors.New("the bond is still open")
				}
				return nil
			})
		})
	}
	if err := w.download(mb); err != nil {
		t.Error(err)
	}
	w.awaitSubflows("laptop", "phone")
}

// awaitAck reads frames until the other end has acknowledged n bytes of the subflow.
func awaitAck(t *testing.T, sf *subflow.Subflow, n int) {
	t.Helper()
	for {
		kind, payload, err := sf.Next()
		if err != nil {
			t.Fatal(err)
		}
		if kind != wire.TypeAck {
			continue
		}
		ack, err := wire.ParseAck(payload, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range ack.Subflows {
			if a.Subflow == sf.ID && a.Received >= uint64(n) {
				return
			}
		}
	}
}

// TestBreachesAtThePrimary: the trusted server itself breaks the protocol.
func TestBreachesAtThePrimary(t *testing.T) {
	w := newTestbed(t)
	ln, err := tcp.Listen(t.Context(), "127.0.0.1:0", tcp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	w.scfg.Listen = ln.Addr().String()
	w.startPrimary()
	more := append(breaches[:len(breaches):len(breaches)], struct {
		name string
		said []byte
		log  string
	}{"stream that was never opened", wire.Append(nil, wire.Opened{Stream: 99}), "never opened"})
	for _, c := range more {
		t.Run(c.name, func(t *testing.T) {
			opened := make(chan error, 1) // once there is a subflow
			go func() {
				_, err := w.p.DialStream(t.Context(), "192.0.2.1:80")
				opened <- err
			}()
			conn, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			cfg := w.server.key.ServerConfig(wire.ALPN, func(identity.PublicKey) bool { return true })
			var path wire.SubflowID
			sf, _, err := subflow.Accept(context.Background(), conn, cfg,
				func(_ identity.PublicKey, j wire.Join) (wire.OK, error) {
					path = j.Subflow
					return wire.OK{Instance: 1}, nil
				})
			if err != nil {
				t.Fatal(err)
			}
			defer sf.Close()
			if err := <-opened; err != nil {
				t.Fatal(err)
			}
			said := c.said
			if strings.Contains(c.name, "acknowledgement") {
				said = wire.Append(nil, wire.Ack{Subflows: []wire.SubflowAck{{Subflow: path, Received: 1 << 40}}})
			}
			if err := sf.Write(said); err != nil {
				t.Fatal(err)
			}
			for err == nil {
				_, _, err = sf.Next()
			}
			w.primary.awaitLog("no subflow", "laptop", c.log, "install the same release")
		})
	}
}
