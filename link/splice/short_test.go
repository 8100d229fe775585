// SPDX-License-Identifier: Apache-2.0

//go:build linux

package splice

import (
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// unguarded is a connection without ResetOnExit.
type unguarded struct{ *net.TCPConn }

func (u unguarded) CloseInOrder() error { return u.TCPConn.Close() }

// guarded is the same connection with ResetOnExit.
type guarded struct{ *net.TCPConn }

// BenchmarkShort joins connections of an app and a destination that carry a byte each way. It
// reports the processor time per connection with and without ResetOnExit, including both ends of
// the test.
func BenchmarkShort(b *testing.B) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	pair := func(guard bool) (far *net.TCPConn, near net.Conn) {
		c, err := net.Dial("tcp", l.Addr().String())
		if err == nil {
			near, err = l.Accept()
		}
		if err != nil {
			b.Fatal(err)
		}
		if !guard {
			return c.(*net.TCPConn), unguarded{near.(*net.TCPConn)}
		}
		ResetOnExit(near)
		return c.(*net.TCPConn), guarded{near.(*net.TCPConn)}
	}
	once := func(guard bool) {
		left, a := pair(guard)
		right, c := pair(guard)
		done := make(chan error, 1)
		go func() {
			_, _, err := Both(a, c)
			done <- err
		}()
		for _, way := range [][2]*net.TCPConn{{left, right}, {right, left}} {
			_, _ = way[0].Write([]byte{1})
			_ = way[0].CloseWrite()
			if n, err := io.Copy(io.Discard, way[1]); n != 1 || err != nil {
				b.Fatal(n, err)
			}
		}
		if err := <-done; err != nil {
			b.Fatal(err)
		}
		left.Close()
		right.Close()
	}
	took := map[bool]time.Duration{}
	for b.Loop() {
		for _, guard := range []bool{true, false} {
			began := cpuTime()
			for range 10 {
				once(guard)
			}
			took[guard] += cpuTime() - began
		}
	}
	b.ReportMetric(float64(took[true].Microseconds())/float64(10*b.N), "guarded-µs")
	b.ReportMetric(float64(took[false].Microseconds())/float64(10*b.N), "plain-µs")
}

// cpuTime returns the processor time of this process.
func cpuTime() time.Duration {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t)
	return time.Duration(t.Nano())
}
