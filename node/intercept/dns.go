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
	// dnsTimeout is how long one query is pursued. Resolvers of apps ask again
	// after 5 seconds and give up after two or three attempts.
	dnsTimeout = 10 * time.Second
	// dnsMaxQueries bounds the queries under way; more are dropped, as by a
	// busy network.
	dnsMaxQueries = 256
	// dnsPlainSize is the answer size that every app takes (RFC 1035, section
	// 4.2.1).
	dnsPlainSize = 512
)

// dnsForwarder answers DNS queries that were redirected to it. Each query goes
// both ways to the resolver the app asked: directly, over UDP, and through the
// bond, over TCP (RFC 7766). The first good answer wins. So a name resolves
// when either way works: when the own link is down or lossy, and when the
// resolver is a home router that the far end cannot reach.
//
// A query that is lost on both ways is lost; the app asks again.
type dnsForwarder struct {
	port       uint16 // where it listens on the loopback addresses
	conns      []*net.UDPConn
	track      *conntrack
	log        *slog.Logger
	ctx        context.Context
	cancel     context.CancelFunc
	querySlots chan struct{}
	wg         sync.WaitGroup

	// One way to ask a resolver each; replaced by tests.
	direct, bonded dnsQueryFunc
}

func newDNSForwarder(log *slog.Logger) (*dnsForwarder, error) {
	track, err := newConntrack()
	if err != nil {
		return nil, err
	}
	conns, err := listenPair("udp", 0, listenUDP)
	if err != nil {
		track.Close()
		return nil, err
	}
	f := &dnsForwarder{
		port:  portOf(conns[0]),
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

func (f *dnsForwarder) serveQueries(c *net.UDPConn) {
	local := c.LocalAddr().(*net.UDPAddr).AddrPort()
	b := make([]byte, 64<<10)
	for {
		n, app, err := c.ReadFromUDPAddrPort(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // an ICMP error for an answer the app no longer waited for
		}
		select {
		case f.querySlots <- struct{}{}:
		default:
			continue
		}
		query := append([]byte(nil), b[:n]...)
		f.wg.Go(func() {
			defer func() { <-f.querySlots }()
			// The kernel must know the app's address in its own form.
			app := netip.AddrPortFrom(app.Addr().Unmap(), app.Port())
			resolver, err := f.track.originalUDPDest(app, local)
			if err != nil {
				f.log.Debug("DNS query of unknown destination", "app", app, "err", err)
				return
			}
			if resolver == local {
				return // not redirected: it would be asked again and again
			}
			ctx, cancel := context.WithTimeout(f.ctx, dnsTimeout)
			defer cancel()
			answer, err := queryAll(ctx, &f.wg, []dnsQueryFunc{f.direct, f.bonded}, resolver, query)
			if err != nil {
				f.log.Debug("DNS query not answered", "resolver", resolver, "err", err)
				return
			}
			c.WriteToUDPAddrPort(truncateDNS(query, answer), app) //nolint:errcheck // as good as lost
		})
	}
}

// QueryDNS asks a resolver and returns its answer, cut to what the asker takes
// over UDP. Like the queries of `mpbond run` this one goes both ways, if Direct
// allows; see dnsForwarder.
func (e *Edge) QueryDNS(ctx context.Context, resolver netip.AddrPort, query []byte) ([]byte, error) {
	if !e.beginWork() {
		return nil, net.ErrClosed
	}
	defer e.wg.Done()
	ctx, cancel := context.WithTimeout(ctx, dnsTimeout)
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)()
	ways := []dnsQueryFunc{func(ctx context.Context, resolver netip.AddrPort, query []byte) ([]byte, error) {
		c, err := e.openStream(ctx, resolver.String())
		if err != nil {
			return nil, err
		}
		return exchangeTCP(ctx, c, query)
	}}
	if e.cfg.Direct != nil {
		ways = append(ways, func(ctx context.Context, resolver netip.AddrPort, query []byte) ([]byte, error) {
			c, err := e.cfg.Direct(ctx, "udp", resolver.String())
			if err != nil {
				return nil, err
			}
			return exchangeUDP(ctx, c, query)
		})
	}
	answer, err := queryAll(ctx, &e.wg, ways, resolver, query)
	if err != nil {
		return nil, err
	}
	if e.cfg.Names.isWanted() {
		e.cfg.Names.learnFromDNS(answer)
	}
	return truncateDNS(query, answer), nil
}

// A dnsQueryFunc is one way to ask a resolver.
type dnsQueryFunc func(ctx context.Context, resolver netip.AddrPort, query []byte) ([]byte, error)

// queryAll asks all ways at once and returns the first answer that settles the
// query, else any answer. What it starts it adds to wg, and ends soon.
func queryAll(ctx context.Context, wg *sync.WaitGroup, queries []dnsQueryFunc, resolver netip.AddrPort, query []byte) ([]byte, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		answer []byte
		err    error
	}
	results := make(chan result, len(queries))
	for _, way := range queries {
		wg.Go(func() {
			a, err := way(ctx, resolver, query)
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

// isConclusive tells answers about the name from those about the resolver's own
// trouble, and from those cut short.
func isConclusive(answer []byte) bool {
	var p dnsmessage.Parser
	h, err := p.Start(answer)
	return err == nil && !h.Truncated && (h.RCode == dnsmessage.RCodeSuccess || h.RCode == dnsmessage.RCodeNameError)
}

// isAnswerTo reports whether a is a response to q: the same ID and the QR bit.
func isAnswerTo(a, q []byte) bool {
	return len(a) >= 12 && len(q) >= 12 && a[0] == q[0] && a[1] == q[1] && a[2]&0x80 != 0
}

// queryDirect asks over UDP, as the app would have.
func queryDirect(ctx context.Context, resolver netip.AddrPort, query []byte) ([]byte, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "udp", resolver.String())
	if err != nil {
		return nil, err
	}
	return exchangeUDP(ctx, c, query)
}

// exchangeUDP asks over c, which it closes.
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

// queryBonded asks over a TCP connection which, by its mark, is redirected to the
// edge like those of the app.
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

// exchangeTCP asks over c, which it closes. On TCP two bytes of length precede
// a message.
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
		return nil, fmt.Errorf("%v answered something else than was asked", c.RemoteAddr())
	}
	return answer, nil
}

// truncateDNS makes an answer fit what the app said it takes over UDP: one too long
// is cut to its question and marked as truncated, upon which the app asks over
// TCP.
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

// maxUDPAnswer is the longest answer the asker of query takes over UDP (RFC 6891,
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
