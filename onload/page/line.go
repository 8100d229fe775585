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
	dialTime    = 20 * time.Second
	reviewEvery = time.Second
)

// Line is a line of the helper, which carries something while may says so.
type Line struct {
	name string
	opt  tcp.Options
	may  func() error
	way  *http.Transport

	mu   sync.Mutex
	open map[*lineConn]bool
}

// NewLine makes one. May, unless nil, is asked before each connection, and by Keep.
func NewLine(name string, opt tcp.Options, may func() error) *Line {
	if may == nil {
		may = func() error { return nil }
	}
	l := &Line{name: name, opt: opt, may: may, open: map[*lineConn]bool{}}
	l.way = transfer.NewLine(l.dial)
	return l
}

// Device is the line, as uploads want it.
func (l *Line) Device() upload.Device { return upload.Device{Name: l.name, Transport: l.way} }

type lineConn struct {
	*tcp.Conn
	line *Line
}

func (c *lineConn) Close() error {
	c.line.mu.Lock()
	delete(c.line.open, c)
	c.line.mu.Unlock()
	return c.Conn.Close()
}

func (l *Line) dial(ctx context.Context, _, addr string) (net.Conn, error) {
	if err := l.may(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	c, err := tcp.Dial(ctx, addr, l.opt)
	if err != nil {
		return nil, err
	}
	o := &lineConn{c, l}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[o] = true
	return o, nil
}

// Keep ends connections when they may not be any more, until ctx ends.
func (l *Line) Keep(ctx context.Context) {
	t := time.NewTicker(reviewEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			l.review()
		}
	}
}

func (l *Line) review() {
	if l.may() == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		_ = c.Abort()
	}
}
