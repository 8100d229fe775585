// SPDX-License-Identifier: Apache-2.0

package helper

import (
	"io"
	"net"
	"testing"
	"time"
)

// BenchmarkRelay moves data from a server to a primary through a helper, with TLS on the pipe. For
// comparison it runs a relay of the same shape that only calls io.Copy (which the kernel splices)
// and one that reads and writes 64 KB. Sender and receiver run in the same process, on the same
// cores.
func BenchmarkRelay(b *testing.B) {
	const chunk = 1 << 20
	run := func(b *testing.B, from io.Writer, to io.Reader) {
		b.SetBytes(chunk)
		done := make(chan error, 1)
		go func() {
			buf := make([]byte, 128<<10)
			for left := int64(b.N) * chunk; left > 0; {
				n, err := to.Read(buf)
				if left -= int64(n); err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
		buf := make([]byte, 64<<10)
		b.ResetTimer()
		for range b.N * (chunk / len(buf)) {
			if _, err := from.Write(buf); err != nil {
				b.Fatal(err)
			}
		}
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	}
	b.Run("down", func(b *testing.B) {
		w := newTestWorld(b, overTCP, "127.0.0.1:0", Config{})
		p, s, _ := w.joinSubflow()
		run(b, s, p)
	})
	b.Run("up", func(b *testing.B) {
		w := newTestWorld(b, overTCP, "127.0.0.1:0", Config{})
		p, s, _ := w.joinSubflow()
		go func() { _, _ = io.Copy(io.Discard, p) }() // acknowledgements come this way
		run(b, p, s)
	})
	b.Run("plain/splice", func(b *testing.B) {
		from, to := pipeConns(b, func(dst, src net.Conn) { _, _ = io.Copy(dst, src) })
		run(b, from, to)
	})
	b.Run("plain/copy", func(b *testing.B) {
		from, to := pipeConns(b, func(dst, src net.Conn) {
			_, _ = io.CopyBuffer(struct{ io.Writer }{dst}, struct{ io.Reader }{src}, make([]byte, 64<<10))
		})
		run(b, from, to)
	})
}

// pipeConns is a TCP relay that runs f.
func pipeConns(b *testing.B, f func(dst, src net.Conn)) (from, to net.Conn) {
	b.Helper()
	pair := func() (x, y net.Conn) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			b.Fatal(err)
		}
		defer l.Close()
		if x, err = net.DialTimeout("tcp", l.Addr().String(), time.Second); err == nil {
			y, err = l.Accept()
		}
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { x.Close(); y.Close() })
		return x, y
	}
	from, src := pair()
	dst, to := pair()
	done := make(chan struct{})
	go func() { defer close(done); f(dst, src) }()
	b.Cleanup(func() { from.Close(); to.Close(); <-done })
	return from, to
}
