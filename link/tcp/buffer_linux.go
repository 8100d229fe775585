// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
)

// fill waits for bytes and reads them behind those that are there. It has no buffer while it waits.
func (b *receiveBuffer) fill() error {
	b.err = nil
	err := b.raw.Read(b.tryFill)
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "raw-read" {
		op.Op = "read"
	}
	if err == nil {
		err = b.err
	}
	return err
}

// fillFrom reads what is there, and reports whether there was something or an error. It reads by
// package syscall, not x/sys/unix: the race detector then knows, as of each other connection, that what
// the peer did before it wrote has happened.
func (b *receiveBuffer) fillFrom(fd uintptr) bool {
	b.acquire()
	defer b.releaseIfEmpty()
	for {
		n, err := syscall.Read(int(fd), b.data[b.to:])
		switch {
		case err == syscall.EINTR:
			continue
		case err == syscall.EAGAIN:
			return false
		case err != nil:
			b.err = &net.OpError{Op: "read", Net: "tcp", Source: b.conn.LocalAddr(), Addr: b.conn.RemoteAddr(),
				Err: os.NewSyscallError("read", err)}
		case n == 0:
			b.err = io.EOF
		default:
			b.to += n
		}
		return true
	}
}
