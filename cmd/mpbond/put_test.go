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
	"testing"
	"time"

	"mpbond/fault"
	"mpbond/onload/fetch"
)

// dropBox takes files by PUT; one of the name "bad" it does not.
type dropBox struct {
	mu    sync.Mutex
	files map[string]string
	puts  int
}

func (d *dropBox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case strings.HasSuffix(r.URL.Path, "/bad") && r.Header.Get("X-Please") == "":
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

// TestPut sends a directory over this device and a helper; the second time only what was
// not confirmed.
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
	helper := phone(t)
	send := func(headers ...string) (putResult, error) {
		p := &put{putOptions: putOptions{to: s.URL + "/x/", method: "put", headers: headers}, find: func(context.Context) ([]fetch.Device, error) { return []fetch.Device{helper}, nil }}
		if err := p.choose([]string{dir}); err != nil {
			t.Fatal(err)
		}
		return p.run(t.Context(), io.Discard)
	}
	res, err := send()
	if !fault.Is(err, fault.Permission) || len(res.Files) != 2 || len(res.Failed) != 1 || box.files["/x/photos/b/c.jpg"] != "two" {
		t.Fatalf("%v, %+v", err, res)
	}
	res, err = send("X-Please: yes")
	if err != nil || len(res.Files) != 3 || box.puts != 3 || box.files["/x/photos/bad"] != "three" || !strings.Contains(res.String(), "2 of them were confirmed by an earlier run") {
		t.Errorf("%v, %v, %d sent", err, res, box.puts)
	}
	if left, _ := filepath.Glob(filepath.Join(os.Getenv("MPBOND_HOME"), "put-*")); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
}

func TestPutCommand(t *testing.T) {
	t.Setenv("MPBOND_HOME", t.TempDir())
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	file := filepath.Join(t.TempDir(), "a.txt")
	if err := os.WriteFile(file, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"--to", "http://127.0.0.1:1/", "--method", "fax"}, {"--to", "127.0.0.1"}, {"--to", "http://127.0.0.1:1/", "--method", "s3"},
		{"--to", "http://127.0.0.1:1/", "--header", "none"}, {"--to", "http://127.0.0.1:1/", "--form", "none"},
		{"--to", "http://127.0.0.1:1/", "--method", "post", "--keep"}, {"--to", "http://127.0.0.1:1/", "--scheduler", "luck"},
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
	if err := json.Unmarshal(out.Bytes(), &res); err != nil || len(res.Files) != 1 || res.Files[0].Proof != "size" || box.files["/name"] != "hello" {
		t.Errorf("%v, %s, %v", err, &out, box.files)
	}
}
