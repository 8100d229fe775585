// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"mpbond/link/tcp"
	"mpbond/onload/upload"
)

const testTimeout = 20 * time.Second

// testServer is a minimal WebDAV server.
type testServer struct {
	*httptest.Server
	mu    sync.Mutex
	files map[string]string
	puts  int
	// odd, if it returns true, has responded instead.
	odd func(w http.ResponseWriter, r *http.Request) bool
}

func newTestServer(t *testing.T) *testServer {
	p := &testServer{files: map[string]string{}}
	p.Server = httptest.NewServer(p)
	t.Cleanup(p.Close)
	return p
}

func (p *testServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.mu.Lock()
	odd := p.odd
	p.mu.Unlock()
	if odd != nil && odd(w, r) {
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	old, there := p.files[r.URL.Path]
	switch {
	case r.Method == "MKCOL": // the collection exists
		w.WriteHeader(http.StatusMethodNotAllowed)
	case r.Method == http.MethodHead && there:
		w.Header().Set("Content-Length", fmt.Sprint(len(old)))
	case r.Method == http.MethodHead:
		w.WriteHeader(http.StatusNotFound)
	case there && r.Header.Get("If-None-Match") == "*":
		w.WriteHeader(http.StatusPreconditionFailed)
	default:
		p.puts++
		p.files[r.URL.Path] = string(body)
		w.WriteHeader(http.StatusCreated)
	}
}

// set changes odd.
func (p *testServer) set(odd func(w http.ResponseWriter, r *http.Request) bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.odd = odd
}

func (p *testServer) has(name string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.files[name]
}

// browser is a logged-in browser.
type browser struct {
	*testing.T
	page  *Page
	base  string
	token string
	end   func()
}

// startPage serves a page until the test ends, or end is called.
func startPage(t *testing.T, at *testServer, change func(*Config)) *browser {
	t.Helper()
	cfg := Config{Target: upload.Target{Method: upload.Put, URL: at.URL + "/photos/"}, Dir: t.TempDir(),
		SpoolLimit: 1 << 20, AccessCode: "K7QF-3M2A", HostNames: []string{"phone"},
		Devices: []upload.Device{NewLine("home", tcp.Options{}, nil).Device(),
			NewLine("own", tcp.Options{}, nil).Device()}, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	if change != nil {
		change(&cfg)
	}
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	l, err := tcp.Listen(t.Context(), "127.0.0.1:0", tcp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Serve(ctx, l) }()
	b := &browser{T: t, page: p, base: "http://" + l.Addr().String()}
	b.end = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != context.Canceled {
			t.Error(err)
		}
	})
	t.Cleanup(b.end)
	b.token, _ = p.sessions.loginWithCode(l.Addr(), "k7qf 3m2a", time.Now())
	return b
}

// ask sends a request with the token.
func (b *browser) ask(method, path string, body io.Reader) (status int, text string) {
	b.Helper()
	q, err := http.NewRequest(method, b.base+path, body)
	if err != nil {
		b.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer "+b.token)
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		b.Fatal(err)
	}
	defer a.Body.Close()
	all, _ := io.ReadAll(a.Body)
	return a.StatusCode, string(all)
}

func (b *browser) uploadFile(name string, data []byte) {
	b.Helper()
	if status, text := b.ask("POST", "/files?name="+url.QueryEscape(name),
		bytes.NewReader(data)); status != http.StatusNoContent {
		b.Fatal(status, text)
	}
}

// waitState reads events until a condition holds.
func (b *browser) waitState(what string, ok func(pageState) bool) (v pageState) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), testTimeout)
	defer cancel()
	q, err := http.NewRequestWithContext(ctx, "GET", b.base+"/events", nil)
	if err != nil {
		b.Fatal(err)
	}
	q.Header.Set("Authorization", "Bearer "+b.token)
	a, err := http.DefaultClient.Do(q)
	if err != nil {
		b.Fatal(err)
	}
	defer a.Body.Close()
	in := json.NewDecoder(&events{r: a.Body})
	for last := ""; ; last = formatStates(v) {
		v = pageState{}
		if err := in.Decode(&v); err != nil {
			b.Fatalf("never: %s: %v; it was %q", what, err, last)
		}
		if ok(v) {
			return v
		}
	}
}

// events decodes an event stream with data lines only.
type events struct{ r io.Reader }

func (e *events) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	return copy(p, bytes.ReplaceAll(p[:n], []byte("data: "), nil)), err
}

// formatStates formats the states of the files, sorted by name.
func formatStates(v pageState) string {
	var list []string
	for _, f := range v.Files {
		list = append(list, f.Name+" "+string(f.State))
	}
	return strings.Join(list, ", ")
}

// expectStates waits for states.
func (b *browser) expectStates(want string) pageState {
	b.Helper()
	return b.waitState(want, func(v pageState) bool { return formatStates(v) == want })
}

func writeFile(dir, name, text string) error {
	return os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)
}

func spooledFiles(t *testing.T, dir string) (names []string) {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}
