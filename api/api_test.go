package api

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"mpbond/fault"
	"mpbond/unit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func sample(why bool) Status {
	s := Status{
		Role: "primary", Name: "laptop", ID: "AAAA-BBBB-CCCC-DDDD", Version: "1", UptimeSeconds: 1.5, MemoryBytes: unit.MB,
		SOCKS: "127.0.0.1:1080", HTTP: "127.0.0.1:8080",
		Bonds: []Bond{{ID: "b", Peer: "home", Scheduler: "pams", Streams: 1, StreamsTotal: 2, WastedBytes: map[string]unit.Bytes{"reinject": 5},
			Paths: []Path{{ID: 1, Device: "phone", Kind: Helped, State: Up, RxBytes: 7, RxRate: 8 * unit.Mbps, SRTTms: 1.25}}}},
	}
	if why {
		s.Bonds[0].Decisions = []Decision{{T: time.Unix(1, 0).UTC(), Path: 1, PADms: 2, Reason: "least PAD"}}
	}
	return s
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	j, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(j)
}

// start serves sample on a socket until the test ends.
func start(t *testing.T, path string) {
	t.Helper()
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- Serve(ctx, l, Role{Describe: sample}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(path); err == nil {
			t.Error("the socket is left over")
		}
	})
}

func TestStatus(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "x.sock")
	start(t, path)
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("socket mode %v, %v", st.Mode(), err)
	}
	if st, err := os.Stat(filepath.Dir(path)); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("directory mode %v, %v", st.Mode(), err)
	}
	c := NewClient(path)
	defer c.Close()
	for _, why := range []bool{false, true} {
		got, err := c.Status(t.Context(), why)
		if err != nil || asJSON(t, got) != asJSON(t, sample(why)) {
			t.Errorf("why=%v: %s, %v", why, asJSON(t, got), err)
		}
	}
}

func TestNamesHaveUnits(t *testing.T) {
	got := asJSON(t, sample(true))
	for _, want := range []string{`"rx_rate_bps":8000000`, `"uptime_seconds":1.5`, `"srtt_ms":1.25`, `"memory_bytes":1048576`, `"wasted_bytes":{"reinject":5}`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in %s", want, got)
		}
	}
}

func TestListsAreNeverNull(t *testing.T) {
	for _, s := range []Status{{}, {Bonds: []Bond{{}}}} {
		w := httptest.NewRecorder()
		Handler(Role{Describe: func(bool) Status { return s }}).ServeHTTP(w, httptest.NewRequest("GET", "/v1/status", nil))
		if strings.Contains(w.Body.String(), "null") {
			t.Error(w.Body)
		}
	}
}

func TestProblems(t *testing.T) {
	for _, c := range []struct {
		method, path string
		status       int
		kind         fault.Kind
	}{
		{"GET", "/v1/status?why=yes", 400, fault.Usage},
		{"POST", "/v1/status", 405, fault.Usage},
		{"GET", "/v2", 404, fault.NotFound},
		{"GET", "/", 404, fault.NotFound},
	} {
		w := httptest.NewRecorder()
		Handler(Role{Describe: sample}).ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		var p Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
			t.Errorf("%s %s: %v", c.method, c.path, err)
		}
		if w.Code != c.status || p.Status != c.status || p.Kind != string(c.kind) || p.Detail == "" || p.Title == "" ||
			w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %s: %d %v %+v", c.method, c.path, w.Code, w.Header(), p)
		}
	}
}

func TestOneAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.sock")
	l, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path); !fault.Is(err, fault.AlreadyRunning) || fault.HintOf(err) == "" {
		t.Errorf("second: %v", err)
	}
	l.Close()
	// A socket that a killed process left.
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	c := NewClient(path)
	defer c.Close()
	if _, err := c.Status(t.Context(), false); !fault.Is(err, fault.NotRunning) {
		t.Errorf("dead socket: %v", err)
	}
	start(t, path)
	if _, err := c.Status(t.Context(), false); err != nil {
		t.Error(err)
	}
}

func TestListenRefuses(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(file); !fault.Is(err, fault.Exists) {
		t.Errorf("plain file: %v", err)
	}
	if data, _ := os.ReadFile(file); string(data) != "precious" {
		t.Error("the file was touched")
	}
	if _, err := Listen(filepath.Join(dir, strings.Repeat("x", 120))); !fault.Is(err, fault.Limit) {
		t.Errorf("long path: %v", err)
	}
	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(filepath.Join(open, "x")); !fault.Is(err, fault.Permission) {
		t.Errorf("open directory: %v", err)
	}
	if err := syscall.Chown(open, 12345, 12345); err == nil { // as root only
		_ = os.Chmod(open, 0o700)
		if _, err := Listen(filepath.Join(open, "x")); !fault.Is(err, fault.Permission) {
			t.Errorf("directory of another user: %v", err)
		}
	}
}

func TestClientFaults(t *testing.T) {
	c := NewClient(filepath.Join(t.TempDir(), "none"))
	defer c.Close()
	if _, err := c.Status(t.Context(), false); !fault.Is(err, fault.NotRunning) || fault.HintOf(err) == "" {
		t.Errorf("no socket: %v", err)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Status(gone, false); err == nil {
		t.Error("cancelled and no error")
	}
	for body, kind := range map[string]fault.Kind{
		"HTTP/1.1 200 OK\r\n\r\nhello":                              fault.Protocol,
		"HTTP/1.1 500 Oh\r\n\r\nhello":                              fault.Protocol,
		"HTTP/1.1 400 Oh\r\n\r\n{\"kind\":\"limit\"}":               fault.Limit,
		"220 mail ready\r\n":                                        fault.Timeout,
		"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{\"role\":":    fault.Protocol,
		"HTTP/1.1 200 OK\r\n\r\n{\"role\":5}":                       fault.Protocol,
		"HTTP/1.1 200 OK\r\n\r\n" + `{"bonds":[{"id":"` + "x\"}]}x": "",
	} {
		path := filepath.Join(t.TempDir(), "s")
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			if conn, err := l.Accept(); err == nil {
				_, _ = conn.Read(make([]byte, 4096))
				_, _ = conn.Write([]byte(body))
				conn.Close()
			}
		}()
		c := NewClient(path)
		if _, err := c.Status(t.Context(), false); fault.KindOf(err) != kind {
			t.Errorf("%q: kind %q, want %q: %v", body, fault.KindOf(err), kind, err)
		}
		c.Close()
		l.Close()
	}
}

func TestRuntimeDir(t *testing.T) {
	t.Setenv("MPBOND_HOME", "/h")
	if got := SocketPath("helper"); got != "/h/run/helper.sock" {
		t.Error(got)
	}
	t.Setenv("MPBOND_HOME", "")
	t.Setenv("XDG_RUNTIME_DIR", "/x")
	want := "/x/mpbond"
	if os.Geteuid() == 0 {
		want = "/run/mpbond"
	}
	if got := RuntimeDir(); got != want {
		t.Error(got)
	}
}

// TestGarbage: noise on the socket is answered or dropped, and does no harm.
func TestGarbage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.sock")
	start(t, path)
	for _, noise := range [][]byte{[]byte("hello\r\n\r\n"), bytes.Repeat([]byte{0xff}, 1<<16), []byte("GET /v1/status HTTP/1.1\r\nX: " + strings.Repeat("y", 1<<16))} {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write(noise)
		conn.Close()
	}
	c := NewClient(path)
	defer c.Close()
	if _, err := c.Status(t.Context(), false); err != nil {
		t.Error(err)
	}
}
