package intercept

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// Names remembers which names apps have asked the addresses of, as far as their
// queries come here, or have asked for by TLS, so that a connection to an address,
// or datagrams, can be known by its name. An address that several names have is
// called by the last one that was asked for. Safe for concurrent use.
type Names struct {
	// Wanted tells whether anybody asks for names now; nil is always. While
	// nobody does, what apps say is not looked at.
	Wanted func() bool

	mu       sync.Mutex
	current  map[netip.Addr]string
	previous map[netip.Addr]string // those of before: half of what is kept
}

const (
	// maxNames bounds what is remembered, twice.
	maxNames = 4096
	// maxName is the longest domain name (RFC 1035 section 2.3.4).
	maxName = 255
	// helloTimeout is how long a TLS client may take to name the server it wants.
	helloTimeout = 2 * time.Second
	// maxHello bounds what is read ahead for that.
	maxHello = 16 << 10
)

func (n *Names) isWanted() bool { return n != nil && (n.Wanted == nil || n.Wanted()) }

// Of is the name that an address was asked for, "" if none.
func (n *Names) Of(a netip.Addr) string {
	if n == nil {
		return ""
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if name, ok := n.current[a.Unmap()]; ok {
		return name
	}
	return n.previous[a.Unmap()]
}

// learnFromDNS takes an answer of a resolver into account.
func (n *Names) learnFromDNS(answer []byte) {
	if n == nil {
		return
	}
	var p dnsmessage.Parser
	if _, err := p.Start(answer); err != nil {
		return
	}
	q, err := p.Question()
	if err != nil || p.SkipAllQuestions() != nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for {
		h, err := p.AnswerHeader()
		if err != nil {
			return
		}
		switch h.Type {
		case dnsmessage.TypeA:
			r, err := p.AResource()
			if err != nil {
				return
			}
			n.recordName(netip.AddrFrom4(r.A), q.Name.String())
		case dnsmessage.TypeAAAA:
			r, err := p.AAAAResource()
			if err != nil {
				return
			}
			n.recordName(netip.AddrFrom16(r.AAAA).Unmap(), q.Name.String())
		default:
			if p.SkipAnswer() != nil {
				return
			}
		}
	}
}

// recordName keeps a name. Mu is held.
func (n *Names) recordName(a netip.Addr, name string) {
	if len(n.current) >= maxNames || n.current == nil {
		n.current, n.previous = map[netip.Addr]string{}, n.current
	}
	n.current[a] = name
}

// readServerName is what an app calls the server at dest, where it says so: a TLS
// client in its first message (server_name, RFC 6066 section 3). What was read
// stays to be read.
func (e *Edge) readServerName(a *appConn, dest netip.AddrPort) (name string) {
	if !e.cfg.Names.isWanted() || dest.Port() != httpsPort {
		return "" // elsewhere the server may speak first
	}
	_ = a.SetReadDeadline(time.Now().Add(helloTimeout)) // reading reports it
	defer a.SetReadDeadline(time.Time{})                //nolint:errcheck // as above
	var read bytes.Buffer
	_ = tls.Server(&readOnlyConn{Conn: a.Conn, r: io.TeeReader(io.LimitReader(a.Conn, maxHello), &read)}, &tls.Config{ // it always fails: nothing is answered
		GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			name = h.ServerName
			return nil, errNameRead
		},
	}).Handshake()
	a.readAhead = append(read.Bytes(), a.readAhead...)
	if len(name) > maxName {
		return ""
	}
	if name != "" { // what goes there over QUIC later, which hides it, is for the same
		e.cfg.Names.mu.Lock()
		e.cfg.Names.recordName(dest.Addr().Unmap(), name)
		e.cfg.Names.mu.Unlock()
	}
	return name
}

const httpsPort = 443

var errNameRead = errors.New("the name is all that was wanted")

// readOnlyConn is a connection that can only be listened to.
type readOnlyConn struct {
	net.Conn
	r io.Reader
}

// Read implements net.Conn.
func (l *readOnlyConn) Read(b []byte) (int, error) { return l.r.Read(b) }

// Write says nothing.
func (l *readOnlyConn) Write(b []byte) (int, error) { return len(b), nil }

// Close leaves the connection open.
func (l *readOnlyConn) Close() error { return nil }
