// SPDX-License-Identifier: Apache-2.0

package intercept

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"mpbond/link/wire"
)

// startOrigin starts a web server that echoes what reaches it.
func startOrigin(t testing.TB) *httptest.Server {
	mux := http.NewServeMux()
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Date"] = nil
		w.Header()["Content-Type"] = nil
		w.Header().Set("X-Url", r.URL.RequestURI())
		w.Header().Set("X-Seen", fmt.Sprint(r.Host, " ", r.Header))
		io.Copy(w, r.Body)
	})
	mux.HandleFunc("/sum", func(w http.ResponseWriter, r *http.Request) {
		h := sha256.New()
		io.Copy(h, r.Body)
		fmt.Fprintf(w, "%x", h.Sum(nil))
	})
	mux.HandleFunc("/cut", func(w http.ResponseWriter, r *http.Request) {
		c, buf, _ := w.(http.Hijacker).Hijack()
		buf.WriteString("HTTP/1.0 200 OK\r\n\r\npart of the")
		buf.Flush()
		c.(interface{ SetLinger(int) error }).SetLinger(0)
		io.ReadAll(io.LimitReader(buf, 1)) // until the part was read
		c.Close()
	})
	mux.HandleFunc("/hints", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Link", "</style.css>; rel=preload")
		w.WriteHeader(http.StatusEarlyHints)
		io.WriteString(w, "done")
	})
	mux.HandleFunc("/stream", func(w http.ResponseWriter, r *http.Request) {
		b := bufio.NewReader(r.Body)
		http.NewResponseController(w).EnableFullDuplex()
		for {
			line, err := b.ReadString('\n')
			if err != nil {
				return
			}
			io.WriteString(w, strings.ToUpper(line))
			http.NewResponseController(w).Flush()
		}
	})
	mux.HandleFunc("/upgrade", func(w http.ResponseWriter, r *http.Request) {
		c, buf, _ := w.(http.Hijacker).Hijack()
		defer c.Close()
		fmt.Fprintf(buf, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n",
			r.Header.Get("Upgrade"))
		buf.Flush()
		b, _ := io.ReadAll(buf)
		c.Write(bytes.ToUpper(b))
	})
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func webClient(t testing.TB, proxy string) *http.Client {
	tr := &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: proxy}), DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

func TestHTTPPlain(t *testing.T) {
	o := startOrigin(t)
	bond := &fakeBond{at: map[string]string{"web.test:80": o.Listener.Addr().String()}}
	_, proxy := startProxy(t, Config{Dialer: bond})
	c := webClient(t, proxy)

	for range 3 { // keep-alive on both sides
		req, _ := http.NewRequest("POST", "http://web.test/echo/../echo?a=1;b&c=%zz", strings.NewReader("hello"))
		req.URL.Path = "/echo"
		req.Header = http.Header{
			"X-Forwarded-For": {"mine"}, "Proxy-Authorization": {"secret"}, "Connection": {"X-Hop"},
			"X-Hop": {"1"}, "User-Agent": {""},
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if string(b) != "hello" || resp.StatusCode != 200 {
			t.Errorf("status %d, body %q", resp.StatusCode, b)
		}
		if got := resp.Header.Get("X-Url"); got != "/echo?a=1;b&c=%zz" {
			t.Errorf("the query arrived as %q", got)
		}
		if got, want := resp.Header.Get("X-Seen"),
			"web.test map[Content-Length:[5] X-Forwarded-For:[mine]]"; got != want {
			t.Errorf("the origin saw %s, want %s", got, want)
		}
		if resp.Header["Date"] != nil || resp.Header["Content-Type"] != nil {
			t.Errorf("headers were added: %v", resp.Header)
		}
	}
	if len(bond.dialed) != 1 {
		t.Errorf("streams opened: %v, want one for three requests", bond.dialed)
	}
}

func TestHTTPErrors(t *testing.T) {
	bond := &fakeBond{refuse: map[string]wire.Code{
		"refused.test:80": wire.CodeConnRefused, "private.test:80": wire.CodeForbidden,
		"slow.test:80": wire.CodeTimeout, "refused.test:443": wire.CodeConnRefused,
	}}
	_, proxy := startProxy(t, Config{Dialer: bond, WaitOpen: true})
	for _, tc := range []struct {
		request string
		status  int
		text    string
	}{
		{"GET http://refused.test/ HTTP/1.1\r\nHost: refused.test\r\n\r\n", 502,
			"refused.test cannot be reached: the server says no"},
		{"GET http://private.test/ HTTP/1.1\r\nHost: private.test\r\n\r\n", 403, "private.test"},
		{"GET http://slow.test/ HTTP/1.1\r\nHost: slow.test\r\n\r\n", 504, "slow.test"},
		{"POST http://refused.test/ HTTP/1.1\r\nHost: refused.test\r\nContent-Length: 3\r\n\r\nabc", 502,
			"refused.test"},
		{"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "this is a proxy"},
		{"GET ftp://x/ HTTP/1.1\r\nHost: x\r\n\r\n", 501, "ftp"},
		{"CONNECT refused.test:443 HTTP/1.1\r\nHost: refused.test:443\r\n\r\n", 502,
			"refused.test:443 cannot be reached"},
		{"CONNECT refused.test HTTP/1.1\r\nHost: refused.test\r\n\r\n", 400, "host:port"},
		{"CONNECT refused.test:99999 HTTP/1.1\r\nHost: x\r\n\r\n", 400, "not a port"},
		{"CONNECT refused.test:0 HTTP/1.1\r\nHost: x\r\n\r\n", 400, "port 0"},
	} {
		c := dialTCP(t, proxy)
		io.WriteString(c, tc.request)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Errorf("%q: %v", tc.request, err)
			continue
		}
		b, _ := io.ReadAll(resp.Body)
		if resp.StatusCode != tc.status || !strings.Contains(string(b), tc.text) {
			t.Errorf("%q: %d %q, want %d and %q", tc.request, resp.StatusCode, b, tc.status, tc.text)
		}
		c.Close()
	}
}

// TestHTTPCutAnswer checks that a response without a length that breaks off does not look complete
// to an app that reads until the end.
func TestHTTPCutAnswer(t *testing.T) {
	o := startOrigin(t)
	bond := &fakeBond{at: map[string]string{"web.test:80": o.Listener.Addr().String()}}
	_, proxy := startProxy(t, Config{Dialer: bond})
	c := dialTCP(t, proxy)
	io.WriteString(c, "POST http://web.test/cut HTTP/1.0\r\nContent-Length: 1\r\n\r\n")
	got := make([]byte, 0, 4096)
	for !strings.HasSuffix(string(got), "part of the") {
		n, err := c.Read(got[len(got):cap(got)])
		if err != nil {
			t.Fatalf("after %q: %v", got, err)
		}
		got = got[:len(got)+n]
	}
	io.WriteString(c, "x")
	if _, err := io.ReadAll(c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the app saw %v, want a reset", err)
	}
}

func TestHTTPStreaming(t *testing.T) {
	o := startOrigin(t)
	bond := &fakeBond{at: map[string]string{"web.test:80": o.Listener.Addr().String()}}
	_, proxy := startProxy(t, Config{Dialer: bond})
	c := webClient(t, proxy)
	r, w := io.Pipe()
	go io.WriteString(w, "one\n")
	resp, err := c.Post("http://web.test/stream", "text/plain", r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b := bufio.NewReader(resp.Body)
	for _, want := range []string{"ONE\n", "TWO\n", "THREE\n"} {
		if line, err := b.ReadString('\n'); line != want {
			t.Fatalf("read %q, %v; want %q while the request goes on", line, err, want)
		}
		if want != "THREE\n" {
			fmt.Fprintf(w, "%s\n", map[string]string{"ONE\n": "two", "TWO\n": "three"}[want])
		}
	}
	w.Close()
}

func TestHTTPUpgrade(t *testing.T) {
	o := startOrigin(t)
	bond := &fakeBond{at: map[string]string{"web.test:80": o.Listener.Addr().String()}}
	_, proxy := startProxy(t, Config{Dialer: bond})
	c := dialTCP(t, proxy)
	io.WriteString(c, "GET http://web.test/upgrade HTTP/1.1\r\nHost: web.test\r\nConnection: "+
		"Upgrade\r\nUpgrade: websocket\r\n\r\n")
	b := bufio.NewReader(c)
	resp, err := http.ReadResponse(b, nil)
	if err != nil || resp.StatusCode != 101 || resp.Header.Get("Upgrade") != "websocket" {
		t.Fatalf("%v, %v", resp, err)
	}
	io.WriteString(c, "frames")
	c.CloseWrite()
	if got, err := io.ReadAll(b); string(got) != "FRAMES" || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
}

func TestConnectEarlyDataAndHalfClose(t *testing.T) {
	bond := &fakeBond{at: map[string]string{"upper.test:9": tcpServer(t, echoAtEnd)}}
	_, proxy := startProxy(t, Config{Dialer: bond})
	c := dialTCP(t, proxy)
	io.WriteString(c, "CONNECT upper.test:9 HTTP/1.1\r\nHost: upper.test:9\r\n\r\nat once")
	b := bufio.NewReader(c)
	resp, err := http.ReadResponse(b, &http.Request{Method: "CONNECT"})
	if err != nil || resp.StatusCode != 200 {
		t.Fatalf("%v, %v", resp, err)
	}
	io.WriteString(c, ", and later")
	c.CloseWrite()
	if got, err := io.ReadAll(b); string(got) != "AT ONCE, AND LATER" || err != nil {
		t.Errorf("read %q, %v", got, err)
	}
}

// anyFailure stands for curl's exit code, which depends on when it sees the reset.
const anyFailure = -1

// TestCurl uses curl as the unmodified app.
func TestCurl(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Skip("curl is not installed")
	}
	o := startOrigin(t)
	secure := httptest.NewUnstartedServer(o.Config.Handler)
	secure.TLS = &tls.Config{}
	secure.StartTLS()
	t.Cleanup(secure.Close)
	big := filepath.Join(t.TempDir(), "big")
	data := bytes.Repeat([]byte("0123456789abcdef"), 3<<16)
	if err := os.WriteFile(big, data, 0o600); err != nil {
		t.Fatal(err)
	}
	sum := fmt.Sprintf("%x", sha256.Sum256(data))
	_, port, _ := net.SplitHostPort(secure.Listener.Addr().String())
	bond := &fakeBond{
		at: map[string]string{
			"web.test:80": o.Listener.Addr().String(), "web.test:443": "127.0.0.1:" + port,
			"198.51.100.7:80": o.Listener.Addr().String(), "[2001:db8::7]:80": o.Listener.Addr().String(),
		},
		refuse: map[string]wire.Code{"refused.test:80": wire.CodeConnRefused},
	}
	_, proxy := startProxy(t, Config{Dialer: bond})
	socks := []string{"--socks5-hostname", proxy}
	web := []string{"-x", "http://" + proxy}
	for _, tc := range []struct {
		name string
		via  []string
		args []string
		want string
		code int
	}{
		{"socks get", socks, []string{"http://web.test/echo", "-d", "hi"}, "hi", 0},
		{"socks https", socks, []string{"-k", "https://web.test/echo", "-d", "hi"}, "hi", 0},
		{"socks upload", socks, []string{"http://web.test/sum", "-T", big}, sum, 0},
		{"socks IPv4", socks, []string{"http://198.51.100.7/echo", "-d", "4"}, "4", 0},
		{"socks IPv6", socks, []string{"-g", "http://[2001:db8::7]/echo", "-d", "6"}, "6", 0},
		{"socks refused", socks, []string{"http://refused.test/"}, "", anyFailure},
		{"proxy get", web, []string{"http://web.test/echo", "-d", "hi"}, "hi", 0},
		{"proxy two requests", web, []string{"http://web.test/echo", "-d", "x", "http://web.test/echo"}, "xx", 0},
		{"proxy CONNECT https", web, []string{"-k", "https://web.test/echo", "-d", "hi"}, "hi", 0},
		{"proxy upload with 100-continue", web, []string{"http://web.test/sum", "-T", big, "-H",
			"Expect: 100-continue"}, sum, 0},
		{"proxy upload https", web, []string{"-k", "https://web.test/sum", "-T", big}, sum, 0},
		{"proxy early hints", web, []string{"http://web.test/hints"}, "done", 0},
		{"proxy refused", web, []string{"-f", "http://refused.test/"}, "", 22},
	} {
		t.Run(tc.name, func(t *testing.T) {
			args := append([]string{"-sS", "--max-time", "60", "--noproxy", ""}, append(tc.via, tc.args...)...)
			out, err := exec.Command("curl", args...).Output()
			code := 0
			var ee *exec.ExitError
			if errors.As(err, &ee) {
				code = ee.ExitCode()
				t.Logf("curl: %s", ee.Stderr)
			}
			if string(out) != tc.want || code != tc.code && (tc.code != anyFailure || code == 0) {
				t.Errorf("curl %v: %q, exit code %d; want %q, %d", args, out, code, tc.want, tc.code)
			}
		})
	}
}

// FuzzConnect checks that the target of a CONNECT is refused, or is a plain host and port.
func FuzzConnect(f *testing.F) {
	for _, s := range []string{"example.org:443", "[2001:db8::1]:80", "[fe80::1%eth0]:80", "1.2.3.4:", "a b:1", ":1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, target string) {
		dest, err := connectTarget(target)
		if err != nil {
			return
		}
		host, port, err := net.SplitHostPort(dest)
		if n, e := strconv.ParseUint(port, 10, 16); err != nil || e != nil || n == 0 || host == "" ||
			len(host) > 255 || strings.ContainsAny(host, " \t\r\n\x00/@?#%[]\\") {
			t.Errorf("%q becomes %q", target, dest)
		}
	})
}
