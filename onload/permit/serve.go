// SPDX-License-Identifier: Apache-2.0

package permit

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/store"
	"mpbond/link/tcp"
	"mpbond/onload/allowance"
)

// Limits of connections, authenticated or not. Helpers connect now and then, and keep a connection
// only for a request.
const (
	maxConns, maxConnsPerAddress, maxConnsPerMinute = 256, 16, 120
)

// Service grants permits. Its methods may be called by any goroutine.
type Service struct {
	key   *identity.Key
	trust *identity.Trust
	log   *slog.Logger
	now   func() time.Time // fake in tests

	mu       sync.Mutex
	issuer   *allowance.Issuer
	journal  *store.Journal      // nil: permits are not stored here
	problem  string              // last problem of the journal, or ""
	watchers map[string]*watcher // by device

	sharing *sharing // nil: no other service has the same cells
}

// Identity is the key of the service and the helpers that it trusts.
type Identity struct {
	Key   *identity.Key
	Trust *identity.Trust
}

// NewService returns a service that stores valid permits at path; "" stores none. Errors are
// faults.
func NewService(id Identity, issuer *allowance.Issuer, path string, log *slog.Logger) (*Service, error) {
	s := &Service{key: id.Key, trust: id.Trust, log: log, now: time.Now, issuer: issuer,
		watchers: map[string]*watcher{}}
	if path == "" {
		return s, nil
	}
	return s, s.openPermitJournal(path)
}

// openPermitJournal restores valid permits from a file and stores further ones there.
func (s *Service) openPermitJournal(path string) error {
	var held []allowance.HeldPermit
	j, damage, err := store.Open(path, lockTimeout, func(line []byte) error {
		var h allowance.HeldPermit
		if err := json.Unmarshal(line, &h); err != nil {
			return err
		}
		held = append(held, h)
		return nil
	})
	if err != nil {
		return err
	}
	if damage != nil {
		s.log.Error("permit file damaged, more permits may be valid than known", "err", damage)
	}
	s.issuer.Restore(s.now(), held)
	s.journal = j
	s.logJournalProblem(s.rewriteJournal())
	return nil
}

// rewriteJournal stores the valid permits only. mu must be held, or the service not shared yet.
func (s *Service) rewriteJournal() error {
	var lines []any
	for _, h := range s.issuer.HeldPermits(s.now()) {
		lines = append(lines, h)
	}
	return s.journal.Rewrite(lines...)
}

// logJournalProblem logs a problem of the journal once. mu must be held.
func (s *Service) logJournalProblem(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != s.problem && text != "" {
		s.log.Error("permits not stored", "err", err, "hint", fault.HintOf(err))
	}
	s.problem = text
}

// SetLoad sets the current load of a cell, 0 to 1. A loaded cell revokes its permits.
func (s *Service) SetLoad(cell string, load float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.issuer.SetLoad(cell, load, s.now())
	if s.sharing != nil {
		s.sharing.noteLoad(cell, load, s.now())
	}
	s.revokeLoaded(cell)
}

// HeldPermits returns the valid permits that are known here.
func (s *Service) HeldPermits() []allowance.HeldPermit {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.issuer.HeldPermits(s.now())
}

// issuePermit answers a request of a device. It stores a permit before it returns it. With watch, w
// signals the revocation; w is nil without a permit. An error means that a service that shares its
// permits cannot decide now.
func (s *Service) issuePermit(ctx context.Context, p identity.Peer, q request) (_ wireAnswer, w *watcher, err error) {
	device := p.Key.ID().String()
	var a allowance.Answer
	if s.sharing != nil {
		if a, err = s.requestShared(ctx, device, q.Cell); err != nil {
			return wireAnswer{}, nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	if s.sharing == nil {
		a = s.issuer.RequestPermit(now, device, q.Cell)
	}
	if a.Granted && q.Watch {
		w = s.addWatcher(device, a.Cell)
		if s.sharing != nil {
			s.revokeLoaded(a.Cell) // a load may have come meanwhile
		}
	}
	if a.Granted && s.journal != nil {
		err := s.journal.Append(allowance.HeldPermit{Device: device, Cell: a.Cell, Since: a.Since,
			Until: now.Add(a.Life)})
		if err == nil && s.journal.NeedsRewrite() {
			err = s.rewriteJournal()
		}
		s.logJournalProblem(err)
	}
	s.log.Info("permit", "device", p.Name, "cell", a.Cell, "granted", a.Granted, "why", a.Reason)
	return toWireAnswer(a), w, nil
}

// Serve answers helpers at l until ctx ends or l fails. It closes l and returns the cause.
func (s *Service) Serve(ctx context.Context, l *tcp.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+permitPath, s.servePermit)
	mux.HandleFunc("GET "+reportPath, s.serveReport)
	// http.Server must not see the TLS connection, since it does not know our ALPN.
	web := &http.Server{ConnContext: func(ctx context.Context, c net.Conn) context.Context {
		return context.WithValue(ctx, connContextKey{}, c)
	}, Handler: http.MaxBytesHandler(mux, maxBody), ReadTimeout: responseTimeout,
		WriteTimeout: responseTimeout, IdleTimeout: time.Second,
		MaxHeaderBytes: maxBody, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug)}
	stop := context.AfterFunc(ctx, func() { web.Close() })
	defer stop()
	defer web.Close()
	err := web.Serve(&limitedListener{l, tcp.NewAdmissionLimit(maxConns, maxConnsPerAddress, maxConnsPerMinute),
		s.key.ServerConfig(ALPN, s.isAdmitted)})
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}

// Close closes the file.
func (s *Service) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.journal != nil {
		s.logJournalProblem(s.journal.Close())
		s.journal = nil
	}
}

// servePermit handles a request for a permit.
func (s *Service) servePermit(w http.ResponseWriter, r *http.Request) {
	key, err := identity.PeerKey(r.Context().Value(connContextKey{}).(*admittedConn).ConnectionState())
	p, ok := s.trust.Lookup(key)
	if err != nil || !ok || !p.HasRole(identity.RoleHelper) || p.Paused {
		http.Error(w, "the permit service does not know this device", http.StatusForbidden)
		return
	}
	var q request
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil || len(q.Cell) > 64 {
		http.Error(w, "invalid request for a permit", http.StatusBadRequest)
		return
	}
	a, watched, err := s.issuePermit(r.Context(), p, q)
	if err != nil { // it is logged; the device keeps a permit that it has until that expires
		http.Error(w, "the permit service cannot decide now", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(a) // a client that is gone asks again
	if watched != nil {
		s.holdResponse(w, r, watched)
	}
}

// limitedListener is a TLS listener that limits its connections.
type limitedListener struct {
	*tcp.Listener
	limit     *tcp.AdmissionLimit
	tlsConfig *tls.Config
}

// Accept implements net.Listener.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if leave := l.limit.Admit(c.RemoteAddr()); leave != nil {
			return &admittedConn{tls.Server(c, l.tlsConfig), sync.OnceFunc(leave)}, nil
		}
		_ = c.Abort()
	}
}

// admittedConn releases its slot when it is closed. The handshake is part of the first read.
type admittedConn struct {
	*tls.Conn
	release func()
}

// Close implements net.Conn.
func (g *admittedConn) Close() error {
	defer g.release()
	return g.Conn.Close()
}

// connContextKey is the key of the connection in the context of a request.
type connContextKey struct{}

// parsePermitAnswer parses the response of a service.
func parsePermitAnswer(status int, body []byte) (a allowance.Answer, err error) {
	var wire wireAnswer
	switch {
	case status == http.StatusForbidden:
		return a, fault.New(fault.UnknownDevice,
			errors.New("the permit service does not know this device"), hintRegisterKey)
	case status == http.StatusServiceUnavailable:
		return a, fault.New(fault.Unreachable,
			errors.New("the permit service cannot read the permits that it shares with other services"),
			"ask the operator to run: mpbond-lab permit status")
	case status != http.StatusOK:
		return a, fault.New(fault.Protocol, fmt.Errorf("the permit service answered with status %d", status),
			"check the address of the permit service")
	}
	if err := json.Unmarshal(body, &wire); err != nil {
		return a, fault.New(fault.Protocol, fmt.Errorf("invalid response of the permit service: %w", err),
			"check the address of the permit service")
	}
	if a = wire.toAllowanceAnswer(); a.Granted && a.Life == 0 {
		return a, fault.New(fault.Protocol, errors.New("the permit service granted a permit without validity"), "")
	}
	return a, nil
}

// hintRegisterKey says how to make the device known.
const hintRegisterKey = "give the operator this device's key: `mpbond keygen` prints it"
