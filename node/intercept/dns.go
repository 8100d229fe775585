// SPDX-License-Identifier: Apache-2.0

//go:build linux

package intercept

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
)

const (
	dnsPort = 53
	// dnsTimeout bounds one query. Resolvers in apps repeat a query after 5 seconds and give up
	// after two or three attempts.
	dnsTimeout = 10 * time.Second
	// dnsMaxQueries bounds the running queries; further ones are dropped.
	dnsMaxQueries = 256
	// dnsPlainSize is the answer size that every app accepts (RFC 1035, section 4.2.1).
	dnsPlainSize = 512
)

// dnsForwarder answers redirected DNS queries. It sends each query to the resolver that the app
// asked, both directly over UDP and through the bond over TCP (RFC 7766). The first good answer
// wins. So names resolve if one of the two works: when our own link is down or lossy, and when the
// resolver is a home router that the far end cannot reach.
//
// If both fail the query is lost, and the app repeats it.
type dnsForwarder struct {
	port       uint16 // on the loopback addresses
	conns      []*net.UDPConn
	track      *conntrack
	log        *slog.Logger
	ctx        context.Context
	cancel     context.CancelFunc
	querySlots chan struct{}
	wg         sync.WaitGroup

	// The two ways to query a resolver; tests replace them.
	direct, bonded dnsQueryFunc
}

// newDNSForwarder returns a forwarder that serves redirected queries until it is closed.
func newDNSForwarder(log *slog.Logger) (*dnsForwarder, error) {
	track, err := newConntrack()
	if err != nil {
		return nil, err
	}
	conns, err := listenPair("udp", 0, listenUDPAddrPort)
	if err != nil {
		track.Close()
		return nil, err
	}
	f := &dnsForwarder{
		port:  portOfListener(conns[0]),
		conns: conns, track: track, log: log,
		querySlots: make(chan struct{}, dnsMaxQueries),
		direct:     queryDirect, bonded: queryBonded,
	}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	for _, c := range conns {
		f.wg.Go(func() { f.serveQueries(c) })
	}
	return f, nil
}

// Close stops the forwarder and waits for its goroutines.
func (f *dnsForwarder) Close() error {
	f.cancel()
	for _, c := range f.conns {
		c.Close()
	}
	f.wg.Wait()
	return f.track.Close()
}

// serveQueries answers the queries at c, each in its own goroutine, until c is closed. Queries
// beyond querySlots are dropped.
func (f *dnsForwarder) serveQueries(c *net.UDPConn) {
	local := c.LocalAddr().(*net.UDPAddr).AddrPort()
	b := make([]byte, 64<<10)
	for {
		n, app, err := c.ReadFromUDPAddrPort(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an ICMP error about an answer that the app no longer awaits
		}
		select {
		case f.querySlots <- struct{}{}:
		default:
			continue
		}
		query := append([]byte(nil), b[:n]...)
		f.wg.Go(func() {
			defer func() { <-f.querySlots }()
			// The kernel needs the app's address in its own family.
			app := netip.AddrPortFrom(app.Addr().Unmap(), app.Port())
			resolver, err := f.track.originalUDPDest(app, local)
			if err != nil {
				f.log.Debug("DNS query of unknown destination", "app", app, "err", err)
				return
			}
			if resolver == local {
				return // not redirected: forwarding would loop
			}
			ctx, cancel := context.WithTimeout(f.ctx, dnsTimeout)
			defer cancel()
			answer, err := raceDNSQueries(ctx, &f.wg, []dnsQueryFunc{f.direct, f.bonded}, resolver, query)
			if err != nil {
				f.log.Debug("DNS query not answered", "resolver", resolver, "err", err)
				return
			}
			c.WriteToUDPAddrPort(truncateDNS(query, answer), app) //nolint:errcheck // as good as lost
		})
	}
}

// QueryDNS queries a resolver and returns its answer, truncated to what the app accepts over UDP.
// Like the queries of `mpbond run` the query is sent both ways if Direct is set; see dnsForwarder.
func (e *Edge) QueryDNS(ctx context.Context, resolver netip.AddrPort, query []byte) ([]byte, error) {
	if !e.beginEdgeWork() {
		return nil, net.ErrClosed
	}
	defer e.wg.Done()
	ctx, cancel := context.WithTimeout(ctx, dnsTimeout)
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)()
	queries := []dnsQueryFunc{func(ctx context.Context, resolver netip.AddrPort, query []byte) ([]byte, error) {
		c, err := e.openStreamToDest(ctx, resolver.String())
		if err != nil {
			return nil, err
		}
		return exchangeTCP(ctx, c, query)
	}}
	if e.cfg.Direct != nil {
		queries = append(queries, func(ctx context.Context, resolver netip.AddrPort, query []byte) ([]byte, error) {
			c, err := e.cfg.Direct(ctx, "udp", resolver.String())
			if err != nil {
				return nil, err
			}
			return exchangeUDP(ctx, c, query)
		})
	}
	answer, err := raceDNSQueries(ctx, &e.wg, queries, resolver, query)
	if err != nil {
		return nil, err
	}
	if e.cfg.Names.areNamesWanted() {
		e.cfg.Names.learnFromDNS(answer)
	}
	return truncateDNS(query, answer), nil
}

// A dnsQueryFunc is one way to query a resolver.
type dnsQueryFunc func(ctx context.Context, resolver netip.AddrPort, query []byte) ([]byte, error)

// raceDNSQueries runs all queries at once. It returns the first conclusive answer, otherwise any
// answer. It adds its goroutines to wg; they end soon after it returns.
func raceDNSQueries(ctx context.Context, wg *sync.WaitGroup, queries []dnsQueryFunc, resolver netip.AddrPort,
	query []byte) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		answer []byte
		err    error
	}
	results := make(chan result, len(queries))
	for _, runQuery := range queries {
		wg.Go(func() {
			a, err := runQuery(ctx, resolver, query)
			results <- result{a, err}
		})
	}
	var second []byte
	var errs []error
	for range queries {
		r := <-results
		switch {
		case r.err != nil:
			errs = append(errs, r.err)
		case isConclusive(r.answer):
			return r.answer, nil
		default:
			second = r.answer
		}
	}
	if second != nil {
		return second, nil
	}
	return nil, errors.Join(errs...)
}

// isConclusive reports whether an answer is about the name. Truncated answers and failures of the
// resolver are not conclusive.
func isConclusive(answer []byte) bool {
	var p dnsmessage.Parser
	h, err := p.Start(answer)
	return err == nil && !h.Truncated && (h.RCode == dnsmessage.RCodeSuccess || h.RCode == dnsmessage.RCodeNameError)
}

// isAnswerTo reports whether a is a response to q: it has the same ID and the QR bit.
func isAnswerTo(a, q []byte) bool {
	return len(a) >= 12 && len(q) >= 12 && a[0] == q[0] && a[1] == q[1] && a[2]&0x80 != 0
}

// queryDirect queries over UDP, as the app would.
func queryDirect(ctx context.Context, resolver netip.AddrPort, query []byte) ([]byte, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "udp", resolver.String())
	if err != nil {
		return nil, err
	}
	return exchangeUDP(ctx, c, query)
}

// exchangeUDP sends the query over c and returns the answer. It closes c.
func exchangeUDP(ctx context.Context, c net.Conn, query []byte) ([]byte, error) {
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if _, err := c.Write(query); err != nil {
		return nil, err
	}
	b := make([]byte, 64<<10)
	for {
		n, err := c.Read(b)
		if err != nil {
			return nil, err
		}
		if isAnswerTo(b[:n], query) {
			return b[:n], nil
		}
	}
}

// queryBonded queries over a TCP connection. Its mark makes the kernel redirect it to the edge,
// like the app's connections.
func queryBonded(ctx context.Context, resolver netip.AddrPort, query []byte) ([]byte, error) {
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		var serr error
		err := raw.Control(func(fd uintptr) {
			serr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, dnsMark)
		})
		return errors.Join(err, serr)
	}}
	c, err := d.DialContext(ctx, "tcp", resolver.String())
	if err != nil {
		return nil, err
	}
	return exchangeTCP(ctx, c, query)
}

// exchangeTCP sends the query over c and returns the answer. It closes c. On TCP a length of two
// bytes precedes each message.
func exchangeTCP(ctx context.Context, c net.Conn, query []byte) ([]byte, error) {
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(query))), query...)); err != nil {
		return nil, err
	}
	var size [2]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil, err
	}
	answer := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(c, answer); err != nil {
		return nil, err
	}
	if !isAnswerTo(answer, query) {
		return nil, fmt.Errorf("%v answered another query", c.RemoteAddr())
	}
	return answer, nil
}

// truncateDNS fits an answer to the size that the app accepts over UDP. An answer that is too long
// is cut to its question and marked as truncated; the app then asks over TCP.
func truncateDNS(query, answer []byte) []byte {
	if len(answer) <= maxUDPAnswer(query) {
		return answer
	}
	var p dnsmessage.Parser
	h, err := p.Start(answer)
	if err != nil {
		return answer
	}
	questions, err := p.AllQuestions()
	if err != nil {
		return answer
	}
	h.Truncated = true
	cut := dnsmessage.Message{Header: h, Questions: questions}
	b, err := cut.Pack()
	if err != nil {
		return answer
	}
	return b
}

// maxUDPAnswer returns the longest answer that the sender of query accepts over UDP (RFC 6891,
// section 6.2.5).
func maxUDPAnswer(query []byte) int {
	var p dnsmessage.Parser
	if _, err := p.Start(query); err != nil {
		return dnsPlainSize
	}
	if errors.Join(p.SkipAllQuestions(), p.SkipAllAnswers(), p.SkipAllAuthorities()) != nil {
		return dnsPlainSize
	}
	for {
		h, err := p.AdditionalHeader()
		if err != nil {
			return dnsPlainSize
		}
		if h.Type == dnsmessage.TypeOPT {
			return max(dnsPlainSize, int(h.Class))
		}
		if p.SkipAdditional() != nil {
			return dnsPlainSize
		}
	}
}
