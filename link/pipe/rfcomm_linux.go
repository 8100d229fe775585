// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/link/estimate"
)

// rfcommBuffer bounds the kernel's send buffer, including its overhead: about 25 ms at 10 Mbit/s.
const rfcommBuffer = 32 << 10

// dialTries bounds how often a connection is retried that is reset while it is being made.
const dialTries = 3

// rfcommSocket opens a non-blocking RFCOMM socket.
func rfcommSocket() (int, error) {
	fd, err := unix.Socket(unix.AF_BLUETOOTH, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC,
		unix.BTPROTO_RFCOMM)
	if errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EPROTONOSUPPORT) {
		return 0, fault.New(fault.Config, fmt.Errorf("this kernel has no Bluetooth RFCOMM: %w", err),
			"load its modules (`modprobe rfcomm`), or use tcp://")
	}
	if err != nil {
		return 0, explainRFCOMM(os.NewSyscallError("socket", err))
	}
	return fd, nil
}

// explainRFCOMM turns an error of the kernel into a fault with a hint for Bluetooth.
func explainRFCOMM(err error) error {
	for _, h := range []struct {
		is   error
		kind fault.Kind
		hint string
	}{
		{unix.EADDRINUSE, fault.AlreadyRunning, "is mpbond already running here? Or choose another channel"},
		{unix.EBUSY, fault.Exists, "RFCOMM allows one connection per channel between two devices, and it is open"},
		{unix.ECONNREFUSED, fault.Unreachable,
			"the device answers, but nothing listens on that channel: is mpbond running on it?"},
		{unix.ECONNRESET, fault.Unreachable, "the device answers and ends the connection: is it shutting down?"},
		{unix.EHOSTDOWN, fault.Unreachable, "check that the device is on and its Bluetooth is enabled"},
		{unix.EHOSTUNREACH, fault.Unreachable, "enable Bluetooth here: `bluetoothctl power on`"},
		{unix.EADDRNOTAVAIL, fault.Config,
			"no Bluetooth adapter here has that address: `bluetoothctl list` shows them"},
		{unix.EACCES, fault.Permission, "pair the devices first: `bluetoothctl pair`"},
		{unix.ETIMEDOUT, fault.Timeout, "check that the device is near"},
	} {
		if errors.Is(err, h.is) {
			return fault.New(h.kind, err, h.hint)
		}
	}
	return err
}

// Dial implements Carrier. Linux has one session between two devices. The session ends with its
// last channel, and then resets a channel that is just being opened. Dial therefore retries after a
// reset.
func (RFCOMM) Dial(ctx context.Context, addr string) (Conn, error) {
	to, err := parseRFCOMM(addr, false)
	if err != nil {
		return nil, err
	}
	for range dialTries - 1 {
		c, err := dialRFCOMM(ctx, to)
		if !errors.Is(err, unix.ECONNRESET) {
			return c, err
		}
	}
	return dialRFCOMM(ctx, to)
}

// dialRFCOMM connects to a channel of a device. It gives up when ctx ends.
func dialRFCOMM(ctx context.Context, to rfcommAddr) (Conn, error) {
	fd, err := rfcommSocket()
	if err != nil {
		return nil, err
	}
	err = unix.Connect(fd, &unix.SockaddrRFCOMM{Addr: to.device, Channel: to.channel})
	if err != nil && err != unix.EINPROGRESS && err != unix.EAGAIN {
		unix.Close(fd)
		return nil, explainRFCOMM(fmt.Errorf("connect to %v: %w", to, err))
	}
	c, err := newRFCOMMConn(fd, to)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.SetWriteDeadline(time.Now()) })
	var failed int
	err = c.WaitWritable()
	if err == nil {
		err = c.controlSocketFD(func(fd int) (err error) {
			failed, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
			return err
		})
	}
	if err == nil && failed != 0 {
		err = syscall.Errno(failed)
	}
	if !stop() {
		err = ctx.Err()
	}
	if err != nil {
		c.Close()
		return nil, explainRFCOMM(fmt.Errorf("connect to %v: %w", to, err))
	}
	return c, nil
}

// Listen implements Carrier.
func (RFCOMM) Listen(_ context.Context, addr string) (Listener, error) {
	at, err := parseRFCOMM(addr, true)
	if err != nil {
		return nil, err
	}
	fd, err := rfcommSocket()
	if err != nil {
		return nil, err
	}
	err = unix.Bind(fd, &unix.SockaddrRFCOMM{Addr: at.device, Channel: at.channel})
	if err == nil {
		err = unix.Listen(fd, 8)
	}
	if err != nil {
		unix.Close(fd)
		return nil, explainRFCOMM(fmt.Errorf("listen on %v: %w", at, err))
	}
	c, err := newRFCOMMConn(fd, at)
	if err != nil {
		return nil, err
	}
	return &rfcommListener{c, at}, nil
}

type rfcommListener struct {
	conn *rfcommConn // only its descriptor and its closing are used
	addr rfcommAddr
}

// Accept implements Listener.
func (l *rfcommListener) Accept() (Conn, error) {
	var fd int
	var from unix.Sockaddr
	var failed error
	err := l.conn.raw.Read(func(at uintptr) bool {
		fd, from, failed = unix.Accept4(int(at), unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		return failed != unix.EAGAIN && failed != unix.EINTR
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return nil, l.conn.mapCloseError(err)
	}
	peer := rfcommAddr{}
	if s, ok := from.(*unix.SockaddrRFCOMM); ok {
		peer = rfcommAddr{s.Addr, s.Channel}
	}
	return newRFCOMMConn(fd, peer)
}

// Addr implements Listener.
func (l *rfcommListener) Addr() net.Addr { return l.addr }

// Close implements Listener.
func (l *rfcommListener) Close() error { return l.conn.Close() }

// rfcommConn is a connection or a listening socket.
type rfcommConn struct {
	file   *os.File
	raw    syscall.RawConn
	peer   rfcommAddr
	closed atomic.Bool

	mu      sync.Mutex // guards the fields below; held while writing
	corked  bool
	buf     []byte
	written uint64
}

// newRFCOMMConn makes a connection of fd and owns it.
func newRFCOMMConn(fd int, peer rfcommAddr) (*rfcommConn, error) {
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, rfcommBuffer) // optional: keeps decisions late
	f := os.NewFile(uintptr(fd), peer.String())
	raw, err := f.SyscallConn()
	if err != nil {
		f.Close()
		return nil, err
	}
	return &rfcommConn{file: f, raw: raw, peer: peer}, nil
}

// mapCloseError returns net.ErrClosed for errors after Close.
func (c *rfcommConn) mapCloseError(err error) error {
	if err != nil && c.closed.Load() {
		return net.ErrClosed
	}
	return err
}

func (c *rfcommConn) controlSocketFD(f func(fd int) error) (err error) {
	if e := c.raw.Control(func(fd uintptr) { err = f(int(fd)) }); e != nil {
		return c.mapCloseError(e)
	}
	return err
}

// Read implements net.Conn. Linux reports the end once, as a reset, to the next read or write. From
// then on reads find nothing, and only the socket's state shows that nothing will come.
func (c *rfcommConn) Read(p []byte) (n int, err error) {
	if len(p) == 0 {
		return 0, nil
	}
	e := c.raw.Read(func(fd uintptr) bool {
		ended := false
		for {
			n, err = unix.Read(int(fd), p)
			switch {
			case err == unix.EINTR:
			case err != unix.EAGAIN || ended:
				return true
			default:
				state := [1]unix.PollFd{{Fd: int32(fd)}}
				if _, err := unix.Poll(state[:], 0); err == nil && state[0].Revents&unix.POLLHUP == 0 {
					return false
				}
				ended = true // first read what came before the end
			}
		}
	})
	switch {
	case e != nil:
		return 0, c.mapCloseError(e)
	case n > 0:
		return n, nil
	case err == nil || err == unix.EAGAIN || err == unix.ECONNRESET:
		return 0, io.EOF
	}
	return 0, c.mapCloseError(os.NewSyscallError("read", err))
}

// Write implements net.Conn.
func (c *rfcommConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.corked {
		c.buf = append(c.buf, p...)
		return len(p), nil
	}
	n, err := c.file.Write(p)
	c.written += uint64(n)
	return n, c.mapCloseError(err)
}

// Cork implements Conn.
func (c *rfcommConn) Cork() {
	c.mu.Lock()
	c.corked = true
	c.mu.Unlock()
}

// Flush implements Conn.
func (c *rfcommConn) Flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.corked = false
	if len(c.buf) == 0 {
		return nil
	}
	n, err := c.file.Write(c.buf)
	c.written += uint64(n)
	c.buf = c.buf[:0]
	return c.mapCloseError(err)
}

// WaitWritable implements Conn. It waits until half the send buffer is free.
func (c *rfcommConn) WaitWritable() error {
	return c.mapCloseError(c.raw.Write(func(fd uintptr) bool {
		p := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
		n, err := unix.Poll(p[:], 0)
		return err != unix.EINTR && n != 0
	}))
}

// Probe implements Conn. Queue is the kernel memory in use, which exceeds the bytes in it. Acked
// counts the bytes that the kernel no longer holds. Round trips are unknown.
func (c *rfcommConn) Probe() (h estimate.Hop, err error) {
	err = c.controlSocketFD(func(fd int) error {
		size, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF)
		if err != nil {
			return err
		}
		room, err := unix.IoctlGetInt(fd, unix.TIOCOUTQ) // for Bluetooth sockets this is the free space
		h.Queue = unit.Bytes(max(0, size-room))
		return err
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	h.Blind = true
	h.Queue = min(h.Queue, unit.Bytes(c.written))
	h.Unsent, h.Acked = h.Queue, c.written-uint64(h.Queue)
	return h, err
}

// CloseWrite implements Conn. It always fails.
func (c *rfcommConn) CloseWrite() error {
	return fmt.Errorf("half-closing RFCOMM: %w", errors.ErrUnsupported)
}

// Close implements net.Conn.
func (c *rfcommConn) Close() error {
	c.closed.Store(true)
	if err := c.file.Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil
}

// LocalAddr implements net.Conn.
func (c *rfcommConn) LocalAddr() net.Addr {
	var a rfcommAddr
	_ = c.controlSocketFD(func(fd int) error {
		s, err := unix.Getsockname(fd)
		if s, ok := s.(*unix.SockaddrRFCOMM); ok {
			a = rfcommAddr{s.Addr, s.Channel}
		}
		return err
	})
	return a
}

// RemoteAddr implements net.Conn.
func (c *rfcommConn) RemoteAddr() net.Addr { return c.peer }

// SetDeadline implements net.Conn.
func (c *rfcommConn) SetDeadline(t time.Time) error { return c.mapCloseError(c.file.SetDeadline(t)) }

// SetReadDeadline implements net.Conn.
func (c *rfcommConn) SetReadDeadline(t time.Time) error {
	return c.mapCloseError(c.file.SetReadDeadline(t))
}

// SetWriteDeadline implements net.Conn.
func (c *rfcommConn) SetWriteDeadline(t time.Time) error {
	return c.mapCloseError(c.file.SetWriteDeadline(t))
}
