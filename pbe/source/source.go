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
	// peek is how often a FIFO that nobody writes to is looked at.
	peek = 50 * time.Millisecond
)

// Kind is what sources of one kind have in common.
type Kind struct {
	// What they have, as "control messages", and Files are called, as "a recording".
	What, Files string
	// Silence, if not 0, is how long nothing may come over a connection: who tells
	// something all the time is gone then.
	Silence time.Duration
}

// hint says how sources are written.
func (k *Kind) hint() string {
	return "write unix:PATH, tcp:HOST:PORT, or the path of " + k.Files + " or FIFO"
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
		return s, fault.New(fault.Config, fmt.Errorf("%q names no source of %s", text, k.What), k.hint())
	}
	if s.network == "tcp" {
		if _, _, err := net.SplitHostPort(s.address); err != nil {
			return s, fault.New(fault.Config, fmt.Errorf("source of %s %q: %w", k.What, text, err), k.hint())
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

// File tells whether the source is a path.
func (s Source) File() bool { return s.network == "file" }

// Open connects to the source once, and waits for who writes to a FIFO until ctx
// ends, which also ends reading. Kept says that it is a file that has all from the
// beginning, and does not say when something was heard.
func (s Source) Open(ctx context.Context) (r io.ReadCloser, kept bool, err error) {
	if s.network == "file" {
		return s.openFile(ctx)
	}
	d := net.Dialer{Timeout: dialTimeout}
	c, err := d.DialContext(ctx, s.network, s.address)
	if err != nil {
		return nil, false, fault.New(fault.Unreachable, fmt.Errorf("source of %s: %w", s.kind.What, err), "does whoever has them run, and serve them there?")
	}
	return ending(ctx, &lively{c, s.kind}), false, nil
}

func (s Source) openFile(ctx context.Context) (io.ReadCloser, bool, error) {
	st, err := userfile.Stat(s.address)
	if err != nil {
		return nil, false, s.kind.unopened(err)
	}
	flags := os.O_RDONLY
	switch mode := st.Mode(); {
	case mode.IsDir():
		return nil, false, fault.New(fault.Config, fmt.Errorf("source of %s: %s is a directory", s.kind.What, s.address), s.kind.hint())
	case mode&fs.ModeSocket != 0:
		return nil, false, fault.New(fault.Config, fmt.Errorf("source of %s: %s is a socket", s.kind.What, s.address), "write unix:"+s.address)
	case mode&fs.ModeNamedPipe != 0:
		flags |= syscall.O_NONBLOCK // else opening it waits for a writer, whatever becomes of ctx
	}
	f, err := userfile.OpenSpecial(s.address, flags)
	if err != nil {
		return nil, false, s.kind.unopened(err)
	}
	if st.Mode().IsRegular() {
		return ending(ctx, f), true, nil
	}
	return ending(ctx, &fifo{File: f, ctx: ctx}), false, nil
}

// unopened is the error of a file that cannot be opened.
func (k *Kind) unopened(err error) error {
	kind, hint := fault.Other, k.hint()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		kind, hint = fault.NotFound, "is it the right path? Else "+hint
	case errors.Is(err, fs.ErrPermission):
		kind, hint = fault.Permission, "may this user read it?"
	}
	return fault.New(kind, fmt.Errorf("source of %s: %w", k.What, err), hint)
}

// lively reads a connection until nothing comes over it any more.
type lively struct {
	net.Conn
	kind *Kind
}

func (l *lively) Read(b []byte) (int, error) {
	if l.kind.Silence > 0 {
		if err := l.SetReadDeadline(time.Now().Add(l.kind.Silence)); err != nil {
			return 0, err
		}
	}
	n, err := l.Conn.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fault.New(fault.Timeout, fmt.Errorf("nothing came for %v", l.kind.Silence), "does whoever has "+l.kind.What+" still hear something?")
	}
	return n, err
}

// fifo reads what is written to a FIFO from when somebody does until he ends, however
// long he says nothing: to open it again in the middle would miss the head.
type fifo struct {
	*os.File
	ctx   context.Context
	begun bool
}

func (f *fifo) Read(b []byte) (int, error) {
	for {
		n, err := f.File.Read(b)
		if f.begun = f.begun || n > 0; f.begun || err != io.EOF {
			return n, err
		}
		select {
		case <-f.ctx.Done():
			return 0, f.ctx.Err()
		case <-time.After(peek):
		}
	}
}

// ended closes what it reads when a context ends.
type ended struct {
	io.ReadCloser
	stop func() bool
}

func ending(ctx context.Context, r io.ReadCloser) io.ReadCloser {
	return &ended{r, context.AfterFunc(ctx, func() { r.Close() })}
}

func (e *ended) Close() error {
	e.stop()
	return e.ReadCloser.Close()
}
