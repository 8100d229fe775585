package listen

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

	"mpbond/fault"
)

// Tuning.
const (
	dialTimeout = 3 * time.Second
	// silentSource ends a connection that nothing comes over: cells tell something each
	// millisecond, so its other end is gone.
	silentSource = 5 * time.Second
	// peek is how often a FIFO that nobody writes to is looked at.
	peek = 50 * time.Millisecond
)

// hintSource says how sources are written.
const hintSource = `write unix:PATH, tcp:HOST:PORT, or the path of a recording or FIFO`

// Source is where control messages come from, as a recording (package cell).
type Source struct{ network, address string }

// ParseSource reads "unix:PATH", "tcp:HOST:PORT", or the path of a file or FIFO.
func ParseSource(text string) (Source, error) {
	s := Source{"file", text}
	for _, network := range []string{"unix", "tcp"} {
		if rest, ok := strings.CutPrefix(text, network+":"); ok {
			s = Source{network, rest}
		}
	}
	if s.address == "" {
		return s, fault.New(fault.Config, fmt.Errorf("%q names no source of control messages", text), hintSource)
	}
	if s.network == "tcp" {
		if _, _, err := net.SplitHostPort(s.address); err != nil {
			return s, fault.New(fault.Config, fmt.Errorf("source of control messages %q: %w", text, err), hintSource)
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
		return nil, false, fault.New(fault.Unreachable, fmt.Errorf("source of control messages: %w", err), "does whoever decodes them run, and serve them there?")
	}
	return ending(ctx, &lively{c}), false, nil
}

func (s Source) openFile(ctx context.Context) (io.ReadCloser, bool, error) {
	st, err := os.Stat(s.address)
	if err != nil {
		return nil, false, unopened(err)
	}
	flags := os.O_RDONLY
	switch mode := st.Mode(); {
	case mode.IsDir():
		return nil, false, fault.New(fault.Config, fmt.Errorf("source of control messages: %s is a directory", s.address), hintSource)
	case mode&fs.ModeSocket != 0:
		return nil, false, fault.New(fault.Config, fmt.Errorf("source of control messages: %s is a socket", s.address), "write unix:"+s.address)
	case mode&fs.ModeNamedPipe != 0:
		flags |= syscall.O_NONBLOCK // else opening it waits for a writer, whatever becomes of ctx
	}
	f, err := os.OpenFile(s.address, flags, 0)
	if err != nil {
		return nil, false, unopened(err)
	}
	if st.Mode().IsRegular() {
		return ending(ctx, f), true, nil
	}
	return ending(ctx, &fifo{File: f, ctx: ctx}), false, nil
}

// unopened is the error of a file that cannot be opened.
func unopened(err error) error {
	kind, hint := fault.Other, hintSource
	switch {
	case errors.Is(err, fs.ErrNotExist):
		kind = fault.NotFound
	case errors.Is(err, fs.ErrPermission):
		kind, hint = fault.Permission, "may this user read it?"
	}
	return fault.New(kind, fmt.Errorf("source of control messages: %w", err), hint)
}

// lively reads a connection until nothing comes over it any more.
type lively struct{ net.Conn }

func (l *lively) Read(b []byte) (int, error) {
	if err := l.SetReadDeadline(time.Now().Add(silentSource)); err != nil {
		return 0, err
	}
	n, err := l.Conn.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fault.New(fault.Timeout, fmt.Errorf("nothing came for %v", silentSource), "does whoever decodes messages hear the cells?")
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
