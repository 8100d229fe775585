// SPDX-License-Identifier: Apache-2.0

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

// Names remembers the names behind addresses, so that connections and datagrams can be matched by
// name. It learns them from DNS queries that pass here, and from TLS client hellos. An address with
// several names gets the one asked for last. Safe for concurrent use.
type Names struct {
	// Wanted reports whether names are needed now; nil means always. While they are not needed,
	// nothing is inspected.
	Wanted func() bool

	mu       sync.Mutex
	current  map[netip.Addr]string
	previous map[netip.Addr]string // the generation before current; half of the memory
}

const (
	// maxNames bounds each of the two generations.
	maxNames = 4096
	// maxName is the longest domain name (RFC 1035 section 2.3.4).
	maxName = 255
	// helloTimeout bounds the wait for a TLS client hello.
	helloTimeout = 2 * time.Second
	// maxHello bounds the bytes read ahead for it.
	maxHello = 16 << 10
)

func (n *Names) areNamesWanted() bool { return n != nil && (n.Wanted == nil || n.Wanted()) }

// Of returns the name of an address, "" if unknown.
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

// learnFromDNS learns names from a resolver's answer.
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

// recordName stores a name. mu must be held.
func (n *Names) recordName(a netip.Addr, name string) {
	if len(n.current) >= maxNames || n.current == nil {
		n.current, n.previous = map[netip.Addr]string{}, n.current
	}
	n.current[a] = name
}

// readServerName returns the server name in a TLS client hello (server_name, RFC 6066 section 3),
// if the app sends one. The bytes remain to be read.
func (e *Edge) readServerName(a *appConn, dest netip.AddrPort) (name string) {
	if !e.cfg.Names.areNamesWanted() || dest.Port() != httpsPort {
		return "" // on other ports the server may speak first
	}
	_ = a.SetReadDeadline(time.Now().Add(helloTimeout)) // reading reports it
	defer a.SetReadDeadline(time.Time{})                //nolint:errcheck // as above
	var read bytes.Buffer
	// it always fails, since nothing is answered
	_ = tls.Server(&readOnlyConn{Conn: a.Conn, r: io.TeeReader(io.LimitReader(a.Conn, maxHello), &read)}, &tls.Config{
		GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			name = h.ServerName
			return nil, errNameRead
		},
	}).Handshake()
	a.readAhead = append(read.Bytes(), a.readAhead...)
	if len(name) > maxName {
		return ""
	}
	if name != "" { // applies to later QUIC datagrams too, which hide the name
		e.cfg.Names.mu.Lock()
		e.cfg.Names.recordName(dest.Addr().Unmap(), name)
		e.cfg.Names.mu.Unlock()
	}
	return name
}

const httpsPort = 443

var errNameRead = errors.New("the name is all that was wanted")

// readOnlyConn is a connection that can only be read.
type readOnlyConn struct {
	net.Conn
	r io.Reader
}

// Read implements net.Conn.
func (l *readOnlyConn) Read(b []byte) (int, error) { return l.r.Read(b) }

// Write discards b.
func (l *readOnlyConn) Write(b []byte) (int, error) { return len(b), nil }

// Close leaves the connection open.
func (l *readOnlyConn) Close() error { return nil }
