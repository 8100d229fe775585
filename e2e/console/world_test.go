// SPDX-License-Identifier: Apache-2.0

// Package console tests the web console: the real program on loopback, with one process for each
// role, and a real headless browser.
package console

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"mpbond/api"
	"mpbond/base/porttest"
	"mpbond/e2e/rig"
)

func TestMain(m *testing.M) { rig.Main(m, runProgram) }

// testbed runs the real program on loopback.
type testbed struct {
	*rig.Network
	proxy  string // address of the primary's proxy
	origin *httptest.Server

	starting sync.Mutex // held by tests that start programs concurrently
}

func newTestbed(t testing.TB) *testbed {
	t.Helper()
	origin := httptest.NewServer(http.HandlerFunc(serveEndless))
	t.Cleanup(origin.Close)
	return &testbed{Network: rig.New(t, rig.Options{}), origin: origin}
}

// serveEndless sends some MB a second until the client disconnects.
func serveEndless(w http.ResponseWriter, r *http.Request) {
	piece := make([]byte, 20_000)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, err := w.Write(piece); err != nil {
			return
		}
		_ = http.NewResponseController(w).Flush()
		select {
		case <-tick.C:
		case <-r.Context().Done():
			return
		}
	}
}

// writeConfig writes the configuration file of a device's role.
func (w *testbed) writeConfig(device, role, text string) {
	w.Helper()
	home := filepath.Join(w.Dir, device)
	if err := os.MkdirAll(home, 0o700); err != nil {
		w.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(home, role+".toml"), []byte(text), 0o600); err != nil {
		w.Fatal(err)
	}
}

// consoleURL returns the URL of a device's console, with the token.
func (w *testbed) consoleURL(device string) string {
	w.Helper()
	var at struct{ URL string }
	rig.Eventually(w, func() error { return w.JSON(&at, device, "console", "--json") })
	return at.URL
}

// startRoles starts a server, a helper, and a primary that knows only the server. Every byte goes
// over every subflow, so that all subflows carry traffic.
func (w *testbed) startRoles() (helper *rig.Process) {
	w.Helper()
	w.Start("server", w.Mpbond, "server", "--listen", porttest.FreeAddress(w), "--allow", "127.0.0.0/8",
		"--api", "127.0.0.1:0")
	w.writeConfig("helper", "helper", "pair = "+strconv.Quote(porttest.FreeAddress(w))+"\n")
	facts := "battery_percent = 55\ncharging = false\ntemperature_c = 31.5\n" +
		"link = \"cellular\"\nmetered = true\nsignal_percent = 70\n"
	if err := os.WriteFile(filepath.Join(w.Dir, "helper", "facts.toml"), []byte(facts), 0o600); err != nil {
		w.Fatal(err)
	}
	helper = w.Start("helper", w.Mpbond, "helper", "--name", "phone", "--api", "127.0.0.1:0")
	w.proxy = porttest.FreeAddress(w)
	w.writeConfig("primary", "primary", "transparent = 0\nproxy = "+strconv.Quote(w.proxy)+
		"\npipe = "+strconv.Quote(porttest.FreeAddress(w))+"\n")
	// Loopback traffic costs nothing and is not counted. This record stands for earlier usage.
	used := fmt.Sprintf("{\"day\":%q,\"link\":\"wlan0\",\"purpose\":\"direct\","+
		"\"down\":123456789,\"up\":44,\"joules\":98.7}\n", time.Now().Format(time.DateOnly))
	if err := os.WriteFile(filepath.Join(w.Dir, "primary", "usage-primary.jsonl"), []byte(used), 0o600); err != nil {
		w.Fatal(err)
	}
	var code api.Invitation
	rig.Eventually(w, func() error { return w.JSON(&code, "server", "accept", "--wait=false", "--json") })
	w.Must("primary", w.Mpbond, "pair", "--name", "laptop", code.Code)
	w.Start("primary", w.Mpbond, "primary", "--name", "laptop", "--api", "127.0.0.1:0",
		"--redundant", "port:"+w.origin.URL[len("http://127.0.0.1:"):])
	return helper
}

// newApp returns an HTTP client that uses the primary's proxy, with a new connection per request.
func (w *testbed) newApp() *http.Client {
	w.Helper()
	proxy, err := url.Parse("http://" + w.proxy)
	if err != nil {
		w.Fatal(err)
	}
	return &http.Client{Transport: &http.Transport{
		Proxy:             func(*http.Request) (*url.URL, error) { return proxy, nil },
		DisableKeepAlives: true,
	}}
}

// fetchStatus returns the status code of an app's request.
func (w *testbed) fetchStatus(from string) int {
	w.Helper()
	answer, err := w.newApp().Get(from)
	if err != nil {
		w.Fatal(err)
	}
	answer.Body.Close()
	return answer.StatusCode
}

// startDownload has an app receive from the origin until the test ends.
func (w *testbed) startDownload() {
	w.Helper()
	answer, err := w.newApp().Get(w.origin.URL)
	if err != nil {
		w.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _, _ = io.Copy(io.Discard, answer.Body); close(ended) }()
	w.Cleanup(func() { answer.Body.Close(); <-ended })
}
