// Package source opens what somebody else writes all the time or has written: files,
// FIFOs and sockets. Before it stands who decodes control messages, or a front end
// with samples of the air, behind it pbe/listen and pbe/air, which read them.
package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"mpbond/base/fault"
	"mpbond/base/userfile"
)

// Tuning.
const (
	dialTimeout = 3 * time.Second
	// fifoPollInterval is how often a FIFO that nobody writes to is looked at.
	fifoPollInterval = 50 * time.Millisecond
)

// Kind is what sources of one kind have in common.
type Kind struct {
	// Content they have, as "control messages", and Files are called, as "a recording".
	Content, FileNoun string
	// IdleTimeout, if not 0, is how long nothing may come over a connection: who tells
	// something all the time is gone then.
	IdleTimeout time.Duration
}

// syntaxHint says how sources are written.
func (k *Kind) syntaxHint() string {
	return "write unix:PATH, tcp:HOST:PORT, or the path of " + k.FileNoun + " or FIFO"
}

// Source is where something comes from.
type Source struct {
	kind             *Kind
	network, address string
}

// Parse reads "unix:PATH", "tcp:HOST:PORT", or the path of a file or FIFO.
func (k *Kind) Parse(text string) (Source, error) {
	s := Source{k, "file", text}
	for _, network := range []string{"unix", "tcp"} {
		if rest, ok := strings.CutPrefix(text, network+":"); ok {
			s = Source{k, network, rest}
		}
	}
	if s.address == "" {
		return s, fault.New(fault.Config, fmt.Errorf("%q names no source of %s", text, k.Content), k.syntaxHint())
	}
	if s.network == "tcp" {
		if _, _, err := net.SplitHostPort(s.address); err != nil {
			return s, fault.New(fault.Config, fmt.Errorf("source of %s %q: %w", k.Content, text, err), k.syntaxHint())
		}
	}
	return s, nil
}

// String is what ParseSource reads.
func (s Source) String() string {
	if s.network == "file" {
		return s.address
	}
	return s.network + ":" + s.address
}

// IsPath tells whether the source is a path.
func (s Source) IsPath() bool { return s.network == "file" }

// Open connects to the source once, and waits for who writes to a FIFO until ctx
// ends, which also ends reading. Kept says that it is a file that has all from the
// beginning, and does not say when something was heard.
func (s Source) Open(ctx context.Context) (r io.ReadCloser, isFile bool, err error) {
	if s.network == "file" {
		return s.openFile(ctx)
	}
	d := net.Dialer{Timeout: dialTimeout}
	c, err := d.DialContext(ctx, s.network, s.address)
	if err != nil {
		return nil, false, fault.New(fault.Unreachable, fmt.Errorf("source of %s: %w", s.kind.Content, err), "does whoever has them run, and serve them there?")
	}
	return closeWithContext(ctx, &idleConn{c, s.kind}), false, nil
}

func (s Source) openFile(ctx context.Context) (io.ReadCloser, bool, error) {
	st, err := userfile.Stat(s.address)
	if err != nil {
		return nil, false, s.kind.openError(err)
	}
	flags := os.O_RDONLY
	switch mode := st.Mode(); {
	case mode.IsDir():
		return nil, false, fault.New(fault.Config, fmt.Errorf("source of %s: %s is a directory", s.kind.Content, s.address), s.kind.syntaxHint())
	case mode&fs.ModeSocket != 0:
		return nil, false, fault.New(fault.Config, fmt.Errorf("source of %s: %s is a socket", s.kind.Content, s.address), "write unix:"+s.address)
	case mode&fs.ModeNamedPipe != 0:
		flags |= syscall.O_NONBLOCK // else opening it waits for a writer, whatever becomes of ctx
	}
	f, err := userfile.OpenSpecial(s.address, flags)
	if err != nil {
		return nil, false, s.kind.openError(err)
	}
	if st.Mode().IsRegular() {
		return closeWithContext(ctx, f), true, nil
	}
	return closeWithContext(ctx, &fifoReader{File: f, ctx: ctx}), false, nil
}

// openError is the error of a file that cannot be opened.
func (k *Kind) openError(err error) error {
	kind, hint := fault.Other, k.syntaxHint()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		kind, hint = fault.NotFound, "is it the right path? Else "+hint
	case errors.Is(err, fs.ErrPermission):
		kind, hint = fault.Permission, "may this user read it?"
	}
	return fault.New(kind, fmt.Errorf("source of %s: %w", k.Content, err), hint)
}

// idleConn reads a connection until nothing comes over it any more.
type idleConn struct {
	net.Conn
	kind *Kind
}

func (l *idleConn) Read(b []byte) (int, error) {
	if l.kind.IdleTimeout > 0 {
		if err := l.SetReadDeadline(time.Now().Add(l.kind.IdleTimeout)); err != nil {
			return 0, err
		}
	}
	n, err := l.Conn.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fault.New(fault.Timeout, fmt.Errorf("nothing came for %v", l.kind.IdleTimeout), "does whoever has "+l.kind.Content+" still hear something?")
	}
	return n, err
}

// fifoReader reads what is written to a FIFO from when somebody does until he ends, however
// long he says nothing: to open it again in the middle would miss the head.
type fifoReader struct {
	*os.File
	ctx     context.Context
	started bool
}

func (f *fifoReader) Read(b []byte) (int, error) {
	for {
		n, err := f.File.Read(b)
		if f.started = f.started || n > 0; f.started || err != io.EOF {
			return n, err
		}
		select {
		case <-f.ctx.Done():
			return 0, f.ctx.Err()
		case <-time.After(fifoPollInterval):
		}
	}
}

// ctxReader closes what it reads when a context ends.
type ctxReader struct {
	io.ReadCloser
	stop func() bool
}

func closeWithContext(ctx context.Context, r io.ReadCloser) io.ReadCloser {
	return &ctxReader{r, context.AfterFunc(ctx, func() { r.Close() })}
}

func (e *ctxReader) Close() error {
	e.stop()
	return e.ReadCloser.Close()
}
