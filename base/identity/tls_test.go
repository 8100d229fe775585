// SPDX-License-Identifier: Apache-2.0

package identity

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"mpbond/base/fault"
)

func anyone(PublicKey) bool { return true }

// outcome is the result at one end of a connection.
type outcome struct {
	handshake, read error
	state           tls.ConnectionState
}

// handshake connects two ends over loopback. Each sends and reads one byte after its handshake.
func handshake(t *testing.T, client, server *tls.Config) (c, s outcome) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	end := func(raw net.Conn, wrap func(net.Conn, *tls.Config) *tls.Conn, cfg *tls.Config) (o outcome) {
		_ = raw.SetDeadline(time.Now().Add(time.Minute))
		conn := wrap(raw, cfg)
		defer conn.Close()
		if o.handshake = conn.Handshake(); o.handshake != nil {
			// Reading keeps TCP from resetting the alert away.
			_ = raw.(*net.TCPConn).CloseWrite()
			_, _ = io.Copy(io.Discard, raw)
			return o
		}
		o.state = conn.ConnectionState()
		_, _ = conn.Write([]byte{1})
		_, o.read = io.ReadFull(conn, []byte{0})
		return o
	}
	done := make(chan outcome)
	go func() {
		raw, err := l.Accept()
		if err != nil {
			done <- outcome{handshake: err}
			return
		}
		done <- end(raw, tls.Server, server)
	}()
	raw, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c = end(raw, tls.Client, client)
	return c, <-done
}

func TestHandshake(t *testing.T) {
	a, b := mustKey(t), mustKey(t)
	c, s := handshake(t, a.ClientConfig(b.Public(), "x"),
		b.ServerConfig("x", func(k PublicKey) bool { return k == a.Public() }))
	if err := errors.Join(c.handshake, c.read, s.handshake, s.read); err != nil {
		t.Fatal(err)
	}
	if k, err := PeerKey(c.state); err != nil || k != b.Public() {
		t.Errorf("client sees %v, %v", k, err)
	}
	if k, err := PeerKey(s.state); err != nil || k != a.Public() {
		t.Errorf("server sees %v, %v", k, err)
	}
	if c.state.Version != tls.VersionTLS13 {
		t.Errorf("version %x", c.state.Version)
	}
}

func TestServerRefusesUnknownDevice(t *testing.T) {
	a, b := mustKey(t), mustKey(t)
	c, s := handshake(t, a.ClientConfig(b.Public(), "x"), b.ServerConfig("x", func(PublicKey) bool { return false }))
	if !fault.Is(s.handshake, fault.UnknownDevice) || !strings.Contains(s.handshake.Error(), a.Public().String()) {
		t.Errorf("server: %v", s.handshake)
	}
	if c.handshake != nil {
		t.Errorf("client's handshake already failed: %v", c.handshake)
	}
	err := ExplainTLS(c.read)
	if !fault.Is(err, fault.UnknownDevice) || !strings.Contains(fault.HintOf(err), "mpbond trust add") {
		t.Errorf("client's read: %v, hint %q", err, fault.HintOf(err))
	}
}

func TestClientRefusesWrongServer(t *testing.T) {
	a, b, other := mustKey(t), mustKey(t), mustKey(t)
	c, s := handshake(t, a.ClientConfig(other.Public(), "x"), b.ServerConfig("x", anyone))
	if !fault.Is(c.handshake, fault.WrongKey) || fault.HintOf(ExplainTLS(c.handshake)) == "" {
		t.Errorf("client: %v", c.handshake)
	}
	if err := ExplainTLS(s.handshake); !fault.Is(err, fault.UnknownDevice) {
		t.Errorf("server: %v", err)
	}
}

func TestOldTLSRefused(t *testing.T) {
	a, b := mustKey(t), mustKey(t)
	old := a.ClientConfig(b.Public(), "x")
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	c, s := handshake(t, old, b.ServerConfig("x", anyone))
	if s.handshake == nil || !fault.Is(ExplainTLS(c.handshake), fault.Protocol) {
		t.Errorf("TLS 1.2 client: %v; server: %v", c.handshake, s.handshake)
	}
	old = b.ServerConfig("x", anyone)
	old.MinVersion, old.MaxVersion = tls.VersionTLS12, tls.VersionTLS12
	if c, s = handshake(t, a.ClientConfig(b.Public(), "x"), old); c.handshake == nil || s.handshake == nil {
		t.Errorf("TLS 1.2 server: %v; client: %v", s.handshake, c.handshake)
	}
}

func TestOtherProtocolRefused(t *testing.T) {
	a, b := mustKey(t), mustKey(t)
	c, s := handshake(t, a.ClientConfig(b.Public(), "x"), b.ServerConfig("y", anyone))
	if s.handshake == nil || !fault.Is(ExplainTLS(c.handshake), fault.Protocol) {
		t.Errorf("other ALPN: %v; %v", c.handshake, s.handshake)
	}
	none := a.ClientConfig(b.Public(), "x")
	none.NextProtos, none.VerifyConnection = nil, nil
	if _, s = handshake(t, none, b.ServerConfig("x", anyone)); !fault.Is(s.handshake, fault.Protocol) {
		t.Errorf("client without ALPN: %v", s.handshake)
	}
	quiet := b.ServerConfig("x", anyone)
	quiet.NextProtos, quiet.VerifyConnection = nil, nil
	if c, _ = handshake(t, a.ClientConfig(b.Public(), "x"), quiet); !fault.Is(c.handshake, fault.Protocol) {
		t.Errorf("server without ALPN: %v", c.handshake)
	}
}

func TestCertificateOfAnotherSortRefused(t *testing.T) {
	a, b := mustKey(t), mustKey(t)
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, ec.Public(), ec)
	if err != nil {
		t.Fatal(err)
	}
	odd := a.ClientConfig(b.Public(), "x")
	odd.Certificates = []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: ec}}
	if _, s := handshake(t, odd, b.ServerConfig("x", anyone)); !fault.Is(s.handshake, fault.Protocol) {
		t.Errorf("ECDSA client: %v", s.handshake)
	}
	odd.Certificates = nil
	c, s := handshake(t, odd, b.ServerConfig("x", anyone))
	if s.handshake == nil || !fault.Is(ExplainTLS(c.read), fault.UnknownDevice) {
		t.Errorf("client without certificate: %v; %v", c.read, s.handshake)
	}
}

// TestStolenCertificate checks that the public key alone proves nothing.
func TestStolenCertificate(t *testing.T) {
	a, b, thief := mustKey(t), mustKey(t), mustKey(t)
	forged := thief.ClientConfig(b.Public(), "x")
	forged.Certificates = []tls.Certificate{{Certificate: a.cert.Certificate, PrivateKey: thief.private}}
	if _, s := handshake(t, forged, b.ServerConfig("x", anyone)); s.handshake == nil {
		t.Error("the server believed a client that lacks the secret")
	}
	posing := thief.ServerConfig("x", anyone)
	posing.Certificates = []tls.Certificate{{Certificate: b.cert.Certificate, PrivateKey: thief.private}}
	if c, _ := handshake(t, a.ClientConfig(b.Public(), "x"), posing); c.handshake == nil {
		t.Error("the client believed a server that lacks the secret")
	}
}

// TestNoResumption checks that a removed device stays out, with and without a session cache at the
// client.
func TestNoResumption(t *testing.T) {
	a, b := mustKey(t), mustKey(t)
	client := a.ClientConfig(b.Public(), "x")
	client.ClientSessionCache, client.ServerName = tls.NewLRUClientSessionCache(4), "b"
	for range 2 {
		c, s := handshake(t, client, b.ServerConfig("x", anyone))
		if err := errors.Join(c.handshake, c.read, s.handshake, s.read); err != nil {
			t.Fatal(err)
		}
		if c.state.DidResume || s.state.DidResume {
			t.Error("resumed")
		}
	}
}

func TestExplainLeavesOtherErrors(t *testing.T) {
	for _, err := range []error{nil, io.EOF, net.ErrClosed, &net.OpError{Op: "read", Err: io.EOF},
		&net.OpError{Op: "remote error"}} {
		if got := ExplainTLS(err); got != err {
			t.Errorf("%v became %v", err, got)
		}
	}
	// A peer without TLS.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = io.WriteString(c, "220 mail.example ready\r\n")
			c.Close()
		}
	}()
	_, err = tls.Dial("tcp", l.Addr().String(), mustKey(t).ClientConfig(PublicKey{}, "x"))
	if err = ExplainTLS(err); !fault.Is(err, fault.Protocol) {
		t.Errorf("not TLS: %v", err)
	}
}
