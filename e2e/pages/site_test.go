// SPDX-License-Identifier: Apache-2.0

//go:build linux

package pages

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"mpbond/e2e/rig"
	"mpbond/pbe/lte"
)

// siteAddress is the public address of the web sites.
const siteAddress = "192.0.2.7"

// siteNames are the names of the web sites in the pages.
var siteNames = []string{"example.org", "dav.example.org", "s3.eu-central-1.amazonaws.com", "tv.example.org",
	"backup.example.org"}

// sites answers for all web sites: uploads are kept, and all other files exist.
type sites struct {
	mu    sync.Mutex
	files map[string][]byte // guarded by mu: what was uploaded, by path
}

// siteFile returns the content of a file of the sites.
func siteFile(path string) []byte {
	if path == "/live.m3u8" {
		return []byte("#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n1.ts\n#EXTINF:1,\n2.ts\n#EXT-X-ENDLIST\n")
	}
	size := int64(10_000)
	if strings.HasSuffix(path, ".iso") {
		size = 2_000_000
	}
	data, _ := io.ReadAll(rig.Noise(size))
	return data
}

// siteDigest returns the SHA-256 of a file of the sites.
func siteDigest(path string) string { return fmt.Sprintf("%x", sha256.Sum256(siteFile(path))) }

func entityTag(data []byte) string { return fmt.Sprintf(`"%x"`, sha256.Sum256(data)) }

func (s *sites) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	data, uploaded := s.files[r.URL.Path]
	s.mu.Unlock()
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		if r.URL.Path == "/idle" { // a connection that stays open
			_ = http.NewResponseController(rw).Flush()
			<-r.Context().Done()
			return
		}
		if strings.HasSuffix(r.URL.Path, ".jpg") && strings.Contains(r.URL.Path[1:], "/") && !uploaded {
			http.NotFound(rw, r)
			return
		}
		if !uploaded {
			data = siteFile(r.URL.Path)
		}
		rw.Header().Set("ETag", entityTag(data))
		http.ServeContent(rw, r, "", time.Time{}, bytes.NewReader(data))
	case http.MethodPut:
		data, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		s.mu.Lock()
		s.files[r.URL.Path] = data
		s.mu.Unlock()
		rw.Header().Set("ETag", entityTag(data))
		if !strings.HasPrefix(r.Host, "s3.") { // S3 answers 200
			rw.WriteHeader(http.StatusCreated)
		}
	default: // MKCOL, POST
		_, _ = io.Copy(io.Discard, r.Body)
		rw.WriteHeader(http.StatusCreated)
	}
}

// runProgram runs a program of the test binary:
//
//	sites DIR            all web sites, with the certificate in DIR
//	radio FILE           writes the samples of FILE to standard output again and again, at liveRate
//	radio FILE unix:PATH the same to each caller
//	radio FILE ADDRESS   the same to each caller, once
func runProgram(args []string) error {
	switch {
	case args[0] == "sites":
		s := &sites{files: map[string][]byte{}}
		cert, key := filepath.Join(args[1], "cert"), filepath.Join(args[1], "key")
		failed := make(chan error)
		go func() { failed <- http.ListenAndServe(siteAddress+":80", s) }()
		go func() { failed <- http.ListenAndServeTLS(siteAddress+":443", cert, key, s) }()
		return <-failed
	case len(args) == 2:
		return sendSamples(os.Stdout, args[1], true)
	}
	network, addr := "tcp", args[2]
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		network, addr = "unix", path
	}
	l, err := net.Listen(network, addr)
	if err != nil {
		return err
	}
	fmt.Println("the radio is ready")
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			_ = sendSamples(c, args[1], network == "unix")
			c.Close()
		}()
	}
}

// liveRate is the rate of the samples in live.sc16, per second. They hold a frame of each number, so
// that they can be repeated: otherwise time would go back, and clients would drop what is late.
const (
	liveRate           = 1_920_000
	framesOfAllNumbers = 1024
)

// sendSamples writes a file of samples as a radio does: half a second of them, or again and again if
// it repeats.
func sendSamples(w io.Writer, file string, repeats bool) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	pace := time.NewTicker(40 * time.Millisecond) // a slow radio, for busy machines
	defer pace.Stop()
	const size = liveRate * 4 / 100 // a frame
	for n := 0; repeats || n < 50; n++ {
		<-pace.C
		at := n * size % len(data)
		if _, err = w.Write(data[at : at+size]); err != nil {
			return err
		}
	}
	return nil
}

var writeSamples sync.Once

// copySamples gives the primary the samples that pages name: those of two cells of one site.
func (s *scene) copySamples() {
	s.Helper()
	writeSamples.Do(func() {
		for _, f := range []struct {
			name      string
			id        int
			rate, len int // samples per second, milliseconds
		}{
			{"walk.cf32", 77, 1_920_000, 2700}, {"b.cf32", 78, 1_920_000, 2700},
			{"primary.sc16", 77, 1_920_000, 2700}, {"secondary.sc16", 78, 1_920_000, 2700},
			{"live.sc16", 77, liveRate, framesOfAllNumbers * 10},
		} {
			path := filepath.Join(s.files, f.name)
			rig.WriteSamples(s, path, lte.Cell{ID: f.id, PRB: 6, Ports: 1, PHICHSixths: 6}, f.rate, f.len)
			if err := os.Chmod(path, 0o644); err != nil {
				s.Fatal(err)
			}
		}
	})
	s.at("primary").must("ln -s /mnt/files/*16 /mnt/files/*32 . && ln -s walk.cf32 a.cf32")
}

// makeCertificate writes the certificate of all web sites and its key.
func makeCertificate(t *testing.T, dir string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: siteNames[0]},
		NotAfter: time.Now().Add(24 * time.Hour), DNSNames: siteNames, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	cert, err := x509.CreateCertificate(rand.Reader, c, c, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]pem.Block{
		"cert": {Type: "CERTIFICATE", Bytes: cert}, "key": {Type: "PRIVATE KEY", Bytes: private},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(&b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
