// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/net/netutil"

	"mpbond/api/console"
	"mpbond/base/fault"
	"mpbond/base/userfile"
)

const (
	// maxConns bounds the open connections of each listener; others wait. Readers of events count.
	maxConns = 64
	// tokenBytes is the randomness of a token: 256 bits cannot be guessed, so attempts need no
	// limit.
	tokenBytes      = 32
	encodedTokenLen = 43 // in base64 (RFC 4648 section 5), without padding
)

// CheckAddress returns an error unless addr is a loopback address with a port. The API accepts no
// others, since the connection and the token are not encrypted.
func CheckAddress(addr string) error {
	if at, err := netip.ParseAddrPort(addr); err != nil || !at.Addr().IsLoopback() {
		return fault.New(
			fault.Config,
			fmt.Errorf("the API at %q: it must be a loopback address with a port", addr),
			"write it like 127.0.0.1:7680; from elsewhere use `ssh -L 7680:127.0.0.1:7680`",
		)
	}
	return nil
}

// ListenTCP opens the API's port. addr must pass CheckAddress.
func ListenTCP(addr string) (net.Listener, error) {
	if err := CheckAddress(addr); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", addr)
	if errors.Is(err, syscall.EADDRINUSE) {
		return nil, fault.New(
			fault.AlreadyRunning,
			err,
			"another program, or another mpbond, has that port: choose one with --api",
		)
	}
	return l, fault.New(fault.Config, err, "choose another address with --api")
}

// LoadOrCreateToken returns the token in the file at path. It creates a missing file, for its owner
// only. It rejects a file that others can read, since they may know the token.
func LoadOrCreateToken(path string) (string, error) {
	text, err := readTokenFile(path)
	if !errors.Is(err, os.ErrNotExist) {
		return text, err
	}
	if err := userfile.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", fault.New(fault.Permission, err, "set MPBOND_HOME to use another place")
	}
	// Written aside and then linked: the file is complete when it gets its name, and of two
	// processes only one creates it.
	f, err := userfile.CreateTemp(filepath.Dir(path), ".token") // mode 0600
	if err != nil {
		return "", fault.New(fault.Permission, err, "set MPBOND_HOME to use another place")
	}
	defer userfile.Remove(f.Name())
	secret := make([]byte, tokenBytes)
	_, _ = rand.Read(secret) // never fails
	_, err = f.WriteString(base64.RawURLEncoding.EncodeToString(secret) + "\n")
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return "", err
	}
	if err := userfile.Link(f.Name(), path); err != nil && !errors.Is(err, os.ErrExist) {
		return "", err
	}
	return readTokenFile(path)
}

// ReadToken returns the token in the file that a running mpbond has created.
func ReadToken(path string) (string, error) {
	text, err := readTokenFile(path)
	if errors.Is(err, os.ErrNotExist) {
		err = fault.New(fault.NotFound, err, newTokenHint)
	}
	return text, err
}

// newTokenHint says how to get a new token file: the mpbond that reads it creates it.
const newTokenHint = "restart the mpbond that has --api, which creates a new one"

// readTokenFile reads a token file, which must belong to this user and be unreadable for others.
func readTokenFile(path string) (string, error) {
	f, err := userfile.OpenFile(path, os.O_RDONLY|userfile.NoFollow|userfile.NoWait, 0)
	if errors.Is(err, os.ErrPermission) {
		return "", fault.New(
			fault.Permission,
			err,
			"it belongs to another user: remove it if that is wrong, and "+newTokenHint,
		)
	}
	if err != nil {
		return "", err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return "", err
	}
	if !st.Mode().IsRegular() || userfile.GrantsOthers(st, 0o077) || !userfile.IsOwnIn(st, filepath.Dir(path)) {
		return "", fault.New(
			fault.Permission,
			fmt.Errorf("token file %s: others can read it, or it belongs to another user", path),
			"remove it, and "+newTokenHint,
		)
	}
	b := make([]byte, encodedTokenLen+2)
	n, _ := f.Read(b)
	text := strings.TrimSuffix(string(b[:n]), "\n")
	if secret, err := base64.RawURLEncoding.DecodeString(text); err != nil || len(secret) != tokenBytes {
		return "", fault.New(
			fault.Config,
			fmt.Errorf("token file %s contains no token", path),
			"remove it, and "+newTokenHint,
		)
	}
	return text, nil
}

// RunTCP serves like Run on a listener of ListenTCP, to clients that have the token.
func RunTCP(ctx context.Context, l net.Listener, r Role, token string) error {
	return runHTTPServer(ctx, l, requireToken(Handler(r), token))
}

// requireToken passes requests of clients that have the token, and requests for files of the web
// console. It first rejects requests that a web page in a local browser could send: DNS rebinding
// shows in Host, cross-site requests (CSRF) in Origin or Sec-Fetch-Site.
func requireToken(h http.Handler, token string) http.Handler {
	want := sha256.Sum256([]byte(token))
	page := console.Handler()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, err := http.StatusForbidden, checkOrigin(r)
		if console.IsConsoleFile(r) && (err == nil || isLoopbackHost(r.Host) && opensPageInTab(r)) {
			page.ServeHTTP(w, r)
			return
		}
		if err == nil {
			given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			if got := sha256.Sum256([]byte(given)); !ok || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
				status, err = http.StatusUnauthorized, errors.New("the token is missing or wrong")
				w.Header().Set("WWW-Authenticate", "Bearer")
			}
		}
		if err != nil {
			w.Header().Set("Connection", "close") // unknown clients must not hold connections
			newHTTPProblem(
				status,
				fault.New(
					fault.Permission,
					err,
					"send `Authorization: Bearer TOKEN` with the token of the file api.token, to a loopback address, "+
						"not from another web page",
				),
			).writeHTTPAnswer(w)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// checkOrigin returns an error if a request looks like one of a foreign web page.
func checkOrigin(r *http.Request) error {
	if !isLoopbackHost(r.Host) {
		return fmt.Errorf("the host %.100q is not a loopback address", r.Host)
	}
	for _, origin := range r.Header.Values("Origin") {
		if u, err := url.Parse(origin); err != nil || u.Scheme != "http" || !strings.EqualFold(u.Host, r.Host) {
			return fmt.Errorf("a page of %.100q must not use this API", origin)
		}
	}
	for _, site := range r.Header.Values("Sec-Fetch-Site") {
		if site != "same-origin" && site != "none" {
			return fmt.Errorf("a page of another origin must not use this API (%.20s)", site)
		}
	}
	return nil
}

// opensPageInTab reports whether a request opens a page in a tab. A link in another page may do
// that, since that page learns nothing.
func opensPageInTab(r *http.Request) bool {
	return r.Header.Get("Origin") == "" && r.Header.Get("Sec-Fetch-Mode") == "navigate" &&
		r.Header.Get("Sec-Fetch-Dest") == "document"
}

// isLoopbackHost reports whether a Host header is a loopback name or address. Any port is valid,
// since it may be forwarded.
func isLoopbackHost(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Zone() == "" && addr.IsLoopback()
}

// limitConns limits the number of open connections.
func limitConns(l net.Listener) net.Listener { return netutil.LimitListener(l, maxConns) }
