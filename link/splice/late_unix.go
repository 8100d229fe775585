//go:build unix

package splice

import (
	"io"
	"net"
	"os"
	"syscall"
)

// readyReader is what readWhenReady wants of c; nil where it cannot be used.
func readyReader(c *net.TCPConn) (syscall.RawConn, error) { return c.SyscallConn() }

// readWhenReady reads into a buffer of the pool, which it takes only when there is
// something to read: idle streams are many, and their buffers would be most of
// the memory in use.
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
