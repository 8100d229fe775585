// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"mpbond/api/client"
	"mpbond/api/console"
	"mpbond/base/fault"
)

const secret = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"

// overTCP serves a role at a port until the test ends.
func overTCP(t *testing.T, r Role) (addr string) {
	t.Helper()
	l, err := ListenTCP("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- RunTCP(ctx, l, r, secret) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// TestGuard: over TCP only requests with the token are answered, and none that a foreign web page
// can make a browser send.
func TestGuard(t *testing.T) {
	addr := overTCP(t, fullRole(nil))
	_, port, _ := net.SplitHostPort(addr)
	good := "Authorization: Bearer " + secret + "\r\n"
	for _, c := range []struct {
		name, request string
		status        int
	}{
		{"token", "GET /v2/status HTTP/1.1\r\nHost: " + addr + "\r\n" + good, 200},
		{"by name", "GET /v2/status HTTP/1.1\r\nHost: localhost:" + port + "\r\n" + good, 200},
		{"forwarded", "GET /v2/status HTTP/1.1\r\nHost: LocalHost:9999\r\n" + good, 200},
		{"IPv6", "GET /v2/status HTTP/1.1\r\nHost: [::1]:9999\r\n" + good, 200},
		{"own page", "GET /v2/status HTTP/1.1\r\nHost: localhost:1\r\nOrigin: http://localhost:1\r\n" +
			"Sec-Fetch-Site: same-origin\r\n" + good, 200},
		{"no token", "GET /v2/status HTTP/1.1\r\nHost: " + addr + "\r\n", 401},
		{"wrong token", "GET /v2/status HTTP/1.1\r\nHost: " + addr + "\r\n" + strings.Replace(good, "AAEC", "AAED", 1), 401},
		{"token's beginning", "GET /v2/status HTTP/1.1\r\nHost: " + addr + "\r\n" + good[:len(good)-3] + "\r\n", 401},
		{"empty token", "GET /v2/status HTTP/1.1\r\nHost: " + addr + "\r\nAuthorization: Bearer \r\n", 401},
		{"other scheme", "GET /v2/status HTTP/1.1\r\nHost: " + addr + "\r\nAuthorization: Basic " + secret + "\r\n", 401},
		{"token in the URL", "GET /v2/status?token=" + secret + " HTTP/1.1\r\nHost: " + addr + "\r\n", 401},
		{"what is public elsewhere", "GET /openapi.json HTTP/1.1\r\nHost: " + addr + "\r\n", 401},
		{"console", "GET / HTTP/1.1\r\nHost: " + addr + "\r\n", 200},
		{"console's script", "GET /console.js HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: same-origin\r\n", 200},
		{"link to the console", "GET / HTTP/1.1\r\nHost: " + addr + "\r\nSec-Fetch-Site: cross-site\r\n" +
			"Sec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n", 200},
		{"link to the API", "GET /v2/status HTTP/1.1\r\nHost: " + addr + "\r\nSec-Fetch-Site: cross-site\r\n" +
			"Sec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n" + good, 403},
		{"console in a frame", "GET / HTTP/1.1\r\nHost: " + addr + "\r\nSec-Fetch-Site: cross-site\r\n" +
			"Sec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: iframe\r\n", 403},
		{"console's script elsewhere", "GET /console.js HTTP/1.1\r\nHost: " + addr + "\r\nSec-Fetch-Site: cross-site\r\n" +
			"Sec-Fetch-Mode: no-cors\r\nSec-Fetch-Dest: script\r\n", 403},
		{"console by rebinding", "GET / HTTP/1.1\r\nHost: evil.example:" + port + "\r\nSec-Fetch-Mode: navigate\r\n" +
			"Sec-Fetch-Dest: document\r\n", 403},
		{"console, changed", "POST / HTTP/1.1\r\nHost: " + addr + "\r\n", 401},
		{"no such place", "GET /x HTTP/1.1\r\nHost: " + addr + "\r\n", 401},
		{"DNS rebinding", "GET /v2/status HTTP/1.1\r\nHost: evil.example:" + port + "\r\n" + good, 403},
		{"name that begins well", "GET /v2/status HTTP/1.1\r\nHost: localhost.evil.example:" + port + "\r\n" + good, 403},
		{"address that begins well", "GET /v2/status HTTP/1.1\r\nHost: 127.0.0.1.evil.example\r\n" + good, 403},
		{"address in the network", "GET /v2/status HTTP/1.1\r\nHost: 192.168.1.7:" + port + "\r\n" + good, 403},
		{"no host", "GET /v2/status HTTP/1.0\r\n" + good, 403},
		{"host in the request line", "GET http://evil.example/v2/status HTTP/1.1\r\nHost: " + addr + "\r\n" + good, 403},
		{"foreign origin", "DELETE /v2/streams/b/5 HTTP/1.1\r\nHost: " + addr + "\r\nOrigin: https://evil.example\r\n" + good,
			403},
		{"origin of a file", "POST /v2/chunk HTTP/1.1\r\nHost: " + addr + "\r\nOrigin: null\r\n" + good, 403},
		{"another port's page", "GET /v2/status HTTP/1.1\r\nHost: " + addr + "\r\nOrigin: http://127.0.0.1:1\r\n" + good,
			403},
		{"two origins", "GET /v2/status HTTP/1.1\r\nHost: " + addr + "\r\nOrigin: http://" + addr +
			"\r\nOrigin: http://evil.example\r\n" + good, 403},
		{"form of another page", "POST /v2/chunk HTTP/1.1\r\nHost: " + addr + "\r\nSec-Fetch-Site: cross-site\r\n" + good,
			403},
	} {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(conn, c.request+"Connection: close\r\n\r\n")
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(c.name, err)
		}
		body, _ := io.ReadAll(answer.Body)
		conn.Close()
		if answer.StatusCode != c.status {
			t.Errorf("%s: %s %s, want %d", c.name, answer.Status, body, c.status)
		}
		if c.status != 200 &&
			(!bytes.Contains(body, []byte(`"kind":"permission"`)) || bytes.Contains(body, []byte(secret)) ||
				bytes.Contains(body, []byte("laptop"))) {
			t.Errorf("%s: %s", c.name, body)
		}
		for name := range answer.Header {
			if strings.HasPrefix(name, "Access-Control") {
				t.Errorf("%s: another page may read it: %s", c.name, name)
			}
		}
	}
	c := client.NewTCP(addr, secret)
	defer c.Close()
	if s, err := c.Status(t.Context(), false); err != nil || s.Name != "laptop" {
		t.Error(s, err)
	}
	untrusted := client.NewTCP(addr, "x")
	defer untrusted.Close()
	if _, err := untrusted.Status(t.Context(), false); !fault.Is(err, fault.Permission) || fault.HintOf(err) == "" {
		t.Error(err)
	}
}

// TestConnectionsAreLimited: connections above the limit wait until others end.
func TestConnectionsAreLimited(t *testing.T) {
	addr := overTCP(t, fullRole(nil))
	var open []net.Conn
	for range maxConns {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		open = append(open, conn)
	}
	for _, conn := range open { // each is served, and stays
		fmt.Fprintf(conn, "GET /v2/devices HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", secret)
		if answer, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || answer.StatusCode != 200 {
			t.Fatal(answer, err)
		}
	}
	c := client.NewTCP(addr, secret)
	defer c.Close()
	got := make(chan error, 1)
	go func() {
		_, err := c.Status(t.Context(), false)
		got <- err
	}()
	open[0].Close()
	if err := <-got; err != nil {
		t.Error(err)
	}
}

func TestListenTCPRefuses(t *testing.T) {
	for _, addr := range []string{"0.0.0.0:7680", ":7680", "192.168.1.7:7680", "[::]:7680", "localhost", "127.0.0.1",
		"example.org:80", "127.0.0.1:99999"} {
		if l, err := ListenTCP(addr); !fault.Is(err, fault.Config) || fault.HintOf(err) == "" {
			t.Errorf("%s: %v", addr, err)
			if err == nil {
				l.Close()
			}
		}
	}
	l, err := ListenTCP("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := ListenTCP(l.Addr().String()); !fault.Is(err, fault.AlreadyRunning) {
		t.Error(err)
	}
}

func TestToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "home", "api.token")
	tokens := make([]string, 8)
	var all sync.WaitGroup
	for i := range tokens { // at once
		all.Go(func() {
			var err error
			if tokens[i], err = LoadOrCreateToken(path); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	for _, token := range tokens {
		if token != tokens[0] || len(token) != encodedTokenLen {
			t.Errorf("tokens %q", tokens)
		}
	}
	if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
		t.Error(st.Mode(), err)
	}
	if list, _ := os.ReadDir(filepath.Dir(path)); len(list) != 1 {
		t.Errorf("files are left: %v", list)
	}
	for _, c := range []struct {
		text string
		mode os.FileMode
		kind fault.Kind
	}{
		{tokens[0], 0o640, fault.Permission}, {tokens[0], 0o604, fault.Permission}, {"", 0o600, fault.Config},
		{"short\n", 0o600, fault.Config},
		{tokens[0] + "x", 0o600, fault.Config}, {strings.Repeat("x", 1<<20), 0o600, fault.Config}, {tokens[0], 0o600, ""},
		{tokens[0] + "\n", 0o400, ""},
	} {
		path := filepath.Join(t.TempDir(), "api.token")
		if err := errors.Join(os.WriteFile(path, []byte(c.text), 0o600), os.Chmod(path, c.mode)); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadOrCreateToken(path); fault.KindOf(err) != c.kind {
			t.Errorf("%.60q, %v: %v", c.text, c.mode, err)
		}
	}
	link := filepath.Join(t.TempDir(), "api.token")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	if _, err := LoadOrCreateToken(link); err == nil {
		t.Error("a link is followed")
	}
	if _, err := LoadOrCreateToken(t.TempDir()); err == nil {
		t.Error("a directory is read")
	}
}

// FuzzGuard: no request passes without the token, or with it from elsewhere, except for the
// console's own files under a loopback name.
func FuzzGuard(f *testing.F) {
	for _, s := range []string{"Host: localhost\r\nAuthorization: Bearer " + secret,
		"Host: [::1]:80\r\nOrigin: http://[::1]:80", "Host: evil\r\nAuthorization: Bearer " + secret,
		"Host: 127.0.0.1\r\nSec-Fetch-Site: cross-site", "Host: [::1%lo]:1\r\nOrigin: %zz",
		"Host: evil\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document"} {
		f.Add([]byte("GET /v2/status HTTP/1.1\r\n" + s + "\r\n\r\n"))
		f.Add([]byte("GET / HTTP/1.1\r\n" + s + "\r\n\r\n"))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
		if err != nil {
			return
		}
		in := false
		w := httptest.NewRecorder()
		requireToken(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { in = true }), secret).ServeHTTP(w, req)
		if in && (!bytes.Contains(raw, []byte(secret)) || !isLoopbackHost(req.Host)) {
			t.Errorf("%q is let in", raw)
		}
		if page := w.Code == 200 && console.IsConsoleFile(req) && isLoopbackHost(req.Host); !in && !page &&
			w.Code != 401 &&
			w.Code != 403 {
			t.Errorf("%q: %d", raw, w.Code)
		}
	})
}
