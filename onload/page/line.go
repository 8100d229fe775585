// SPDX-License-Identifier: Apache-2.0

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

// Limits of lines.
const (
	dialTimeout    = 20 * time.Second
	reviewInterval = time.Second
)

// Line is an Internet connection of the helper, which is used only while checkAllowed permits it.
type Line struct {
	name         string
	opt          tcp.Options
	checkAllowed func() error
	transport    *http.Transport

	mu        sync.Mutex
	openConns map[*lineConn]bool
}

// NewLine returns a line. may, unless nil, is called before each connection and periodically by
// RunReviews; an error means that the line must not be used.
func NewLine(name string, opt tcp.Options, may func() error) *Line {
	if may == nil {
		may = func() error { return nil }
	}
	l := &Line{name: name, opt: opt, checkAllowed: may, openConns: map[*lineConn]bool{}}
	l.transport = transfer.NewTransport(l.dialContext)
	return l
}

// Device returns the line as a device for uploads.
func (l *Line) Device() upload.Device { return upload.Device{Name: l.name, Transport: l.transport} }

// lineConn is an open connection of a line.
type lineConn struct {
	*tcp.Conn
	line *Line
}

// Close implements net.Conn.
func (c *lineConn) Close() error {
	c.line.mu.Lock()
	delete(c.line.openConns, c)
	c.line.mu.Unlock()
	return c.Conn.Close()
}

// dialContext connects to addr if the line may be used.
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

// RunReviews aborts connections as soon as the line must not be used any more. It returns when ctx
// ends.
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

// abortForbidden aborts all connections if the line must not be used.
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
