// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"

	"mpbond/base/identity"
	"mpbond/e2e/rig"
)

// TestObservedTraffic: an eavesdropper on all traffic of a server learns that it is mpbond and what a
// helper calls itself. It learns no device's key, no primary's name, and nothing of streams.
func TestObservedTraffic(t *testing.T) {
	w := newTestbed(t)
	w.startServer()
	captured := new(rig.Journal)
	w.scfg.Listen = interceptConns(t, w.scfg.Listen, func(near, far net.Conn) {
		var both sync.WaitGroup
		both.Go(func() {
			defer near.Close()
			_, _ = io.Copy(io.MultiWriter(near, captured), far)
		})
		_, _ = io.Copy(io.MultiWriter(far, captured), near)
		far.Close()
		both.Wait()
	})
	w.startPrimary()
	phone := w.newHelper("pocketphone")
	w.startHelper(phone)
	w.awaitSubflows("laptop", "pocketphone")
	for range 2 {
		if err := w.download(mb); err != nil {
			t.Error(err)
		}
		if err := w.upload(mb); err != nil {
			t.Error(err)
		}
	}
	text := []byte(captured.String())
	if len(text) < 4*mb {
		t.Fatalf("only %d bytes were captured", len(text))
	}
	noise, _ := io.ReadAll(rig.Noise(64))
	for what, b := range map[string][]byte{"the primary's name": []byte("laptop"), "a destination": []byte(w.web.addr),
		"bytes of a stream": noise} {
		if bytes.Contains(text, b) {
			t.Errorf("%s is visible", what)
		}
	}
	for _, d := range []*device{w.server, w.primary, phone} {
		key := d.key.Public()
		if bytes.Contains(text, key[:]) {
			t.Errorf("the key of %s is visible", d.name)
		}
	}
	for _, b := range []string{"mpbond", "pocketphone"} { // as docs/explanation/security.md says
		if !bytes.Contains(text, []byte(b)) {
			t.Errorf("%q is not visible", b)
		}
	}
}

// TestProbes: a server sends nothing to a client that does not speak mpbond, and shows its
// certificate to no other protocol. It answers strangers, devices it no longer trusts and devices
// with another role in the same words.
func TestProbes(t *testing.T) {
	w := newTestbed(t)
	w.startServer()
	for _, said := range []string{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "SSH-2.0-OpenSSH_9.9\r\n", "EHLO x\r\n",
		"\x05\x02\x00\x02\x05\x01\x00\x01"} {
		if got := expectHangup(t, dialAndSend(t, w.scfg.Listen, []byte(said))); len(got) > 0 {
			t.Errorf("%q is answered with %q", said, got)
		}
	}
	for _, protocols := range [][]string{nil, {"h2", "http/1.1"}} {
		c := tls.Client(dialAndSend(t, w.scfg.Listen, nil), &tls.Config{InsecureSkipVerify: true, NextProtos: protocols})
		if err := c.HandshakeContext(t.Context()); err == nil || len(c.ConnectionState().PeerCertificates) > 0 {
			t.Errorf("protocols %q: %v, %d certificates", protocols, err, len(c.ConnectionState().PeerCertificates))
		}
	}
	revoked, helper := newDevice(t, "oldphone"), newDevice(t, "phone")
	w.server.addPeer(revoked, identity.RolePrimary)
	w.server.addPeer(helper, identity.RoleHelper)
	if err := w.server.trust.Remove("oldphone"); err != nil {
		t.Fatal(err)
	}
	answers := map[string]string{}
	for _, d := range []*device{newDevice(t, "stranger"), revoked, helper} {
		_, _, err := w.joinServer(d, goodJoin)
		if err == nil {
			t.Fatalf("%s may join", d.name)
		}
		answers[fmt.Sprint(err)] += d.name + " "
	}
	if len(answers) != 1 {
		t.Errorf("%q", answers)
	}
}
