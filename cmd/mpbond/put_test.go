// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"mpbond/base/fault"
	"mpbond/link/tcp"
	"mpbond/onload/fetch"
	"mpbond/onload/page"
)

// dropBox accepts files by PUT, except those named "bad".
type dropBox struct {
	mu    sync.Mutex
	files map[string]string
	puts  int
	kind  bool // takes bad ones too
}

func (d *dropBox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case strings.HasSuffix(r.URL.Path, "/bad") && !d.kind:
		w.WriteHeader(http.StatusForbidden)
	case r.Method == http.MethodPut:
		d.puts++
		d.files[r.URL.Path] = string(body)
		w.WriteHeader(http.StatusCreated)
	case r.Method == http.MethodHead:
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(d.files[r.URL.Path]))
	default:
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

// TestPut uploads a directory over this device and a helper. The second run uploads only files that
// were not confirmed.
func TestPut(t *testing.T) {
	t.Setenv("MPBOND_HOME", t.TempDir())
	box := &dropBox{files: map[string]string{}}
	s := httptest.NewServer(box)
	defer s.Close()
	dir := filepath.Join(t.TempDir(), "photos")
	for name, text := range map[string]string{"a.jpg": "one", "b/c.jpg": "two", "bad": "three"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	helper := newPhone(t)
	send := func() (putResult, error) {
		p := &putTask{putOptions: putOptions{to: s.URL + "/x/", method: "put"},
			find: func(context.Context) ([]fetch.Device, error) { return []fetch.Device{helper}, nil }}
		if err := p.readArguments([]string{dir}); err != nil {
			t.Fatal(err)
		}
		return p.runOnloadUpload(t.Context(), io.Discard)
	}
	res, err := send()
	if !fault.Is(err, fault.Permission) || len(res.Files) != 2 || len(res.Failed) != 1 ||
		box.files["/x/photos/b/c.jpg"] != "two" {
		t.Fatalf("%v, %+v", err, res)
	}
	box.kind = true
	res, err = send()
	if err != nil || len(res.Files) != 3 || box.puts != 3 || box.files["/x/photos/bad"] != "three" ||
		!strings.Contains(res.String(), "2 of them were confirmed by an earlier run") {
		t.Errorf("%v, %v, %d sent", err, res, box.puts)
	}
	if left, _ := filepath.Glob(filepath.Join(os.Getenv("MPBOND_HOME"), "put-*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

// TestPutElsewhere checks that files confirmed with some form fields or headers are not confirmed
// with others.
func TestPutElsewhere(t *testing.T) {
	t.Setenv("MPBOND_HOME", t.TempDir())
	var mu sync.Mutex
	got := map[string]bool{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, h, err := r.FormFile("file")
		if err != nil || h.Filename == "b.jpg" {
			w.WriteHeader(http.StatusRequestEntityTooLarge)
			return
		}
		mu.Lock()
		defer mu.Unlock()
		got[r.Header.Get("X-Who")+r.FormValue("album")] = true
	}))
	defer s.Close()
	dir := t.TempDir()
	for _, name := range []string{"a.jpg", "b.jpg"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range []putOptions{{form: []string{"album=summer"}}, {form: []string{"album=winter"}},
		{form: []string{"album=winter"}, headers: []string{"X-Who: anna"}}} {
		o.to, o.method, o.field = s.URL, "post", "file"
		p := &putTask{putOptions: o, find: func(context.Context) ([]fetch.Device, error) { return nil, nil }}
		if err := p.readArguments([]string{dir}); err != nil {
			t.Fatal(err)
		}
		var notes bytes.Buffer
		if res, err := p.runOnloadUpload(t.Context(), &notes); !fault.Is(err, fault.Limit) || len(res.Files) != 1 ||
			res.Files[0].Earlier {
			t.Errorf("%+v: %v, %+v", o, err, res)
		}
		if said := strings.Contains(notes.String(),
			"helpers could read the requests (headers, form fields)"); said != (len(o.headers) > 0) {
			t.Errorf("%+v: %s", o, &notes)
		}
	}
	if len(got) != 3 {
		t.Errorf("%v", got)
	}
}

// TestOwnLineAsks checks that no body is sent to a server that refuses it.
func TestOwnLineAsks(t *testing.T) {
	var taken atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter,
		_ *http.Request) {
		w.WriteHeader(http.StatusRequestEntityTooLarge)
	}))
	defer s.Close()
	lines, err := openLocalLinks(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range append(lines, page.NewLine("home", tcp.Options{}, nil).Device()) {
		q, err := http.NewRequest(http.MethodPut, s.URL,
			readerFunc(func(p []byte) (int, error) { taken.Add(int64(len(p))); return len(p), nil }))
		if err != nil {
			t.Fatal(err)
		}
		q.ContentLength = 8 << 20
		q.Header.Set("Expect", "100-continue")
		a, err := d.Transport.RoundTrip(q)
		if err != nil || a.StatusCode != http.StatusRequestEntityTooLarge || taken.Load() != 0 {
			t.Errorf("%s: %v, %d bytes", d.Name, err, taken.Load())
		}
		if err == nil {
			a.Body.Close()
		}
		d.Transport.(*http.Transport).CloseIdleConnections()
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func TestPutCommand(t *testing.T) {
	t.Setenv("MPBOND_HOME", t.TempDir())
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	file := filepath.Join(t.TempDir(), "a.txt")
	if err := os.WriteFile(file, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"--to", "http://127.0.0.1:1/", "--method", "fax"}, {"--to", "127.0.0.1"},
		{"--to", "http://127.0.0.1:1/", "--method", "s3"},
		{"--to", "http://127.0.0.1:1/", "--header", "none"}, {"--to", "http://127.0.0.1:1/", "--form", "none"},
		{"--to", "http://127.0.0.1:1/", "--method", "post", "--keep"},
		{"--to", "http://127.0.0.1:1/", "--scheduler", "luck"},
		{"--to", "http://127.0.0.1:1/", "--interface", "none0"},
	} {
		cmd := putCommand()
		cmd.SetArgs(append(args, file))
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		if err := cmd.Execute(); !fault.Is(err, fault.Usage) {
			t.Errorf("%v: %v", args, err)
		}
	}
	box := &dropBox{files: map[string]string{}}
	s := httptest.NewServer(box)
	defer s.Close()
	var out bytes.Buffer
	cmd := putCommand()
	cmd.SetArgs([]string{"--json", "--to", s.URL + "/name", file})
	cmd.SetOut(&out)
	cmd.SetErr(io.Discard)
	if err := cmd.Execute(); err != nil {
		t.Fatal(err)
	}
	var res putResult
	if err := json.Unmarshal(out.Bytes(), &res); err != nil || len(res.Files) != 1 || res.Files[0].Proof != "size" ||
		box.files["/name"] != "hello" {
		t.Errorf("%v, %s, %v", err, &out, box.files)
	}
}
