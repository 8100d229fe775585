// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"mpbond/base/unit"
	"mpbond/lab/app"
)

// Transfers that play scripts of apps. Their hosts are ports of nginx at the web node.
const (
	appHostPort  = 9000  // of the first host
	exchangePort = 8082  // RunExchange
	appBlobName  = "app" // file whose beginning each answer is
)

// checkApp returns what is wrong with the scripts, if anything.
func (p RunSpec) checkApp() error {
	if p.App == nil {
		return nil
	}
	if p.Size != 0 || len(p.Items) > 0 || p.Objects > 0 || p.Streams > 1 || p.Length != 0 || p.Video != nil ||
		p.Unchecked {
		return fmt.Errorf("an app's script excludes a size, items, objects, streams, a length, a video and unchecked " +
			"transfers")
	}
	for rep := range p.Reps {
		if err := p.App(rep).Check(); err != nil {
			return err
		}
	}
	return nil
}

// appBytes returns the bytes of the longest script, or what the links carry if it ends before.
func (p RunSpec) appBytes() (most unit.Bytes) {
	for rep := range max(1, p.Reps) {
		s := p.App(rep)
		up, down := s.Bytes()
		n := up + down
		if s.Length > 0 {
			if carried, err := CarriedPayload(p.Topology, p.Upload, s.Length); err == nil {
				n = min(n, carried)
			}
		}
		most = max(most, n)
	}
	return most
}

// appFiles are the files of transfers that play scripts.
type appFiles struct {
	blob      string
	hosts     int
	cert, key string // of all hosts; "": plain HTTP
	hasPages  bool   // a browser loads them
	root      string
}

// makeAppFiles makes the content of answers and, for scripts with TLS, a certificate.
func (b *Bench) makeAppFiles(p RunSpec) error {
	b.app = &appFiles{root: filepath.Join(b.Dir, "www"), blob: filepath.Join(b.Dir, "www", appBlobName)}
	longest, tls := unit.Bytes(0), false
	for rep := range p.Reps {
		s := p.App(rep)
		b.app.hosts, tls = max(b.app.hosts, s.HostCount()), tls || s.TLS
		for _, r := range s.Requests {
			longest = max(longest, r.Up, r.Down)
		}
	}
	if _, _, err := b.makeContent(b.app.blob, 0, longest); err != nil || !tls {
		return err
	}
	b.app.cert, b.app.key = filepath.Join(b.Dir, "app.pem"), filepath.Join(b.Dir, "app.key")
	web, err := b.Lab.Topology.Addr("web", "")
	if err != nil {
		return err
	}
	return cmp.Or(writeCertificate(b.app.cert, b.app.key, web.AsSlice()), b.app.makePages(p))
}

// makePages makes the pages of scripts that a browser loads.
func (a *appFiles) makePages(p RunSpec) error {
	if p.App(0).Browser == "" {
		return nil
	}
	a.hasPages = true
	blob, err := os.ReadFile(a.blob)
	for rep := 0; rep < p.Reps && err == nil; rep++ {
		err = a.makePageFiles(p.App(rep), pageName(rep), blob)
	}
	return err
}

// writeCertificate writes a self-signed certificate for an IP address, and its key.
func writeCertificate(certFile, keyFile string, addr net.IP) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	now := time.Now()
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "mpbond lab"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(30 * 24 * time.Hour), IPAddresses: []net.IP{addr},
		IsCA: true, BasicConstraintsValid: true}
	cert, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}), 0o644),
		os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), 0o600))
}

// mapFile maps a file into memory for reading, until the process ends. It may be large, and most of
// it is often not read.
func mapFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return nil, err
	}
	b, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping %s: %w", name, err)
	}
	return b, nil
}

// nginxServer returns the part of nginx's configuration for the hosts of scripts, "" if there are
// none.
func (a *appFiles) nginxServer() string {
	if a == nil {
		return ""
	}
	var text strings.Builder
	text.WriteString("  server {\n")
	for host := range a.hosts {
		tls := ""
		if a.cert != "" {
			tls = " ssl"
			if a.hasPages {
				tls += " http2"
			}
		}
		fmt.Fprintf(&text, "    listen %d%s;\n", appHostPort+host, tls)
	}
	if a.cert != "" {
		fmt.Fprintf(&text, "    ssl_certificate %s; ssl_certificate_key %s;\n", a.cert, a.key)
	}
	if a.hasPages {
		text.WriteString("    types { text/html html; application/javascript js; image/gif gif; }\n" +
			"    add_header Timing-Allow-Origin *;\n")
	}
	fmt.Fprintf(&text, "    root %s; keepalive_requests 100000;\n  }\n", a.root)
	return text.String()
}

// appCommand returns the command that plays a script. Schemes append options for the path to take.
func (b *Bench) appCommand(t Transfer) []string {
	addr, _ := b.Lab.Topology.Addr("web", "")
	spec, _ := json.Marshal(AppClient{Script: *t.App, Web: addr.String(), Blob: b.app.blob, CAFile: b.app.cert,
		Page: pageName(t.Rep)})
	return labCommand("app", string(spec)) // plain values cannot fail
}

// evaluateApp takes the client's report into the result. The client has checked each answer.
func (r *Result) evaluateApp(s app.Script, out []byte) error {
	r.App = &app.Log{}
	if err := json.Unmarshal(out, r.App); err != nil {
		return fmt.Errorf("report of the app: %w", err)
	}
	up, down := r.App.Bytes()
	r.Seconds, r.FirstByte, r.Bytes, r.SHA = r.App.Seconds, r.App.Requests[0].FirstByte, up+down, true
	return r.App.Check(s)
}

// radioSlack is how much longer than a tail radios are left alone.
const radioSlack = 500 * time.Millisecond

// waitRadiosAsleep waits until each radio is asleep that a scheme has woken since a time, so that its
// programs know it: a start of the emulator lets radios sleep, but not what programs believe.
func (b *Bench) waitRadiosAsleep(ctx context.Context, since Stats) error {
	for {
		st, err := b.Lab.Stats(false)
		if err != nil {
			return err
		}
		wait := b.tailOfWokenRadios(since, st)
		if wait == 0 {
			return nil
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		since = st // packets meanwhile have woken radios again
	}
}

// tailOfWokenRadios returns the longest tail, with radioSlack, of the radios whose links carried packets
// between two times; 0 if there are none.
func (b *Bench) tailOfWokenRadios(since, until Stats) (longest time.Duration) {
	for _, name := range b.Lab.Topology.Links() {
		tail, err := time.ParseDuration(b.Lab.Topology.Link[name].Tail)
		if err != nil {
			continue // it has no radio
		}
		for i, line := range until.Link(name).Lines {
			if line.Count.Delivered.Packets > since.Link(name).Lines[i].Count.Delivered.Packets {
				longest = max(longest, tail+radioSlack)
			}
		}
	}
	return longest
}
