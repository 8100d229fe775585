package page

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"mpbond/link/tcp"
	"mpbond/onload/transfer"
	"mpbond/onload/upload"
)

// Times of lines.
const (
	dialTimeout    = 20 * time.Second
	reviewInterval = time.Second
)

// Line is a line of the helper, which carries something while may says so.
type Line struct {
	name         string
	opt          tcp.Options
	checkAllowed func() error
	transport    *http.Transport

	mu        sync.Mutex
	openConns map[*lineConn]bool
}

// NewLine makes one. May, unless nil, is asked before each connection, and by Keep.
func NewLine(name string, opt tcp.Options, may func() error) *Line {
	if may == nil {
		may = func() error { return nil }
	}
	l := &Line{name: name, opt: opt, checkAllowed: may, openConns: map[*lineConn]bool{}}
	l.transport = transfer.NewTransport(l.dialContext)
	return l
}

// Device is the line, as uploads want it.
func (l *Line) Device() upload.Device { return upload.Device{Name: l.name, Transport: l.transport} }

type lineConn struct {
	*tcp.Conn
	line *Line
}

func (c *lineConn) Close() error {
	c.line.mu.Lock()
	delete(c.line.openConns, c)
	c.line.mu.Unlock()
	return c.Conn.Close()
}

func (l *Line) dialContext(ctx context.Context, _, addr string) (net.Conn, error) {
	if err := l.checkAllowed(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	c, err := tcp.Dial(ctx, addr, l.opt)
	if err != nil {
		return nil, err
	}
	o := &lineConn{c, l}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.openConns[o] = true
	return o, nil
}

// RunReviews ends connections when they may not be any more, until ctx ends.
func (l *Line) RunReviews(ctx context.Context) {
	t := time.NewTicker(reviewInterval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			l.abortForbidden()
		}
	}
}

func (l *Line) abortForbidden() {
	if l.checkAllowed() == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.openConns {
		_ = c.Abort()
	}
}
