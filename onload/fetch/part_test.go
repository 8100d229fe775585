// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"mpbond/base/fault"
	"mpbond/base/unit"
)

// interruptedConfig fetches over half of an object and returns the configuration to resume it.
func interruptedConfig(t *testing.T, o *origin, n int) Config {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cfg := Config{Devices: testDevices(testLines(t, n, 40*unit.Mbps)...),
		Objects: []Object{{URL: serveOrigin(t, o), File: filepath.Join(t.TempDir(), "file.bin")}}, times: fastTimes}
	cfg.OnProgress = func(p Progress) {
		if p.Bytes > size/2 {
			cancel()
		}
	}
	if _, err := Get(ctx, cfg); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	cfg.OnProgress = nil
	return cfg
}

// TestOneDissents checks that received bytes are kept if one device sees another object, at the
// start or later, and that the device is excluded.
func TestOneDissents(t *testing.T) {
	virtual(t, func(t *testing.T) {
		other := randomBytes(size, 32)
		for _, middle := range []bool{false, true} {
			for portal := range 2 {
				o := &origin{data: randomBytes(size, 31), etag: `"v1"`}
				cfg := interruptedConfig(t, o, 3)
				o.asked.Store(0)
				seen := make(chan struct{})
				markSeen := sync.OnceFunc(func() { close(seen) })
				o.wrong = func(w http.ResponseWriter, r *http.Request, device int) bool {
					if device == portal && (!middle || o.calls.Add(1) > 1) {
						markSeen()
						r.Header.Del("If-Range")
						(&origin{data: other, etag: `"stale"`}).serve(w, r)
						return true
					}
					if !middle { // the conflicting device is the first
						<-seen
					}
					// so that each device sends a further request
					if from, to, ok := requestRange(r, size); ok {
						sendPart(w, o, from, min(to, from+100_000))
						return true
					}
					return false
				}
				r, err := Get(t.Context(), cfg)
				if err != nil {
					t.Fatal(err)
				}
				expectContent(t, cfg.Objects[0].File, o.data)
				if got := r.Objects[0].Resumed; got < size/2 {
					t.Errorf("device %d, in the middle: %v: %v were kept", portal, middle, got)
				}
			}
		}
	})
}

// TestLock checks that only one process can use a part file, and that a finished file is not
// written to.
func TestLock(t *testing.T) {
	o := Object{URL: "http://x/", File: filepath.Join(t.TempDir(), "f")}
	p, _, err := openOrCreatePart(o)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := openOrCreatePart(o); !fault.Is(err, fault.AlreadyRunning) {
		t.Error(err)
	}
	p.discardPartFile()
	var all sync.WaitGroup
	for range 2 {
		all.Go(func() {
			for range 500 {
				p, _, err := openOrCreatePart(o)
				if fault.Is(err, fault.AlreadyRunning) {
					continue
				}
				if err == nil {
					_, err = p.file.WriteAt([]byte("x"), 0)
				}
				st, e := os.Stat(p.file.Name())
				now, e2 := p.file.Stat()
				if err = errors.Join(err, e, e2); err != nil || !os.SameFile(st, now) {
					t.Errorf("a file of another process was written to (%v)", err)
				}
				if err := p.publishPartFile(0o600, false); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// TestLeftovers checks that only the temporary files of killed processes are removed.
func TestLeftovers(t *testing.T) {
	dir := t.TempDir()
	names := map[string]bool{".f.mpbond-123": true, ".f.mpbond-": true, ".f.mpbond-1.mpbond-2": false,
		".g.mpbond-5": false, ".f.mpbond-x": false}
	for name := range names {
		writeFile(t, filepath.Join(dir, name), []byte("x"))
	}
	p, _, err := openOrCreatePart(Object{URL: "http://x/", File: filepath.Join(dir, "f")})
	if err != nil {
		t.Fatal(err)
	}
	defer p.discardPartFile()
	for name, gone := range names {
		if _, err := os.Stat(filepath.Join(dir, name)); (err != nil) != gone {
			t.Errorf("%s: %v", name, err)
		}
	}
	if temp, err := newTempPart(Object{File: filepath.Join(dir, "f")}); err != nil {
		t.Error(err)
	} else if p.removeTempFiles(); temp.file.Close() != nil {
		t.Error("closed")
	} else if _, err := os.Stat(temp.file.Name()); err == nil {
		t.Errorf("%s would remain", temp.file.Name())
	}
}

// TestOthersPart checks that a part file of another URL survives if the network fails at once, and
// that its journal is removed once the part is overwritten.
func TestOthersPart(t *testing.T) {
	virtual(t, func(t *testing.T) {
		o := &origin{data: randomBytes(size, 33), etag: `"v1"`}
		cfg := interruptedConfig(t, o, 1)
		file, mine := cfg.Objects[0].File, cfg.Objects[0].URL
		cfg.Objects[0].URL = "http://127.0.0.1:1/none"
		if _, err := Get(t.Context(), cfg); err == nil {
			t.Fatal("unexpected content")
		}
		p, j, err := openOrCreatePart(Object{URL: mine, File: file})
		if err != nil || j.Have.Size() < size/2 {
			t.Fatalf("%v are left, %v", j.Have, err)
		}
		p.file.Close()
		if p, j, err = openOrCreatePart(Object{URL: "http://x/", File: file}); err != nil || len(j.Have) > 0 ||
			p.resizeFile(size) != nil {
			t.Fatal(j, err)
		}
		p.file.Close() // killed before a journal was written
		if p, j, err = openOrCreatePart(Object{URL: mine, File: file}); err != nil || len(j.Have) > 0 {
			t.Errorf("the journal is used for overwritten content (%v)", err)
		}
		p.discardPartFile()
	})
}

// TestReprDigestResumed checks that the digest of the whole object is verified after a resumption.
func TestReprDigestResumed(t *testing.T) {
	virtual(t, func(t *testing.T) {
		o := &origin{data: randomBytes(size, 34), etag: `"v1"`}
		o.wrong = func(w http.ResponseWriter, _ *http.Request, _ int) bool {
			w.Header().Set("Repr-Digest", digestOf(o.data))
			return false
		}
		cfg := interruptedConfig(t, o, 2)
		o.wrong = nil
		f, err := os.OpenFile(cfg.Objects[0].File+partSuffix, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.WriteAt(make([]byte, 100), 0) // the disk fails
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
		if _, err := Get(t.Context(), cfg); !fault.Is(err, fault.Integrity) {
			t.Error(err)
		}
		expectOnlyFile(t, cfg.Objects[0].File)
	})
}

// TestDirtyDevice checks that ranges with a wrong Content-Digest are fetched from another device,
// and that earlier bytes of the first one stay.
func TestDirtyDevice(t *testing.T) {
	virtual(t, func(t *testing.T) {
		o := &origin{data: randomBytes(size, 35), etag: `"v1"`}
		o.wrong = func(w http.ResponseWriter, r *http.Request, device int) bool {
			from, to, ok := requestRange(r, size)
			if !ok {
				return false
			}
			to = min(to, from+200_000)
			w.Header().Set("Content-Digest", digestOf(o.data[from:to]))
			if device == 1 {
				w.Header().Set("Content-Digest", digestOf(nil))
			}
			sendPart(w, o, from, to)
			return true
		}
		r, file, err := runGet(t, serveOrigin(t, o), testDevices(testLines(t, 2, 40*unit.Mbps)...), nil)
		if err != nil {
			t.Fatal(err)
		}
		expectContent(t, file, o.data)
		if bytes, wasted := totalBytes(r); bytes-wasted != size || wasted > 300_000 || r.Devices[1].Wasted < 100_000 {
			t.Errorf("%+v", r.Devices)
		}
	})
}

// TestAsks checks that range requests have If-Range, and that targets of redirects are not
// requested without the credentials of the original URL.
func TestAsks(t *testing.T) {
	virtual(t, func(t *testing.T) {
		o := &origin{data: randomBytes(size, 36), etag: `"v1"`}
		var asked, there, bare atomic.Int64
		o.wrong = func(w http.ResponseWriter, r *http.Request, _ int) bool {
			if _, _, ok := r.BasicAuth(); r.URL.Path != "/there" {
				if asked.Add(1); !ok {
					bare.Add(1)
				}
				http.Redirect(w, r, "/there", http.StatusFound)
				return true
			}
			from, to, ok := requestRange(r, size)
			if there.Add(1); ok && from > 0 && r.Header.Get("If-Range") != o.etag {
				t.Errorf("requested from byte %d on with If-Range %q", from, r.Header.Get("If-Range"))
			}
			sendPart(w, o, from, min(to, from+300_000))
			return true
		}
		url := strings.Replace(serveOrigin(t, o), "http://", "http://anna:secret@", 1)
		_, file, err := runGet(t, url, testDevices(testLines(t, 2, 40*unit.Mbps)...), nil)
		if err != nil {
			t.Fatal(err)
		}
		expectContent(t, file, o.data)
		if asked.Load() < there.Load() || bare.Load() > 0 {
			t.Errorf("%d requests, %d of them without credentials; %d to the redirect target", asked.Load(),
				bare.Load(), there.Load())
		}
	})
}
