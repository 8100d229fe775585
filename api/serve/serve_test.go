// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bytes"
	"context"
	"encoding/json"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"mpbond/api"
	"mpbond/api/client"
	"mpbond/base/fault"
	"mpbond/base/unit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func exampleStatus(why bool) api.Status {
	s := api.Status{
		Role: "primary", Name: "laptop", ID: "AAAA-BBBB-CCCC-DDDD", Version: "1", UptimeSeconds: 1.5, MemoryBytes: unit.MB,
		Devices: []api.Device{}, Pipes: []api.Pipe{}, SOCKS: "127.0.0.1:1080", HTTP: "127.0.0.1:8080",
		Bonds: []api.Bond{
			{
				ID:           "b",
				Peer:         "home",
				Scheduler:    "pams",
				Streams:      1,
				StreamsTotal: 2,
				WastedBytes:  map[string]unit.Bytes{"reinject": 5},
				Subflows: []api.Subflow{
					{
						ID:      1,
						Device:  "phone",
						Kind:    api.Helped,
						State:   api.Up,
						RxBytes: 7,
						RxRate:  8 * unit.Mbps,
						SRTTms:  1.25,
					},
				},
			},
		},
	}
	if why {
		s.Bonds[0].Decisions = []api.Decision{{T: time.Unix(1, 0).UTC(), Subflow: 1, PADms: 2, Reason: "delivers first"}}
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

// startRole serves sample on a socket until the test ends.
func startRole(t *testing.T, path string) {
	t.Helper()
	l, err := api.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- Run(ctx, l, Role{Status: exampleStatus}) }()
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
	startRole(t, path)
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("socket mode %v, %v", st.Mode(), err)
	}
	if st, err := os.Stat(filepath.Dir(path)); err != nil || st.Mode().Perm() != 0o700 {
		t.Errorf("directory mode %v, %v", st.Mode(), err)
	}
	c := client.New(path)
	defer c.Close()
	for _, why := range []bool{false, true} {
		got, err := c.Status(t.Context(), why)
		if err != nil || asJSON(t, got) != asJSON(t, exampleStatus(why)) {
			t.Errorf("why=%v: %s, %v", why, asJSON(t, got), err)
		}
	}
}

func TestNamesHaveUnits(t *testing.T) {
	got := asJSON(t, exampleStatus(true))
	for _, want := range []string{`"rx_rate_bps":8000000`, `"uptime_seconds":1.5`, `"srtt_ms":1.25`,
		`"memory_bytes":1048576`, `"wasted_bytes":{"reinject":5}`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in %s", want, got)
		}
	}
}

func TestListsAreNeverNull(t *testing.T) {
	for _, s := range []api.Status{{}, {Bonds: []api.Bond{{}}}} {
		w := httptest.NewRecorder()
		Handler(
			Role{Status: func(bool) api.Status { return s }},
		).ServeHTTP(w, httptest.NewRequest("GET", "/v2/status", nil))
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
		{"GET", "/v2/status?why=yes", 400, fault.Usage},
		{"POST", "/v2/status", 405, fault.Usage},
		{"GET", "/v2", 404, fault.NotFound},
		{"GET", "/", 404, fault.NotFound},
	} {
		w := httptest.NewRecorder()
		Handler(Role{Status: exampleStatus}).ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		var p api.Problem
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
	l, err := api.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := api.Listen(path); !fault.Is(err, fault.AlreadyRunning) || fault.HintOf(err) == "" {
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
	c := client.New(path)
	defer c.Close()
	if _, err := c.Status(t.Context(), false); !fault.Is(err, fault.NotRunning) {
		t.Errorf("dead socket: %v", err)
	}
	startRole(t, path)
	if _, err := c.Status(t.Context(), false); err != nil {
		t.Error(err)
	}
}

func TestClientFaults(t *testing.T) {
	c := client.New(filepath.Join(t.TempDir(), "none"))
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
		c := client.New(path)
		if _, err := c.Status(t.Context(), false); fault.KindOf(err) != kind {
			t.Errorf("%q: kind %q, want %q: %v", body, fault.KindOf(err), kind, err)
		}
		c.Close()
		l.Close()
	}
}

// TestGarbage: noise on the socket is answered or dropped, and does no harm.
func TestGarbage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.sock")
	startRole(t, path)
	for _, noise := range [][]byte{[]byte("hello\r\n\r\n"), bytes.Repeat([]byte{0xff}, 1<<16),
		[]byte("GET /v2/status HTTP/1.1\r\nX: " + strings.Repeat("y", 1<<16))} {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = conn.Write(noise)
		conn.Close()
	}
	c := client.New(path)
	defer c.Close()
	if _, err := c.Status(t.Context(), false); err != nil {
		t.Error(err)
	}
}
