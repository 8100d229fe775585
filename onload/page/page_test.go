// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"mpbond/link/tcp"
	"mpbond/onload/upload"
)

// TestArrive checks that two files of the same name both arrive, are done when the server confirms
// them, and leave nothing in the spool.
func TestArrive(t *testing.T) {
	at := newTestServer(t)
	held := make(chan struct{})
	release := sync.OnceFunc(func() { close(held) })
	t.Cleanup(release)
	at.set(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut {
			<-held
		}
		return false
	})
	b := startPage(t, at, nil)
	b.uploadFile("a.jpg", []byte("one"))
	b.uploadFile(`C:\photos\a.jpg`, bytes.Repeat([]byte("two"), 100_000))
	b.uploadFile("empty", nil)
	b.waitState("it is being sent",
		func(v pageState) bool { return strings.Contains(formatStates(v), "a.jpg sending") })
	v := b.waitState("it is listed", func(v pageState) bool { return len(v.Files) > 0 })
	if status, _ := b.ask("DELETE", "/files/"+v.Files[0].ID, nil); status != http.StatusConflict {
		t.Errorf("a file being sent was removed: %d", status)
	}
	if v := b.waitState("all are there",
		func(v pageState) bool { return len(v.Files) == 3 }); strings.Contains(formatStates(v), "done") {
		t.Errorf("done before the server confirmed it: %s", formatStates(v))
	}
	release()
	v = b.expectStates("a.jpg done, a (2).jpg done, empty done")
	if at.has("/photos/a.jpg") != "one" || len(at.has("/photos/a (2).jpg")) != 300_000 || v.Room != 1<<20 ||
		v.To != strings.TrimPrefix(at.URL, "http://") {
		t.Errorf("%d bytes, %+v", len(at.has("/photos/a (2).jpg")), v)
	}
	if left := spooledFiles(t, b.page.cfg.Dir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	if status, _ := b.ask("DELETE", "/files/"+v.Files[0].ID, nil); status != http.StatusNoContent {
		t.Error(status)
	}
	b.expectStates("a (2).jpg done, empty done")
	if s := b.page.Status(); s != (Status{Done: 2}) {
		t.Errorf("%+v", s)
	}
}

// TestFailed checks that a refused file is reported and kept, and is sent again on request.
func TestFailed(t *testing.T) {
	at := newTestServer(t)
	at.set(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut {
			w.WriteHeader(http.StatusInsufficientStorage)
		}
		return r.Method == http.MethodPut
	})
	b := startPage(t, at, nil)
	b.uploadFile("a.jpg", []byte("one"))
	v := b.expectStates("a.jpg failed")
	if !strings.Contains(v.Files[0].Note, "507") || v.Room != 1<<20-3 {
		t.Errorf("%+v", v)
	}
	at.set(nil)
	if status, text := b.ask("POST", "/files/"+v.Files[0].ID+"/again", nil); status != http.StatusNoContent {
		t.Fatal(status, text)
	}
	b.expectStates("a.jpg done")
	if at.has("/photos/a.jpg") != "one" {
		t.Error(at.files)
	}
}

// TestKept checks that existing files of the server are not replaced.
func TestKept(t *testing.T) {
	at := newTestServer(t)
	at.files["/photos/a.jpg"], at.files["/photos/a (2).jpg"] = "another", "another"
	b := startPage(t, at, nil)
	b.uploadFile("a.jpg", []byte("one"))
	b.expectStates("a (3).jpg done")
	if at.has("/photos/a.jpg") != "another" || at.has("/photos/a (2).jpg") != "another" ||
		at.has("/photos/a (3).jpg") != "one" {
		t.Error(at.files)
	}
}

// TestRestart checks that the next run sends complete files of the spool, even without readable
// metadata, and removes incomplete ones.
func TestRestart(t *testing.T) {
	at := newTestServer(t)
	asked := make(chan struct{}, 10)
	at.set(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPut {
			_, _ = io.Copy(io.Discard, r.Body) // so that its end is noticed
			asked <- struct{}{}
			<-r.Context().Done()
		}
		return r.Method == http.MethodPut
	})
	b := startPage(t, at, nil)
	dir := b.page.cfg.Dir
	b.uploadFile("a.jpg", []byte("one"))
	<-asked
	b.end()
	for name, text := range map[string]string{"X.data": "half",
		"Y.json": `{"id":"Y","name":"y","size":9}`, "Y.json.next": "{",
		"Z.json": `{"id":"Z","name":"../z","size":1}`, "Z.data": "z", "E.json": "", "E.data": "photo",
		"S.json": `{"id":"S","name":"s","size":9}`, "S.data": "short"} {
		if err := writeFile(dir, name, text); err != nil {
			t.Fatal(err)
		}
	}
	at.set(nil)
	b = startPage(t, at, func(c *Config) { c.Dir = dir })
	v := b.waitState("all is sent or failed",
		func(v pageState) bool { return len(v.Files) == 4 && strings.Count(formatStates(v), " done") == 3 })
	if left := spooledFiles(t, dir); len(left) != 2 || left[0] != "S.data" || at.has("/photos/a.jpg") != "one" ||
		at.has("/photos/file") != "photo" || at.has("/photos/z") != "z" ||
		len(at.files) != 3 || !strings.Contains(formatStates(v), "s failed") {
		t.Errorf("left: %v; %v", left, at.files)
	}
}

// TestKilled checks that files that the server has stored without a confirmation before the helper
// was killed are there once after the next run; for forms, which cannot be checked, a possible
// duplicate is reported.
func TestKilled(t *testing.T) {
	for _, method := range []string{upload.Put, upload.Post} {
		t.Run(method, func(t *testing.T) {
			at := newTestServer(t)
			asked := make(chan struct{}, 10)
			at.set(func(_ http.ResponseWriter, r *http.Request) bool {
				if r.URL.Query().Has("taken") || !strings.EqualFold(r.Method, method) {
					return false
				}
				q := r.Clone(r.Context()) // stored, and the response is lost
				q.URL.RawQuery = "taken"
				at.ServeHTTP(httptest.NewRecorder(), q)
				asked <- struct{}{}
				<-r.Context().Done()
				return true
			})
			to := at.URL + "/photos/"
			b := startPage(t, at, func(c *Config) { c.Target = upload.Target{Method: method, URL: to, Field: "f"} })
			dir := b.page.cfg.Dir
			b.uploadFile("a.jpg", []byte("one"))
			<-asked
			b.end()
			at.set(nil)
			b = startPage(t, at, func(c *Config) {
				c.Dir, c.Target = dir, upload.Target{Method: method, URL: to, Field: "f"}
			})
			v := b.expectStates("a.jpg done")
			if left := spooledFiles(t, dir); len(at.files) != 1 || len(left) != 0 {
				t.Errorf("left %q; there: %v", left, at.files)
			}
			if twice := strings.Contains(v.Files[0].Note, "twice"); twice != (method == upload.Post) {
				t.Errorf("%+v", v.Files[0])
			}
		})
	}
}

// TestConfirmed checks that confirmed files are not sent again, even if the helper is killed before
// they leave the spool, or if a browser sends them again after a lost response.
func TestConfirmed(t *testing.T) {
	at := newTestServer(t)
	dir, kept, held := "", t.TempDir(), make(chan struct{}, 10)
	link := func(from, to string) {
		for _, name := range spooledFiles(t, from) {
			if err := os.Link(filepath.Join(from, name), filepath.Join(to, name)); err != nil &&
				!errors.Is(err, fs.ErrExist) {
				t.Error(err)
			}
		}
	}
	b := startPage(t, at, nil)
	dir = b.page.cfg.Dir
	at.set(func(_ http.ResponseWriter, r *http.Request) bool {
		switch {
		case r.Method != http.MethodPut:
			return false
		case strings.HasSuffix(r.URL.Path, "a.jpg"):
			link(dir, kept)
			return false
		}
		_, _ = io.Copy(io.Discard, r.Body)
		held <- struct{}{}
		<-r.Context().Done()
		return true
	})
	if err := b.page.reserveSpace(0); err != nil { // so that both are in one batch
		t.Fatal(err)
	}
	for range 2 {
		if status, text := b.ask("POST", "/files?name=z.jpg&key=1",
			strings.NewReader("two")); status != http.StatusNoContent {
			t.Fatal(status, text)
		}
	}
	b.uploadFile("a.jpg", []byte("one"))
	b.page.finishReceive(0, nil)
	<-held
	b.expectStates("z.jpg sending, a.jpg done")
	b.end()
	link(kept, dir)
	at.set(nil)
	b = startPage(t, at, func(c *Config) { c.Dir = dir })
	if status, text := b.ask("POST", "/files?name=z.jpg&key=1",
		strings.NewReader("two")); status != http.StatusNoContent {
		t.Fatal(status, text)
	}
	b.waitState("both done", func(v pageState) bool { // same time stamp: any order
		s := formatStates(v)
		return s == "z.jpg done, a.jpg done" || s == "a.jpg done, z.jpg done"
	})
	if at.puts != 2 || len(at.files) != 2 || len(spooledFiles(t, dir)) != 0 {
		t.Errorf("taken %d times: %v; left: %q", at.puts, at.files, spooledFiles(t, dir))
	}
	b.end()
	if text, err := os.ReadFile(dir + ".jsonl"); err != nil || len(text) > 0 {
		t.Errorf("the journal has %q, %v", text, err)
	}
}

// TestBroken checks that incomplete, slow and too large files are reported and leave nothing.
func TestBroken(t *testing.T) {
	at := newTestServer(t)
	b := startPage(t, at,
		func(c *Config) { c.times = times{readTimeout: 100 * time.Millisecond, gatherTime: time.Second} })
	if status, text := b.ask("POST", "/files?name=a",
		bytes.NewReader(make([]byte, 1<<20+1))); status != http.StatusInsufficientStorage ||
		!strings.Contains(text, "no space") {
		t.Error(status, text)
	}
	for _, slow := range []bool{true, false} {
		c, err := net.Dial("tcp", strings.TrimPrefix(b.base, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(c, "POST /files?name=a HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"+
			"Content-Length: 100\r\n\r\nhalf", b.token)
		if !slow {
			_ = c.(*net.TCPConn).CloseWrite()
		}
		_ = c.SetDeadline(time.Now().Add(testTimeout))
		a, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || a.StatusCode != http.StatusBadRequest || !a.Close {
			t.Errorf("%+v, %v", a, err)
		}
		c.Close()
	}
	if v := b.waitState("nothing is coming", func(v pageState) bool { return v.Room == 1<<20 }); len(v.Files) != 0 ||
		len(spooledFiles(t, b.page.cfg.Dir)) != 0 {
		t.Errorf("%+v", v)
	}
}

// TestBounds checks the limits of files, listeners and sessions.
func TestBounds(t *testing.T) {
	p := startPage(t, newTestServer(t), nil).page
	for range maxReceiving {
		if err := p.reserveSpace(1); err != nil {
			t.Fatal(err)
		}
	}
	if p.reserveSpace(1) == nil {
		t.Error("a file over the limit was received")
	}
	for range maxListed + 9 {
		p.mu.Lock()
		p.items = append(p.items, &item{State: Done})
		p.trimDoneFiles()
		p.mu.Unlock()
	}
	if len(p.items) != maxListed {
		t.Error(len(p.items))
	}
	p.listeners = maxListeners
	s, now := newSessions("A"), time.Now()
	for n := range maxSessions + 1 {
		s.lastUsed[fmt.Sprint(n)] = now.Add(time.Duration(n) * time.Second)
	}
	if _, e := s.loginWithCode(&net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}, "a", now.Add(time.Hour)); e != loginOK ||
		len(s.lastUsed) != maxSessions || s.checkToken("0", now) {
		t.Error(e, len(s.lastUsed))
	}
	if s.checkToken(fmt.Sprint(maxSessions), now.Add(sessionTime+2*time.Hour)) {
		t.Error("the session did not expire")
	}
}

// TestGuard checks access control. The code can be tried five times a minute.
func TestGuard(t *testing.T) {
	b := startPage(t, newTestServer(t), nil)
	b.page.listeners = maxListeners
	bearer := []string{"Authorization", "Bearer " + b.token}
	for _, c := range []struct {
		method, path, host, body string
		headers                  []string
		want                     int
	}{
		{"GET", "/", "localhost:7607", "", nil, 200},
		{"GET", "/page.js", "192.168.1.7:7607", "", nil, 200},
		{"GET", "/", "PHONE.local:7607", "", nil, 200},
		{"GET", "/", "[fe80::1]:7607", "", nil, 200},
		{"GET", "/", "evil.example", "", nil, 421}, // DNS rebinding
		{"GET", "/events", "evil.example", "", bearer, 421},
		{"GET", "/", "8.8.8.8", "", nil, 421},
		{"GET", "/", "phone.local.evil.example", "", nil, 421},
		{"GET", "/../page.go", "localhost", "", nil, 401},
		{"GET", "/page/index.html", "localhost", "", bearer, 404},
		{"POST", "/", "localhost", "", bearer, 404},
		{"PUT", "/files", "localhost", "x", bearer, 404},
		{"GET", "/events", "localhost", "", nil, 401},
		{"POST", "/files?name=a", "localhost", "x", nil, 401},
		{"POST", "/files?name=a", "localhost", "x", []string{"Authorization", "Bearer nobody"}, 401},
		{"POST", "/files?name=a", "localhost", "x", []string{"Authorization", "Bearer "}, 401},
		{"POST", "/files?name=a", "localhost:1", "x",
			append([]string{"Origin", "http://evil.example"}, bearer...), 403},
		{"POST", "/files?name=a", "localhost:1", "x", append([]string{"Origin", "http://localhost:2"}, bearer...), 403},
		{"DELETE", "/files/a", "localhost", "", append([]string{"Sec-Fetch-Site", "cross-site"}, bearer...), 403},
		{"POST", "/enter", "localhost:1", `{"code":"K7QF3M2A"}`, []string{"Origin", "http://evil.example"}, 403},
		{"DELETE", "/files/a", "localhost", "", bearer, 404},
		{"POST", "/files/a/again", "localhost", "", bearer, 404},
		{"POST", "/files", "localhost", "x", bearer, 400},
		{"GET", "/events", "localhost", "", bearer, 429}, // too many
		{"POST", "/enter", "localhost", "nothing", nil, 400},
		{"POST", "/enter", "localhost", `{"code":"` + strings.Repeat("K", maxLoginBody) + `"}`, nil, 400},
		{"POST", "/enter", "localhost", `{"code":""}`, nil, 403},
		{"POST", "/enter", "localhost", `{"code":"K7QF-3M2B"}`, nil, 403},
		{"POST", "/enter", "localhost:1", `{"code":"k7qf 3m2a"}`, []string{"Origin", "http://localhost:1"}, 200},
		{"POST", "/enter", "localhost", `{"code":"x"}`, nil, 403},
		{"POST", "/enter", "localhost", `{"code":"K7QF-3M2A"}`, nil, 429}, // startPage has used one try
	} {
		q, err := http.NewRequest(c.method, b.base+c.path, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		q.Host = c.host
		for n := 0; n < len(c.headers); n += 2 {
			q.Header.Set(c.headers[n], c.headers[n+1])
		}
		a, err := http.DefaultTransport.RoundTrip(q)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(a.Body)
		a.Body.Close()
		if a.StatusCode != c.want {
			t.Errorf("%s %s of %s with %v: %d: %s", c.method, c.path, c.host, c.headers, a.StatusCode, text)
		}
		for name, want := range map[string]string{"Content-Security-Policy": contentPolicy,
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Resource-Policy": "same-origin", "Cache-Control": "no-store",
			"Access-Control-Allow-Origin": ""} {
			if got := a.Header.Get(name); got != want {
				t.Errorf("%s %s: %s: %q", c.method, c.path, name, got)
			}
		}
	}
	c, err := net.Dial("tcp", strings.TrimPrefix(b.base, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "POST /files?name=a HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n"+
		"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", b.token)
	if a, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || a.StatusCode != http.StatusLengthRequired {
		t.Errorf("%+v, %v", a, err)
	}
}

// TestLine checks that a forbidden line carries nothing and aborts its connections, and that the
// other line continues.
func TestLine(t *testing.T) {
	at := newTestServer(t)
	var refused error
	l := NewLine("own", tcp.Options{}, func() error { return refused })
	held, begun := make(chan struct{}), make(chan struct{})
	at.set(func(_ http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost {
			close(begun)
			<-held
		}
		return false
	})
	ended := make(chan error)
	ask := func() error {
		q, err := http.NewRequest(http.MethodPost, at.URL+"/x", nil)
		if err != nil {
			return err
		}
		a, err := l.Device().Transport.RoundTrip(q)
		if err == nil {
			a.Body.Close()
		}
		return err
	}
	go func() { ended <- ask() }()
	<-begun
	refused = fmt.Errorf("used up")
	l.abortForbidden()
	if err := <-ended; err == nil {
		t.Error("it went on")
	}
	close(held)
	if err := ask(); err == nil || !strings.Contains(err.Error(), "used up") {
		t.Error(err)
	}
	if len(l.openConns) != 0 {
		t.Error(l.openConns)
	}
	b := startPage(t, at, func(c *Config) { c.Devices[1] = l.Device() })
	b.uploadFile("a.jpg", []byte("one"))
	b.uploadFile("b.jpg", []byte("two"))
	b.expectStates("a.jpg done, b.jpg done")
}

// TestNew checks that an invalid configuration is refused.
func TestNew(t *testing.T) {
	for _, to := range []upload.Target{{Method: upload.Put, URL: "http://h/x"}, {Method: upload.Put, URL: "h"},
		{Method: upload.S3, URL: "http://h/"}} {
		if _, err := New(Config{Target: to, Devices: make([]upload.Device, 1), Dir: t.TempDir()}); err == nil {
			t.Errorf("%+v", to)
		}
	}
}

func TestSafeName(t *testing.T) {
	for in, want := range map[string]string{
		"IMG 1.jpg": "IMG 1.jpg", "../../etc/passwd": "passwd", `a\b.jpg`: "b.jpg", "a\x00\x1b\u202e.jpg": "a___.jpg",
		"..": "file", "/": "file", " .x. ": "x",
		"\xff.jpg": "_.jpg", "Größe.jpg": "Größe.jpg", strings.Repeat("ä", 200) + ".jpeg": strings.Repeat("ä",
			97) + ".jpeg", "." + strings.Repeat("x", 300): strings.Repeat("x", 200),
	} {
		got := sanitizeFileName(in)
		if got != want || sanitizeFileName(got) != got || len(got) > maxName {
			t.Errorf("%q: %q instead of %q", in, got, want)
		}
	}
}

// TestNear checks that only the local network gets access.
func TestNear(t *testing.T) {
	for a, want := range map[string]bool{"127.0.0.1": true, "192.168.1.2": true, "10.1.2.3": true,
		"::ffff:10.1.2.3": true, "fe80::1%lo": true, "fd00::1": true,
		"8.8.8.8": false, "100.64.0.1": false, "2001:db8::1": false} {
		ip := netip.MustParseAddr(a)
		if got := isLocalAddr(net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, 1))); got != want {
			t.Errorf("%s: %v", a, got)
		}
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		n, ok := a.(*net.IPNet)
		if !ok || n.IP.IsLoopback() {
			continue
		}
		list, _ := net.Interfaces()
		found := false
		for _, i := range list {
			found = found || isInterfaceAddr(i.Name, &net.TCPAddr{IP: n.IP})
		}
		if !found {
			t.Errorf("%v is of no interface", a)
		}
	}
	if isInterfaceAddr("none0", &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}) ||
		isInterfaceAddr("lo", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}) {
		t.Error("address assigned to the wrong interface")
	}
}

// TestAway checks that connections over the uplink are refused.
func TestAway(t *testing.T) {
	name, ip := "", net.IP(nil)
	list, _ := net.Interfaces()
	for _, i := range list {
		addrs, _ := i.Addrs()
		for _, a := range addrs {
			if n, ok := a.(*net.IPNet); ok && n.IP.IsPrivate() {
				name, ip = i.Name, n.IP
			}
		}
	}
	if ip == nil {
		t.Skip("no interface with a private address here")
	}
	for _, away := range []string{"", name} {
		l, err := tcp.Listen(t.Context(), net.JoinHostPort(ip.String(), "0"), tcp.Options{})
		if err != nil {
			t.Fatal(err)
		}
		in := make(chan net.Conn)
		go func() {
			defer close(in)
			d := &localListener{listener: l, limit: tcp.NewAdmissionLimit(maxOpen, maxFromOne,
				maxPerMinute), uplink: away}
			if c, err := d.Accept(); err == nil {
				in <- c
			}
		}()
		gone := make(chan struct{})
		go func() { // it may be reset before Dial returns
			defer close(gone)
			if c, err := net.Dial("tcp", l.Addr().String()); err == nil {
				_, _ = c.Read(make([]byte, 1))
				c.Close()
			}
		}()
		select {
		case n := <-in:
			if n.Close(); away != "" {
				t.Error("connection over the uplink accepted")
			}
		case <-gone:
			if away == "" {
				t.Error("connection refused")
			}
		}
		<-gone
		l.Close()
		for n := range in { // so that Accept returns
			n.Close()
		}
	}
}

// TestFiles checks that the page complies with its Content-Security-Policy and that all its files
// exist.
func TestFiles(t *testing.T) {
	refers := regexp.MustCompile(`(?:from|src=|href=)\s*"(\./)?([a-z]+\.(?:js|css|svg))"`)
	inline := regexp.MustCompile(
		`<script>|<style|\sstyle=|\son[a-z]+="|javascript:|innerHTML|outerHTML|insertAdjacentHTML|` +
			`document\.write|\beval\(|https?://[^"]*\.js`)
	asked := map[string]bool{"page/index.html": true}
	all, _ := fs.Glob(embedded, "page/*")
	for _, name := range all {
		body, err := embedded.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if m := inline.Find(body); m != nil || mediaTypes[path.Ext(name)] == "" {
			t.Errorf("%s has %q", name, m)
		}
		for _, m := range refers.FindAllSubmatch(body, -1) {
			asked["page/"+string(m[2])] = true
		}
	}
	if len(asked) != len(all) || strings.Contains(contentPolicy, "unsafe") {
		t.Errorf("%v of %v", asked, all)
	}
}
