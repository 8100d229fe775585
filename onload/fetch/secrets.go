// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
	"golang.org/x/net/publicsuffix"

	"mpbond/base/fault"
	"mpbond/onload/transfer"
)

// Secrets are headers, cookies and credentials of requests. Headers, and cookies without a domain,
// go to the hosts of the URLs that the user named, but not to targets of redirects. No helper
// carries any of them unencrypted. A nil *Secrets has none.
type Secrets struct {
	Header  http.Header
	Cookie  string        // value of the Cookie header
	Cookies []*SiteCookie // each for its own sites
	Netrc   Netrc
	origins []string // scheme, host and port
}

// SiteCookie is a cookie of a cookie file with the site it belongs to.
type SiteCookie struct {
	http.Cookie
	Site *url.URL
}

// Netrc maps host names to credentials. The entry of "" applies to the hosts of the user's URLs
// that have no other entry.
type Netrc map[string]*url.Userinfo

// maxSecrets bounds the size of a file of cookies or credentials.
const maxSecrets = 1 << 20

// AddOrigin adds the origin of a URL to those that get headers and cookies.
func (s *Secrets) AddOrigin(raw string) {
	if u, err := url.Parse(raw); err == nil {
		s.origins = append(s.origins, originOfURL(u))
	}
}

// originOfURL returns the scheme, host and port of a URL.
func originOfURL(u *url.URL) string {
	port := u.Port()
	if port == "" && u.Scheme == "https" {
		port = "443"
	} else if port == "" {
		port = "80"
	}
	return strings.ToLower(u.Scheme + "://" + u.Hostname() + ":" + port)
}

// Exposed describes the secrets that an unencrypted request for a URL shows to its carrier; "" if
// none.
func (s *Secrets) Exposed(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return ""
	}
	r := &http.Request{URL: u, Header: http.Header{}}
	if u.User != nil {
		r.Header.Set("Authorization", "Basic")
	}
	if jar := s.Jar(); jar != nil {
		for _, c := range jar.Cookies(u) {
			r.AddCookie(c)
		}
	}
	s.addHostSecrets(r)
	return s.exposedByRequest(r)
}

// exposedByRequest is Exposed for a complete request.
func (s *Secrets) exposedByRequest(r *http.Request) string {
	if r.URL.Scheme == "https" {
		return ""
	}
	var list []string
	if r.Header.Get("Authorization") != "" {
		list = append(list, "name and password")
	}
	if r.Header.Get("Cookie") != "" {
		list = append(list, "cookies")
	}
	if s != nil && len(s.Header) > 0 && slices.Contains(s.origins, originOfURL(r.URL)) {
		list = append(list, "headers")
	}
	return strings.Join(list, ", ")
}

// Jar returns a new jar with the cookies that have sites, or nil without any.
func (s *Secrets) Jar() http.CookieJar {
	if s == nil || len(s.Cookies) == 0 {
		return nil
	}
	jar, err := cookiejar.New(&cookiejar.Options{PublicSuffixList: publicsuffix.List})
	if err != nil {
		return nil // never happens
	}
	for _, c := range s.Cookies {
		jar.SetCookies(c.Site, []*http.Cookie{&c.Cookie})
	}
	return jar
}

// addHostSecrets adds the secrets of its host to a request.
func (s *Secrets) addHostSecrets(r *http.Request) {
	if s == nil {
		return
	}
	isOrigin := slices.Contains(s.origins, originOfURL(r.URL))
	if isOrigin {
		for name, values := range s.Header {
			if name == "Host" {
				r.Host = values[0]
			} else {
				r.Header[name] = values
			}
		}
		if s.Cookie != "" {
			r.Header.Set("Cookie", strings.TrimPrefix(r.Header.Get("Cookie")+"; "+s.Cookie, "; "))
		}
	}
	userinfo := s.Netrc[strings.ToLower(r.URL.Hostname())]
	if userinfo == nil && isOrigin {
		userinfo = s.Netrc[""]
	}
	if userinfo != nil && r.URL.User == nil && r.Header.Get("Authorization") == "" {
		password, _ := userinfo.Password()
		r.SetBasicAuth(userinfo.Username(), password)
	}
}

// Transport wraps a transport so that it adds the secrets to requests. The transport of a helper
// refuses requests that would carry secrets unencrypted.
func (s *Secrets) Transport(of http.RoundTripper, helper bool) http.RoundTripper {
	return &secretTransport{of, s, helper}
}

// secretTransport adds secrets to requests.
type secretTransport struct {
	http.RoundTripper
	secrets *Secrets
	helper  bool
}

// RoundTrip implements http.RoundTripper.
func (t *secretTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	t.secrets.addHostSecrets(r)
	if exposed := t.secrets.exposedByRequest(r); t.helper && exposed != "" {
		err := fmt.Errorf("the request is not encrypted: a helper would see its %s", exposed)
		return nil, &transfer.Refusal{Verdict: transfer.Exclude,
			Err: fault.New(fault.Permission, err, "use an https:// URL if the server has one")}
	}
	return t.RoundTripper.RoundTrip(r)
}

// CloseIdleConnections closes the unused connections of the wrapped transport.
func (t *secretTransport) CloseIdleConnections() {
	if c, ok := t.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

// ParseHeaders parses header lines of the form NAME:VALUE.
func ParseHeaders(list []string) (http.Header, error) {
	h := http.Header{}
	for _, line := range list {
		name, value, ok := strings.Cut(line, ":")
		if value = strings.TrimSpace(value); !ok || !httpguts.ValidHeaderFieldName(name) ||
			!httpguts.ValidHeaderFieldValue(value) {
			return nil, errors.New("a header must have the form NAME:VALUE")
		}
		h.Add(name, value)
	}
	return h, nil
}

// ReadCookies reads a cookie file in the Netscape format of curl, wget and browser extensions.
func ReadCookies(in io.Reader) (list []*SiteCookie, err error) {
	lines := bufio.NewScanner(io.LimitReader(in, maxSecrets))
	for n := 1; lines.Scan(); n++ {
		text, httpOnly := strings.CutPrefix(strings.TrimRight(lines.Text(), "\r"), "#HttpOnly_")
		if strings.TrimSpace(text) == "" || text[0] == '#' {
			continue
		}
		f := strings.Split(text, "\t") // domain, include subdomains, path, secure, expires, name, value
		if len(f) == 6 {
			f = append(f, "")
		}
		if len(f) != 7 {
			return nil, fmt.Errorf("line %d has %d fields instead of 7, separated by tabs", n, len(f))
		}
		expires, err := strconv.ParseInt(f[4], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("line %d: invalid time %q", n, f[4])
		}
		c := &SiteCookie{http.Cookie{Name: f[5], Value: f[6], Path: f[2],
			Secure: f[3] == "TRUE", HttpOnly: httpOnly}, nil}
		host := strings.TrimPrefix(f[0], ".")
		if f[1] == "TRUE" {
			c.Domain = host
		}
		if expires > 0 {
			c.Expires = time.Unix(expires, 0)
		}
		if c.Site = (&url.URL{Scheme: "https", Host: host, Path: "/"}); httpguts.ValidHostHeader(host) {
			list = append(list, c)
		}
	}
	return list, lines.Err()
}

// ReadNetrc reads credentials in the format of ftp(1), curl and git.
func ReadNetrc(in io.Reader) (Netrc, error) {
	text, err := io.ReadAll(io.LimitReader(in, maxSecrets))
	if err != nil {
		return nil, err
	}
	var words []string
	macro := false
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if macro = macro && len(f) > 0; macro || len(f) == 0 || f[0][0] == '#' {
			continue
		}
		if at := slices.Index(f, "macdef"); at >= 0 { // skip to the next empty line
			f, macro = f[:at], true
		}
		words = append(words, f...)
	}
	n := Netrc{}
	host, name, password, open := "", "", "", false
	keep := func() {
		if _, there := n[host]; open && !there { // the first entry counts
			n[host] = url.UserPassword(name, password)
		}
		name, password = "", ""
	}
	for i := 0; i < len(words); i++ {
		next := func() (word string) {
			if i++; i < len(words) {
				word = textproto.TrimString(words[i])
			}
			return strings.Trim(word, `"`)
		}
		switch words[i] {
		case "machine":
			keep()
			host, open = strings.ToLower(next()), true
		case "default":
			keep()
			host, open = "", true
		case "login":
			name = next()
		case "password":
			password = next()
		case "account":
			next()
		default:
			return nil, fmt.Errorf("unknown word %.20q: want one of machine, default, login, password, account, macdef",
				words[i])
		}
	}
	keep()
	return n, nil
}
