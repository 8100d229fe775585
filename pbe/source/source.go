// SPDX-License-Identifier: Apache-2.0

// Package source opens data that another program writes continuously or has written: files, FIFOs
// and sockets. The data are control messages from a decoder, or IQ samples from a radio front end;
// pbe/listen and pbe/air read them.
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
	// fifoPollInterval is how often a FIFO without a writer is polled.
	fifoPollInterval = 50 * time.Millisecond
)

// Kind describes sources with one kind of content.
type Kind struct {
	// Content names the data, such as "control messages". FileNoun names a file of it, such as "a
	// recording".
	Content, FileNoun string
	// IdleTimeout, if not 0, is how long a connection may be silent before it counts as dead.
	IdleTimeout time.Duration
}

// syntaxHint returns a hint on how to write sources.
func (k *Kind) syntaxHint() string {
	return "write unix:PATH, tcp:HOST:PORT, or the path of " + k.FileNoun + " or FIFO"
}

// Source is a parsed source.
type Source struct {
	kind             *Kind
	network, address string
}

// Parse parses "unix:PATH", "tcp:HOST:PORT", or the path of a file or FIFO.
func (k *Kind) Parse(text string) (Source, error) {
	s := Source{k, "file", text}
	for _, network := range []string{"unix", "tcp"} {
		if rest, ok := strings.CutPrefix(text, network+":"); ok {
			s = Source{k, network, rest}
		}
	}
	if s.address == "" {
		return s, fault.New(fault.Config, fmt.Errorf("invalid source of %s: %q", k.Content, text), k.syntaxHint())
	}
	if s.network == "tcp" {
		if _, _, err := net.SplitHostPort(s.address); err != nil {
			return s, fault.New(fault.Config, fmt.Errorf("source of %s %q: %w", k.Content, text, err), k.syntaxHint())
		}
	}
	return s, nil
}

// String returns the text for Parse.
func (s Source) String() string {
	if s.network == "file" {
		return s.address
	}
	return s.network + ":" + s.address
}

// IsPath reports whether the source is a path.
func (s Source) IsPath() bool { return s.network == "file" }

// Open opens the source once. For a FIFO, reading waits for a writer. When ctx ends, so does
// reading, with ctx's error. isFile reports a regular file, which has its whole content at once and
// no arrival times.
func (s Source) Open(ctx context.Context) (r io.ReadCloser, isFile bool, err error) {
	if s.network == "file" {
		return s.openFileOrFIFO(ctx)
	}
	d := net.Dialer{Timeout: dialTimeout}
	c, err := d.DialContext(ctx, s.network, s.address)
	if err != nil {
		return nil, false, fault.New(fault.Unreachable, fmt.Errorf("source of %s: %w", s.kind.Content, err),
			"check that the program that serves them runs, and the address")
	}
	return closeWithContext(ctx, &idleConn{c, s.kind}), false, nil
}

// openFileOrFIFO opens a file or FIFO. The second result reports whether it is a regular file.
func (s Source) openFileOrFIFO(ctx context.Context) (io.ReadCloser, bool, error) {
	st, err := userfile.Stat(s.address)
	if err != nil {
		return nil, false, s.kind.explainOpenError(err)
	}
	flags := os.O_RDONLY
	switch mode := st.Mode(); {
	case mode.IsDir():
		return nil, false, fault.New(fault.Config,
			fmt.Errorf("source of %s: %s is a directory", s.kind.Content, s.address), s.kind.syntaxHint())
	case mode&fs.ModeSocket != 0:
		return nil, false, fault.New(fault.Config,
			fmt.Errorf("source of %s: %s is a socket", s.kind.Content, s.address), "write unix:"+s.address)
	case mode&fs.ModeNamedPipe != 0:
		flags |= syscall.O_NONBLOCK // otherwise opening waits for a writer, even after ctx ends
	}
	f, err := userfile.OpenSpecial(s.address, flags)
	if err != nil {
		return nil, false, s.kind.explainOpenError(err)
	}
	if st.Mode().IsRegular() {
		return closeWithContext(ctx, f), true, nil
	}
	return closeWithContext(ctx, &fifoReader{File: f, ctx: ctx}), false, nil
}

// explainOpenError returns the error for a file that cannot be opened.
func (k *Kind) explainOpenError(err error) error {
	kind, hint := fault.Other, k.syntaxHint()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		kind, hint = fault.NotFound, "check the path, or "+hint
	case errors.Is(err, fs.ErrPermission):
		kind, hint = fault.Permission, "make it readable for this user"
	}
	return fault.New(kind, fmt.Errorf("source of %s: %w", k.Content, err), hint)
}

// idleConn is a connection with an idle timeout.
type idleConn struct {
	net.Conn
	kind *Kind
}

// Read is net.Conn's Read. It fails after the idle timeout of the kind.
func (l *idleConn) Read(b []byte) (int, error) {
	if l.kind.IdleTimeout > 0 {
		if err := l.SetReadDeadline(time.Now().Add(l.kind.IdleTimeout)); err != nil {
			return 0, err
		}
	}
	n, err := l.Conn.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fault.New(fault.Timeout, fmt.Errorf("no data for %v", l.kind.IdleTimeout),
			"check that the source of "+l.kind.Content+" still receives something")
	}
	return n, err
}

// fifoReader reads a FIFO from its first writer until that one closes it, however long it is
// silent: after reopening it in the middle the head would be missing.
type fifoReader struct {
	*os.File
	ctx     context.Context
	started bool
}

// Read waits for the first writer of a FIFO; the end of later ones is the end of the input.
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

// ctxReader is closed when a context ends.
type ctxReader struct {
	io.ReadCloser
	ctx  context.Context
	stop func() bool
}

func closeWithContext(ctx context.Context, r io.ReadCloser) io.ReadCloser {
	return &ctxReader{r, ctx, context.AfterFunc(ctx, func() { r.Close() })}
}

// Read returns the context's error, not one of a closed file, if the context has ended. Readers
// cannot rely on a context of their own for this: it may end a moment later.
func (e *ctxReader) Read(b []byte) (int, error) {
	n, err := e.ReadCloser.Read(b)
	if err != nil && e.ctx.Err() != nil {
		err = e.ctx.Err()
	}
	return n, err
}

func (e *ctxReader) Close() error {
	e.stop()
	return e.ReadCloser.Close()
}
