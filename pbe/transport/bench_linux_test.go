// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"mpbond/base/identity"
	"mpbond/link/wire"
)

// BenchmarkLoopback sends at full speed in Ethernet-sized and loopback-sized packets, and over the
// kernel's TCP for comparison. Each also runs inside TLS, as in a bond. Gbit/cpu-s uses the
// processor time of both ends, including the kernel's part.
func BenchmarkLoopback(b *testing.B) {
	sized := func(size int) func(b *testing.B) (c, s net.Conn) {
		return func(b *testing.B) (net.Conn, net.Conn) {
			c, s := connectPair(b, Options{})
			for _, x := range []*Conn{c, s} {
				x.mu.Lock()
				x.engine.mtu = mtuSearch{size: size, fixed: true}
				x.mu.Unlock()
			}
			return c, s
		}
	}
	for _, x := range []struct {
		name string
		make func(b *testing.B) (c, s net.Conn)
	}{{"UDP 1472", sized(1472)}, {"UDP 8952", sized(maxPayload)}, {"TCP", overTCP}} {
		b.Run(x.name, func(b *testing.B) {
			c, s := x.make(b)
			pumpBytes(b, c, s, c, s)
		})
		b.Run(x.name+" TLS", func(b *testing.B) {
			c, s := x.make(b)
			a, z := insideTLS(b, c, s)
			pumpBytes(b, c, s, a, z)
		})
	}
}

// overTCP returns a connection of the kernel.
func overTCP(b *testing.B) (c, s net.Conn) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	if c, err = net.Dial("tcp", l.Addr().String()); err != nil {
		b.Fatal(err)
	}
	if s, err = l.Accept(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close(); s.Close() })
	return c, s
}

// insideTLS runs TLS as a bond does inside a connection.
func insideTLS(b *testing.B, c, s net.Conn) (client, server net.Conn) {
	var keys [2]*identity.Key
	for i := range keys {
		var err error
		if keys[i], err = identity.Generate(); err != nil {
			b.Fatal(err)
		}
	}
	t := tls.Server(s, keys[1].ServerConfig(wire.ALPN, func(identity.PublicKey) bool { return true }))
	done := make(chan error, 1)
	go func() { done <- t.Handshake() }()
	u := tls.Client(c, keys[0].ClientConfig(keys[1].Public(), wire.ALPN))
	if err := errors.Join(u.Handshake(), <-done); err != nil {
		b.Fatal(err)
	}
	return u, t
}

// pumpBytes writes to one end and reads from the other, inside a connection from c to s.
func pumpBytes(b *testing.B, c, s, w, r net.Conn) {
	buf := make([]byte, 64<<10)
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			if u, ok := c.(*Conn); ok && u.WaitWritable() != nil {
				return
			}
			if _, err := w.Write(buf); err != nil {
				return
			}
		}
	}()
	in := make([]byte, len(buf))
	b.SetBytes(int64(len(buf)))
	before := cpuTime()
	for b.Loop() {
		if _, err := io.ReadFull(r, in); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)*float64(len(buf))*8/1e9/(cpuTime()-before).Seconds(), "Gbit/cpu-s")
	b.ReportMetric(float64(b.N)*float64(len(buf))*8/1e9/b.Elapsed().Seconds(), "Gbit/s")
	if u, ok := c.(*Conn); ok {
		u.mu.Lock()
		b.ReportMetric(float64(u.engine.loss.lostCount)/float64(u.engine.counts.packets)*100, "%lost")
		u.mu.Unlock()
		u.Abort()
	}
	c.Close()
	s.Close()
	<-over
}

// cpuTime returns the processor time of this process.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
