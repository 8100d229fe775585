// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"mpbond/api"
	"mpbond/api/serve"
	"mpbond/base/porttest"
	"mpbond/base/unit"
	"mpbond/internal/cli"
)

const fileSize = 300_000

// testSite is a web server, a proxy in place of the primary, and the primary's status.
type testSite struct {
	dir   string // working directory of the command
	web   string // address of the web server
	asked atomic.Int64
}

func newTestSite(t *testing.T, socks bool) *testSite {
	t.Helper()
	newHome(t)
	w := &testSite{dir: t.TempDir()}
	t.Chdir(w.dir)
	mux := http.NewServeMux()
	mux.HandleFunc("/file.bin", func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Length", fmt.Sprint(fileSize))
		_, _ = rw.Write(make([]byte, fileSize))
	})
	mux.HandleFunc("/chunked", func(rw http.ResponseWriter, _ *http.Request) {
		for range 10 {
			_, _ = rw.Write(make([]byte, fileSize/10))
			rw.(http.Flusher).Flush()
		}
	})
	mux.HandleFunc("/short", func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Length", fmt.Sprint(fileSize))
		_, _ = rw.Write(make([]byte, fileSize/2))
	})
	web := httptest.NewServer(mux)
	t.Cleanup(web.Close)
	w.web = web.URL
	status := api.Status{Role: "primary", Name: "laptop",
		Bonds: []api.Bond{{ID: "b", Peer: "home", Subflows: []api.Subflow{
			{ID: 1, Device: "laptop", Kind: api.Direct, State: api.Up},
			{ID: 2, Device: "phone", Kind: api.Helped, State: api.Up},
		}}}}
	if socks {
		status.SOCKS = socksProxy(t)
	} else {
		proxy := httptest.NewServer(http.HandlerFunc(httpProxy))
		t.Cleanup(proxy.Close)
		status.HTTP = strings.TrimPrefix(proxy.URL, "http://")
	}
	serveStatus(t, func(why bool) api.Status {
		// The devices have carried more at each request.
		s, n := status, unit.Bytes(w.asked.Add(1))
		s.Bonds = []api.Bond{s.Bonds[0]}
		s.Bonds[0].Subflows = []api.Subflow{s.Bonds[0].Subflows[0], s.Bonds[0].Subflows[1]}
		s.Bonds[0].Subflows[0].RxBytes, s.Bonds[0].Subflows[1].RxBytes = 5000+n*1000, n*3000
		if why {
			s.Bonds[0].Decisions = []api.Decision{{T: time.Unix(0, 0), Subflow: 2, Reason: "delivers first"},
				{Reason: "waits"}}
		}
		return s
	})
	return w
}

func serveStatus(t *testing.T, describe func(bool) api.Status) {
	t.Helper()
	l, err := api.Listen(api.SocketPath("primary"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	role := serve.Role{Status: describe,
		Streams: func() []api.BondStream {
			return api.BondStreams("b1", "home", []api.Stream{{ID: 7, Dest: "web:80",
				AppInfo: api.AppInfo{App: "curl"}}})
		},
		Flows: func() []api.BondFlow {
			return api.BondFlows("b1", "home", []api.Flow{{ID: 7, AppInfo: api.AppInfo{App: "curl"}}, {ID: 8}})
		},
	}
	go func() { done <- serve.Run(ctx, l, role) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// httpProxy forwards plain requests.
func httpProxy(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodConnect {
		connectProxy(w, r)
		return
	}
	r.RequestURI = ""
	tr := &http.Transport{DisableKeepAlives: true}
	answer, err := tr.RoundTrip(r)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer answer.Body.Close()
	for k, v := range answer.Header {
		w.Header()[k] = v
	}
	w.WriteHeader(answer.StatusCode)
	_, _ = io.Copy(w, answer.Body)
}

// connectProxy carries a tunnel, or returns an error like package intercept.
func connectProxy(w http.ResponseWriter, r *http.Request) {
	to, err := net.Dial("tcp", r.Host)
	if err != nil {
		http.Error(w, "mpbond: "+r.Host+" cannot be reached: connection refused", http.StatusBadGateway)
		return
	}
	defer to.Close()
	app, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer app.Close()
	_, _ = io.WriteString(app, "HTTP/1.1 200 Connection established\r\n\r\n")
	go func() { _, _ = io.Copy(to, app) }()
	_, _ = io.Copy(app, to)
}

// TestGetRefused checks that users see the far end's error about a destination.
func TestGetRefused(t *testing.T) {
	newTestSite(t, false)
	at := porttest.FreeAddress(t)
	for _, url := range []string{"http://" + at + "/x", "https://" + at + "/x"} {
		code, _, errs := runProgram(t, "get", url)
		if want := at + " cannot be reached: connection refused"; code != cli.ExitNoConnection ||
			!strings.Contains(errs, want) || !strings.Contains(errs, "hint: check the address") {
			t.Errorf("%s: code %d, want %q: %s", url, code, want, errs)
		}
	}
}

// socksProxy is a minimal SOCKS5 proxy (RFC 1928) for names and IPv4 addresses.
func socksProxy(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	serve := func(c net.Conn) {
		defer c.Close()
		b := make([]byte, 300)
		if _, err := io.ReadFull(c, b[:3]); err != nil { // version, one method: none
			return
		}
		_, _ = c.Write([]byte{5, 0})
		if _, err := io.ReadFull(c, b[:5]); err != nil {
			return
		}
		host, n := b[5:5+4], 3 // an address, whose first byte was read
		if b[3] == 3 {
			host, n = b[5:5+b[4]], int(b[4])
		}
		name := func() string { return net.IP(append([]byte{b[4]}, host[:3]...)).String() }
		if b[3] == 3 {
			name = func() string { return string(host) }
		}
		if _, err := io.ReadFull(c, b[5:5+n+2]); err != nil {
			return
		}
		port := binary.BigEndian.Uint16(b[5+n:])
		to, err := net.Dial("tcp", net.JoinHostPort(name(), fmt.Sprint(port)))
		if err != nil {
			_, _ = c.Write([]byte{5, 5, 0, 1, 0, 0, 0, 0, 0, 0}) // refused
			return
		}
		defer to.Close()
		_, _ = c.Write([]byte{5, 0, 0, 1, 0, 0, 0, 0, 0, 0})
		go func() { _, _ = io.Copy(to, c) }()
		_, _ = io.Copy(c, to)
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go serve(c)
		}
	}()
	return l.Addr().String()
}

// listFiles lists the files in the working directory.
func (s *testSite) listFiles(t *testing.T) (names []string) {
	t.Helper()
	list, err := os.ReadDir(s.dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

func TestGet(t *testing.T) {
	for _, socks := range []bool{false, true} {
		t.Run(fmt.Sprintf("socks=%v", socks), func(t *testing.T) {
			w := newTestSite(t, socks)
			sum := fmt.Sprintf("%x", sha256.Sum256(make([]byte, fileSize)))
			code, out, errs := runProgram(t, "get", "--json", "--sha256", sum, w.web+"/file.bin")
			var res getResult
			if err := json.Unmarshal([]byte(out), &res); code != cli.ExitOK || err != nil {
				t.Fatalf("code %d, %v: %s%s", code, err, out, errs)
			}
			if res.Bytes != fileSize || res.SHA256 != sum || res.File != "file.bin" || res.RateBps <= 0 {
				t.Errorf("%+v", res)
			}
			if len(res.Devices) != 2 || res.Devices[0].Device != "phone" || res.Devices[0].Share != 0.75 ||
				res.Devices[1].Share != 0.25 {
				t.Errorf("devices %+v", res.Devices)
			}
			data, err := os.ReadFile("file.bin")
			if err != nil || !bytes.Equal(data, make([]byte, fileSize)) {
				t.Errorf("%d bytes, %v", len(data), err)
			}
			if names := w.listFiles(t); len(names) != 1 {
				t.Errorf("files %v", names)
			}
			// A second run replaces the file only if it is named.
			if code, _, errs := runProgram(t, "get", w.web+"/file.bin"); code != cli.ExitFailure ||
				!strings.Contains(errs, "already exists") {
				t.Errorf("second: code %d, %s", code, errs)
			}
			if code, _, errs := runProgram(t, "get", "-o", "file.bin", w.web+"/chunked"); code != cli.ExitOK ||
				!strings.Contains(errs, "phone") {
				t.Errorf("third: code %d, %s", code, errs)
			}
		})
	}
}

func TestGetToStream(t *testing.T) {
	w := newTestSite(t, false)
	code, out, errs := runProgram(t, "get", "-q", "-o", "-", w.web+"/chunked")
	if code != cli.ExitOK || len(out) != fileSize || errs != "" {
		t.Errorf("code %d, %d bytes, %s", code, len(out), errs)
	}
	if err := os.Symlink(os.DevNull, "null"); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := runProgram(t, "get", "-o", "null", w.web+"/file.bin"); code != cli.ExitOK {
		t.Errorf("code %d: %s", code, errs)
	}
	if st, err := os.Lstat("null"); err != nil || st.Mode()&os.ModeSymlink == 0 {
		t.Errorf("a device was replaced by a file: %v, %v", st, err)
	}
}

func TestGetFails(t *testing.T) {
	w := newTestSite(t, true)
	dead := porttest.FreeAddress(t)
	for _, c := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{w.web + "/none"}, cli.ExitFailure, "404"},
		{[]string{w.web + "/"}, cli.ExitUsage, "--output"},
		{[]string{w.web + "/short"}, cli.ExitIntegrity, "response is incomplete"},
		{[]string{"--sha256", strings.Repeat("0", 64), w.web + "/file.bin"}, cli.ExitIntegrity, "SHA-256"},
		{[]string{"http://" + dead + "/x"}, cli.ExitNoConnection, "mpbond status"},
		{[]string{"-o", "no/such/dir/x", w.web + "/file.bin"}, cli.ExitFailure, "no such"},
		{[]string{"-o", "/dev/full", w.web + "/file.bin"}, cli.ExitFailure, "no space"},
	} {
		if code, _, errs := runProgram(t, append([]string{"get"}, c.args...)...); code != c.code ||
			!strings.Contains(errs, c.text) {
			t.Errorf("%v: code %d, want %d and %q: %s", c.args, code, c.code, c.text, errs)
		}
	}
	if names := w.listFiles(t); len(names) != 0 {
		t.Errorf("left over: %v", names)
	}
}

func TestGetWithoutProxy(t *testing.T) {
	newHome(t)
	serveStatus(t, func(bool) api.Status { return api.Status{Role: "primary"} })
	if code, _, errs := runProgram(t, "get", "-o", "-", "http://example.org/x"); code != cli.ExitNoConnection ||
		!strings.Contains(errs, "no proxy") {
		t.Errorf("code %d, %s", code, errs)
	}
}

func TestStatusOfAPrimary(t *testing.T) {
	newTestSite(t, false)
	code, out, errs := runProgram(t, "status", "--why")
	if code != cli.ExitOK {
		t.Fatal(code, errs)
	}
	for _, want := range []string{"primary laptop", "HTTP proxy at 127.0.0.1:", "with home", "DEVICE", "phone",
		"helped", "phone: delivers first", "wait: waits"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	code, out, _ = runProgram(t, "status", "--json")
	var s api.Status
	if err := json.Unmarshal([]byte(out), &s); code != cli.ExitOK || err != nil || len(s.Bonds[0].Subflows) != 2 ||
		s.Bonds[0].Decisions != nil {
		t.Errorf("code %d, %v: %s", code, err, out)
	}
}

func TestStatusOfAHelper(t *testing.T) {
	var out bytes.Buffer
	printStatus(&out, api.Status{Role: "helper", Name: "phone", Helper: &api.HelperStatus{}})
	printStatus(&out, api.Status{Role: "helper", Helper: &api.HelperStatus{Primary: "laptop", Server: "h:1",
		Subflows: 1, BufferBytes: unit.KB, DownRateBps: 9700 * unit.Kbps, LastError: "gone"}})
	for _, want := range []string{"waiting for a primary",
		"relays for laptop to h:1 over 1 subflows: 9.7 Mbit/s down, 0 bit/s up", "1 KB", "gone"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}

func TestWatch(t *testing.T) {
	newTestSite(t, false)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	out := &lineLimiter{stop: cancel, most: 2}
	var errs bytes.Buffer
	began := time.Now()
	if code := mpbondProgram().Run(ctx, []string{"status", "--watch", "--json"}, out, &errs); code != cli.ExitOK ||
		out.n != 2 {
		t.Errorf("code %d, %d lines, %s", code, out.n, &errs)
	}
	if took := time.Since(began); took < watchInterval {
		t.Errorf("it asks again after %v", took)
	}
}

// lineLimiter counts lines and stops the writer after some.
type lineLimiter struct {
	n, most int
	stop    func()
}

func (l *lineLimiter) Write(p []byte) (int, error) {
	if l.n += bytes.Count(p, []byte("\n")); l.n == l.most {
		l.stop()
	}
	return len(p), nil
}

// TestShares checks that the bytes of subflows stay counted after they close.
func TestShares(t *testing.T) {
	at := func(paths ...api.Subflow) api.Status {
		return api.Status{Bonds: []api.Bond{{ID: "b", Subflows: paths}}}
	}
	now := time.Unix(0, 0)
	h := newShareCounter(at(api.Subflow{ID: 1, Device: "a", RxBytes: 1000}), now)
	h.addStatusBytes(at(api.Subflow{ID: 1, Device: "a", RxBytes: 1100}, api.Subflow{ID: 2, Device: "b", RxBytes: 50}),
		now.Add(time.Second))
	h.addStatusBytes(at(api.Subflow{ID: 2, Device: "b", RxBytes: 250, RxRate: 7}), now.Add(2*time.Second))
	h.addStatusBytes(at(api.Subflow{ID: 2, Device: "b", RxBytes: 250}, api.Subflow{ID: 3, Device: "a", RxBytes: 50}),
		now.Add(3*time.Second))
	got := h.listDeviceShares()
	if len(got) != 2 || got[0].Device != "b" || got[0].Bytes != 250 || got[1].Bytes != 150 || got[0].Share != 0.625 ||
		got[0].RateBps != 1600 {
		t.Errorf("%+v", got)
	}
}

func TestReachable(t *testing.T) {
	for in, want := range map[string]string{
		"127.0.0.1:1": "127.0.0.1:1", ":1": "localhost:1", "0.0.0.0:1": "localhost:1", "[::]:1": "localhost:1",
		"[::1]:1": "[::1]:1", "x": "x",
	} {
		if got := proxyDialAddress(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}
