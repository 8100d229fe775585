// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"

	"mpbond/base/fault"
)

// requestLog is a web server that records requests and redirects /away to another host.
type requestLog struct {
	*httptest.Server
	mu   sync.Mutex
	seen []http.Header
	away string
}

func newRequestLog(t *testing.T, secure bool) *requestLog {
	a := &requestLog{}
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		a.seen = append(a.seen, r.Header.Clone())
		a.mu.Unlock()
		if r.URL.Path == "/away" {
			http.Redirect(w, r, a.away+"/file", http.StatusFound)
			return
		}
		w.Header().Set("Content-Length", "5")
		_, _ = w.Write([]byte("hello"))
	})
	if a.Server = httptest.NewUnstartedServer(h); secure {
		a.StartTLS()
	} else {
		a.Start()
	}
	t.Cleanup(a.Close)
	return a
}

// with returns how many requests had a header that contains a text.
func (a *requestLog) with(name, text string) (n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, h := range a.seen {
		if strings.Contains(strings.Join(h[name], "; "), text) {
			n++
		}
	}
	return n
}

func trusting() *http.Transport {
	return &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // #nosec G402 -- own test server
}

func secretsOf(t *testing.T, url string) *Secrets {
	t.Helper()
	header, err := ParseHeaders([]string{"X-Key: k1"})
	if err != nil {
		t.Fatal(err)
	}
	cookies, err := ReadCookies(
		strings.NewReader("# Netscape HTTP Cookie File\n127.0.0.1\tFALSE\t/\tFALSE\t0\tsid\ts1\n" +
			"#HttpOnly_127.0.0.1\tFALSE\t/\tTRUE\t0\tsafe\tt1\nother.test\tTRUE\t/\tFALSE\t0\tsid\to1\n" +
			"127.0.0.1\tFALSE\t/\tFALSE\t1\told\tx1\n"))
	if err != nil {
		t.Fatal(err)
	}
	netrc, err := ReadNetrc(strings.NewReader("default login all password pass\n"))
	if err != nil {
		t.Fatal(err)
	}
	s := &Secrets{Header: header, Cookie: "own=c1", Cookies: cookies, Netrc: netrc}
	s.AddOrigin(url)
	return s
}

// TestSecrets checks that headers, cookies and credentials reach their hosts, and no targets of
// redirects.
func TestSecrets(t *testing.T) {
	for _, secure := range []bool{false, true} {
		own, other := newRequestLog(t, secure), newRequestLog(t, secure)
		own.away = strings.Replace(other.URL, "127.0.0.1", "localhost", 1)
		list := []Device{{Name: "own", Transport: trusting()}}
		_, file, err := runGet(t, own.URL+"/away", list, func(c *Config) {
			c.Secrets, c.times = secretsOf(t, own.URL), socketTimes // a second try would be counted too
		})
		if err != nil {
			t.Fatal(err)
		}
		expectContent(t, file, []byte("hello"))
		for _, x := range []struct {
			name, text string
			n          int
		}{{"X-Key", "k1", 1}, {"Cookie", "own=c1", 1}, {"Cookie", "sid=s1", 1}, {"Cookie", "safe=t1", 1},
			{"Cookie", "old", 0}, {"Cookie", "o1", 0}, {"Authorization", "Basic YWxsOnBhc3M=", 1}} {
			if n := own.with(x.name, x.text); n != x.n {
				t.Errorf("secure %v: %d requests with %s: %s", secure, n, x.name, x.text)
			}
			if other.with(x.name, "") != len(other.seen) || x.n > 0 && other.with(x.name, x.text) > 0 {
				t.Errorf("secure %v: another host has seen %s", secure, x.name)
			}
		}
	}
}

// TestSecretsOverHelpers checks that a helper carries secrets only inside https. For http it is
// excluded, also with credentials in the URL and after a redirect.
func TestSecretsOverHelpers(t *testing.T) {
	helper := func() []Device { return []Device{{Name: "phone", Transport: trusting(), Helper: true}} }
	secure, plain := newRequestLog(t, true), newRequestLog(t, false)
	if _, _, err := runGet(t, secure.URL+"/x", helper(),
		func(c *Config) { c.Secrets = secretsOf(t, secure.URL) }); err != nil || secure.with("X-Key", "k1") == 0 {
		t.Errorf("https: %v", err)
	}
	withPassword := strings.Replace(plain.URL, "http://", "http://me:pass@", 1)
	for what, set := range map[string]func(*Config){
		"secrets": func(c *Config) { c.Secrets = secretsOf(t, plain.URL) },
		"a header": func(c *Config) {
			c.Secrets = &Secrets{Header: http.Header{"X-Key": {"k1"}}}
			c.Secrets.AddOrigin(plain.URL)
		},
		"a password in the URL": func(c *Config) { c.Objects[0].URL = withPassword + "/x" },
	} {
		if _, _, err := runGet(t, plain.URL+"/x", helper(), set); !fault.Is(err, fault.Permission) ||
			!strings.Contains(err.Error(), "not encrypted") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if len(plain.seen) > 0 {
		t.Errorf("a helper has carried %v", plain.seen)
	}
	both := append([]Device{{Name: "own", Transport: trusting()}}, helper()...)
	if _, _, err := runGet(t, plain.URL+"/x", both,
		func(c *Config) { c.Secrets = secretsOf(t, plain.URL) }); err != nil {
		t.Errorf("beside the local device: %v", err)
	}
	if what := secretsOf(t, plain.URL).Exposed(plain.URL + "/x"); what != "name and password, cookies, headers" {
		t.Error(what)
	}
	if what := (*Secrets)(nil).Exposed(withPassword) + (*Secrets)(nil).Exposed(plain.URL) + secretsOf(t,
		secure.URL).Exposed(secure.URL); what != "name and password" {
		t.Error(what)
	}
}

// TestCookieFile checks that cookies go to their sites and, if marked so, their subdomains, and
// that secure ones go only over https.
func TestCookieFile(t *testing.T) {
	list, err := ReadCookies(
		strings.NewReader("example.test\tFALSE\t/\tFALSE\t0\ta\t1\n.example.test\tTRUE\t/dir\tFALSE\t0\tb\t2\n" +
			"#HttpOnly_example.test\tFALSE\t/\tTRUE\t0\tc\t3\n"))
	if err != nil {
		t.Fatal(err)
	}
	jar := (&Secrets{Cookies: list}).Jar()
	for at, want := range map[string]string{"https://example.test/": "a=1 c=3", "http://example.test/": "a=1",
		"http://example.test/dir/x": "b=2 a=1", "http://www.example.test/dir": "b=2", "http://test/": "",
		"http://notexample.test/dir": ""} {
		u, err := url.Parse(at)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, c := range jar.Cookies(u) {
			got = append(got, c.String())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s gets %v, not %s", at, got, want)
		}
	}
}

// TestNetrc checks that ReadNetrc reads the format of curl.
func TestNetrc(t *testing.T) {
	if _, err := ReadNetrc(strings.NewReader("machine a login me password \"p w\"\n")); err == nil {
		t.Error("an invalid netrc file was accepted")
	}
	n, err := ReadNetrc(
		strings.NewReader("# mine\nmachine Example.org\n login me\n password \"pw\"\n" +
			"machine b.test login you password x account y\nmacdef init\ncd /\nmachine no\n\n" +
			"machine b.test login late password z\ndefault login any password one\n"))
	if err != nil || len(n) != 3 || n["example.org"].String() != "me:pw" || n["b.test"].String() != "you:x" ||
		n[""].String() != "any:one" {
		t.Errorf("%v, %v", n, err)
	}
	for _, bad := range []string{"nonsense", "machine x what y", "<html>"} {
		if _, err := ReadNetrc(strings.NewReader(bad)); err == nil {
			t.Errorf("%q is read", bad)
		}
	}
	for _, bad := range []string{"a b", "a\tb\tc", "h\tTRUE\t/\tTRUE\tsoon\tn\tv", "<html>"} {
		if _, err := ReadCookies(strings.NewReader(bad)); err == nil {
			t.Errorf("cookies: %q is read", bad)
		}
	}
	for _, bad := range []string{"", "x", "a b: c", ": c", "a: b\nc: d"} {
		if _, err := ParseHeaders([]string{bad}); err == nil {
			t.Errorf("the header %q is read", bad)
		}
	}
}
