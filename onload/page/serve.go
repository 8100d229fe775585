// SPDX-License-Identifier: Apache-2.0

package page

import (
	"context"
	"embed"
	"encoding/json"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/link/tcp"
)

// Limits of requests.
const (
	maxHeaderBytes  = 8 << 10
	maxLoginBody    = 1 << 10 // body of a log-in
	headerTimeout   = 5 * time.Second
	responseTimeout = 10 * time.Second
	shutdownTimeout = time.Second
)

//go:embed page
var embedded embed.FS

// contentPolicy lets the page load its own files only.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// mediaTypes maps the extensions of the page's files to media types.
var mediaTypes = map[string]string{".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8",
	".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}

// Serve serves browsers at l and uploads their files until ctx ends.
func (p *Page) Serve(ctx context.Context, l *tcp.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	all.Go(func() { p.runUploadLoop(ctx) })
	s := &http.Server{Handler: p, ReadHeaderTimeout: headerTimeout, IdleTimeout: time.Minute,
		MaxHeaderBytes: maxHeaderBytes,
		BaseContext:    func(net.Listener) context.Context { return ctx },
		ErrorLog:       slog.NewLogLogger(p.cfg.Log.Handler(), slog.LevelDebug)}
	defer context.AfterFunc(ctx, func() {
		shutdownCtx, stop := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer stop()
		if s.Shutdown(shutdownCtx) != nil {
			s.Close()
		}
	})()
	err := s.Serve(&localListener{listener: l, limit: tcp.NewAdmissionLimit(maxOpen, maxFromOne,
		maxPerMinute), uplink: p.cfg.Uplink})
	s.Close()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// ServeHTTP implements http.Handler.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	for k, v := range map[string]string{
		"Content-Security-Policy":      contentPolicy,
		"X-Content-Type-Options":       "nosniff",
		"X-Frame-Options":              "DENY",
		"Referrer-Policy":              "no-referrer",
		"Cross-Origin-Resource-Policy": "same-origin",
		"Cache-Control":                "no-store",
	} {
		w.Header().Set(k, v)
	}
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Now().Add(responseTimeout)) // pieces of files have their own deadline
	_ = c.SetWriteDeadline(time.Now().Add(responseTimeout))
	switch {
	case !p.isAllowedHost(r.Host):
		writeError(w, http.StatusMisdirectedRequest, "this name or address does not belong to the helper")
	case new(http.CrossOriginProtection).Check(r) != nil:
		writeError(w, http.StatusForbidden, "the request comes from another site")
	case r.URL.Path == "/enter" && r.Method == http.MethodPost:
		p.handleLogin(w, r)
	case r.Method == http.MethodGet && embeddedPageFile(r.URL.Path) != "":
		name := embeddedPageFile(r.URL.Path)
		text, _ := embedded.ReadFile(name)
		w.Header().Set("Content-Type", mediaTypes[path.Ext(name)])
		_, _ = w.Write(text)
	case !p.sessions.checkToken(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "), time.Now()):
		writeError(w, http.StatusUnauthorized, "enter the access code")
	default:
		p.serveSession(w, r)
	}
}

// serveSession serves requests with a valid token.
func (p *Page) serveSession(w http.ResponseWriter, r *http.Request) {
	id, isRetry := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/files/"), "/again")
	switch {
	case r.URL.Path == "/events" && r.Method == http.MethodGet:
		p.serveEvents(w, r)
	case r.URL.Path == "/files" && r.Method == http.MethodPost:
		p.receiveUpload(w, r)
	case strings.HasPrefix(r.URL.Path, "/files/") && isRetry && r.Method == http.MethodPost:
		writeResult(w, p.retryFailedFile(id))
	case strings.HasPrefix(r.URL.Path, "/files/") && !isRetry && r.Method == http.MethodDelete:
		writeResult(w, p.removeFile(id))
	default:
		writeError(w, http.StatusNotFound, "not found")
	}
}

// isAllowedHost reports whether a request was sent to a local address or a name of the helper.
// Other names that resolve to the helper belong to other sites (DNS rebinding).
func (p *Page) isAllowedHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	if a, err := netip.ParseAddr(host); err == nil {
		return isLocalNetworkIP(a.Unmap().WithZone(""))
	}
	return slices.ContainsFunc(append([]string{"localhost"}, p.cfg.HostNames...), func(n string) bool {
		return n != "" && (strings.EqualFold(host, n) || strings.EqualFold(host, n+".local"))
	})
}

// embeddedPageFile returns the embedded file for a URL path, or "".
func embeddedPageFile(of string) string {
	if of == "/" {
		of = "/index.html"
	}
	name := "page/" + strings.TrimPrefix(of, "/")
	if st, err := fs.Stat(embedded, name); err != nil || st.IsDir() {
		return ""
	}
	return name
}

// handleLogin handles a log-in with the access code.
func (p *Page) handleLogin(w http.ResponseWriter, r *http.Request) {
	var login struct{ Code string }
	if json.NewDecoder(io.LimitReader(r.Body, maxLoginBody)).Decode(&login) != nil {
		writeError(w, http.StatusBadRequest, "invalid request")
		return
	}
	from, _ := net.ResolveTCPAddr("tcp", r.RemoteAddr) // an IP address: no DNS query
	switch token, e := p.sessions.loginWithCode(from, login.Code, time.Now()); e {
	case loginOK:
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]string{"token": token})
	case wrongCode:
		writeError(w, http.StatusForbidden, "wrong code: the helper shows it when it starts, and in `mpbond status`")
	default:
		w.Header().Set("Retry-After", "60")
		writeError(w, http.StatusTooManyRequests, "too many tries: wait for a minute")
	}
}

// receiveUpload receives a file from a browser.
func (p *Page) receiveUpload(w http.ResponseWriter, r *http.Request) {
	name, key := r.URL.Query().Get("name"), r.URL.Query().Get("key")
	switch {
	case r.ContentLength < 0:
		writeError(w, http.StatusLengthRequired, "the request has no Content-Length")
		return
	case name == "" || len(key) > maxKey:
		writeError(w, http.StatusBadRequest, "the request has no valid name")
		return
	}
	c := http.NewResponseController(w)
	err := p.receiveFile(&item{Name: name, Key: key, Size: unit.Bytes(r.ContentLength)}, r.Body,
		func() { _ = c.SetReadDeadline(time.Now().Add(p.cfg.times.readTimeout)) })
	_ = c.SetWriteDeadline(time.Now().Add(responseTimeout))
	if err != nil {
		w.Header().Set("Connection", "close") // the rest of the body is not read
		p.cfg.Log.Info("file not received", "from", r.RemoteAddr, "err", err)
	}
	writeResult(w, err)
}

// writeResult writes the response to an action: 204, or the status and text of err.
func writeResult(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	switch fault.KindOf(err) {
	case fault.Limit:
		status = http.StatusInsufficientStorage
	case fault.NotFound:
		status = http.StatusNotFound
	case fault.Exists:
		status = http.StatusConflict
	case fault.Protocol:
		status = http.StatusBadRequest
	}
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	writeError(w, status, err.Error())
}

// writeError writes a JSON error response.
func writeError(w http.ResponseWriter, status int, why string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": why})
}
