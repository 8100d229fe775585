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

// Connections that have not proved who they are count with those that have: helpers ask
// now and then, and hold a connection for as long as that takes.
const (
	maxCalls, maxCallsOfOne, maxCallsPerMinute = 256, 16, 120
)

// Service grants permits. Make one with NewService; its methods may be called by any
// goroutine.
type Service struct {
	key   *identity.Key
	trust *identity.Trust
	log   *slog.Logger
	now   func() time.Time // a fake in tests

	mu       sync.Mutex
	issuer   *allowance.Issuer
	journal  *store.Journal // nil: nothing is kept
	problem  string
	watchers map[string]*watcher // by device
}

// Identity is who the service is, and which helpers it knows.
type Identity struct {
	Key   *identity.Key
	Trust *identity.Trust
}

// NewService makes one that keeps at path which permits hold; "" keeps nothing. Errors
// are faults.
func NewService(id Identity, issuer *allowance.Issuer, path string, log *slog.Logger) (*Service, error) {
	s := &Service{key: id.Key, trust: id.Trust, log: log, now: time.Now, issuer: issuer, watchers: map[string]*watcher{}}
	if path == "" {
		return s, nil
	}
	return s, s.keep(path)
}

// keep takes what holds from a file, and keeps it there.
func (s *Service) keep(path string) error {
	var held []allowance.Held
	j, damage, err := store.Open(path, fileWait, func(line []byte) error {
		var h allowance.Held
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
		s.log.Error("more permits may hold than are known", "err", damage)
	}
	s.issuer.Restore(s.now(), held)
	s.journal = j
	s.note(s.rewrite())
	return nil
}

// rewrite keeps what holds now; mu is held, or nobody else is there.
func (s *Service) rewrite() error {
	var lines []any
	for _, h := range s.issuer.Held(s.now()) {
		lines = append(lines, h)
	}
	return s.journal.Rewrite(lines...)
}

// note logs a problem once; mu is held.
func (s *Service) note(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != s.problem && text != "" {
		s.log.Error("permits are not kept", "err", err, "hint", fault.HintOf(err))
	}
	s.problem = text
}

// Observe takes the load of a cell now, 0 to 1. One that is loaded ends its permits.
func (s *Service) Observe(cell string, load float64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.issuer.Observe(cell, load, s.now())
	s.revoke(cell)
}

// Held are the permits that hold.
func (s *Service) Held() []allowance.Held {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.issuer.Held(s.now())
}

// ask answers a device. The permit is stored before it is sent. With watch, w is signalled
// when the permit is taken back; nil: there is none.
func (s *Service) ask(p identity.Peer, cell string, watch bool) (_ answer, w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	a := s.issuer.Ask(now, p.Key.ID().String(), cell)
	if a.Granted && watch {
		w = s.watch(p.Key.ID().String(), a.Cell)
	}
	if a.Granted && s.journal != nil {
		err := s.journal.Append(allowance.Held{Device: p.Key.ID().String(), Cell: a.Cell, Since: a.Since, Until: now.Add(a.Life)})
		if err == nil && s.journal.Long() {
			err = s.rewrite()
		}
		s.note(err)
	}
	s.log.Info("permit", "device", p.Name, "cell", a.Cell, "granted", a.Granted, "why", a.Why)
	return answerOf(a), w
}

// Serve answers helpers at l until ctx ends, closes l and returns ctx's error, or that of l.
func (s *Service) Serve(ctx context.Context, l *tcp.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+path, s.answer)
	mux.HandleFunc("GET "+reportPath, s.tell)
	// As http.Server knows no application protocol of ours, it must not see the TLS.
	web := &http.Server{ConnContext: func(ctx context.Context, c net.Conn) context.Context { return context.WithValue(ctx, guestKey{}, c) }, Handler: http.MaxBytesHandler(mux, maxBody), ReadTimeout: answerTime, WriteTimeout: answerTime, IdleTimeout: time.Second,
		MaxHeaderBytes: maxBody, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelDebug)}
	stop := context.AfterFunc(ctx, func() { web.Close() })
	defer stop()
	defer web.Close()
	err := web.Serve(&gated{l, tcp.NewGate(maxCalls, maxCallsOfOne, maxCallsPerMinute), s.key.Server(ALPN, s.admits)})
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
		s.note(s.journal.Close())
		s.journal = nil
	}
}

func (s *Service) answer(w http.ResponseWriter, r *http.Request) {
	key, err := identity.PeerKey(r.Context().Value(guestKey{}).(*guest).ConnectionState())
	p, ok := s.trust.Lookup(key)
	if err != nil || !ok || !p.Is(identity.RoleHelper) || p.Paused {
		http.Error(w, "this device is not known here", http.StatusForbidden)
		return
	}
	var q request
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil || len(q.Cell) > 64 {
		http.Error(w, "no request for a permit", http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	a, watched := s.ask(p, q.Cell, q.Watch)
	_ = json.NewEncoder(w).Encode(a) // who has gone asks again
	if watched != nil {
		s.hold(w, r, watched)
	}
}

// gated is a listener whose connections, all of them, are bounded by a gate.
type gated struct {
	*tcp.Listener
	gate *tcp.Gate
	tls  *tls.Config
}

// Accept implements net.Listener.
func (g *gated) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if leave := g.gate.Admit(c.RemoteAddr()); leave != nil {
			return &guest{tls.Server(c, g.tls), sync.OnceFunc(leave)}, nil
		}
		_ = c.Abort()
	}
}

// guest gives its place back when it closes. Its handshake is a part of its first read.
type guest struct {
	*tls.Conn
	leave func()
}

// Close implements net.Conn.
func (g *guest) Close() error {
	defer g.leave()
	return g.Conn.Close()
}

// guestKey is the guest of a request's context.
type guestKey struct{}

// parse reads an answer.
func parse(status int, body []byte) (a allowance.Answer, err error) {
	var said answer
	switch {
	case status == http.StatusForbidden:
		return a, fault.New(fault.UnknownDevice, errors.New("the service does not know this device"), hintKnown)
	case status != http.StatusOK:
		return a, fault.New(fault.Protocol, fmt.Errorf("the service answers with status %d", status), "is it the right address?")
	}
	if err := json.Unmarshal(body, &said); err != nil {
		return a, fault.New(fault.Protocol, fmt.Errorf("the service's answer makes no sense: %w", err), "is it the right address?")
	}
	if a = said.Answer(); a.Granted && a.Life == 0 {
		return a, fault.New(fault.Protocol, errors.New("the service grants a permit that does not hold"), "")
	}
	return a, nil
}

const hintKnown = "give the operator this device's key: `mpbond keygen` prints it"
