// SPDX-License-Identifier: Apache-2.0

//go:build unix

package splice

import (
	"io"
	"net"
	"os"
	"syscall"
)

// readyReader returns the connection for readWhenReady, or nil if that cannot be used.
func readyReader(c *net.TCPConn) (syscall.RawConn, error) { return c.SyscallConn() }

// readWhenReady reads into a pooled buffer, which it takes only when data is available. Most
// streams are idle, and their buffers would otherwise use most of the memory.
func readWhenReady(raw syscall.RawConn) (b *[copyBufferSize]byte, n int, err error) {
	waited := raw.Read(func(fd uintptr) bool {
		b = buffers.Get().(*[copyBufferSize]byte)
		for {
			if n, err = syscall.Read(int(fd), b[:]); err != syscall.EINTR {
				break
			}
		}
		if err == syscall.EAGAIN {
			buffers.Put(b)
			b = nil
			return false
		}
		return true
	})
	switch {
	case waited != nil:
		return b, 0, waited
	case err != nil:
		return b, 0, os.NewSyscallError("read", err)
	case n == 0:
		return b, 0, io.EOF
	}
	return b, n, nil
}
