// SPDX-License-Identifier: Apache-2.0

package splice

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"mpbond/base/waittest"
)

// crashEnv is set in a process that crashes for a test, to the address that it calls.
const crashEnv = "MPBOND_TEST_CRASH"

// runCrashProcess joins two connections to addr. It panics in another goroutine when its input
// ends.
func runCrashProcess(addr string) {
	var ends [2]net.Conn
	for i := range ends {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			panic(err)
		}
		ResetOnExit(c)
		ends[i] = c
	}
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		panic("as a bug would")
	}()
	_, _, _ = Both(ends[0], ends[1])
	select {} // nothing is left to reset
}

// joinedInChild starts such a process and returns the far ends of its connections.
func joinedInChild(t *testing.T, addr string) (left, right *net.TCPConn, crash func(panics bool)) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Skip(err) // this machine has no IPv6
	}
	defer l.Close()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashEnv+"="+l.Addr().String())
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]*net.TCPConn
	for i := range ends {
		c, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		ends[i] = c.(*net.TCPConn)
	}
	return ends[0], ends[1], func(panics bool) {
		if panics {
			in.Close()
		} else {
			_ = cmd.Process.Kill()
		}
		if err := cmd.Wait(); err == nil || panics != strings.Contains(stderr.String(), "as a bug would") {
			t.Errorf("%v: %s", err, &stderr)
		}
		in.Close()
	}
}

// TestCrashResets checks that a process that is killed or panics resets its connections, even if
// one direction has ended, but not those that have ended completely.
func TestCrashResets(t *testing.T) {
	t.Parallel()
	say := func(t *testing.T, from, to *net.TCPConn) {
		t.Helper()
		if _, err := from.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(to, make([]byte, 5)); err != nil {
			t.Fatal(err)
		}
	}
	finish := func(t *testing.T, from, to *net.TCPConn) {
		t.Helper()
		_ = from.CloseWrite()
		if n, err := io.Copy(io.Discard, to); n != 0 || err != nil {
			t.Fatalf("instead of the end: %d bytes, %v", n, err)
		}
	}
	reset := func(t *testing.T, c *net.TCPConn, ended bool) {
		t.Helper()
		if !ended { // its reading direction
			if _, err := io.Copy(io.Discard, c); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("read: %v, want a reset", err)
			}
			return
		}
		var err error
		waittest.Until(t, "the reset", func() bool {
			_, err = c.Write([]byte("more"))
			return err != nil
		})
		if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
			t.Errorf("write: %v, want a reset", err)
		}
	}
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		for name, panics := range map[string]bool{"killed": false, "panic": true} {
			t.Run(name+" "+addr, func(t *testing.T) {
				left, right, crash := joinedInChild(t, addr)
				say(t, left, right)
				say(t, right, left)
				crash(panics)
				reset(t, left, false)
				reset(t, right, false)
			})
			t.Run(name+", half-closed "+addr, func(t *testing.T) {
				left, right, crash := joinedInChild(t, addr)
				say(t, left, right)
				finish(t, left, right)
				say(t, right, left)
				crash(panics)
				reset(t, left, false)
				reset(t, right, true)
			})
			t.Run(name+", closed "+addr, func(t *testing.T) {
				left, right, crash := joinedInChild(t, addr)
				say(t, left, right)
				finish(t, left, right)
				// The kernel may hold some data at the process's end.
				if _, err := right.Write(make([]byte, 100_000)); err != nil {
					t.Fatal(err)
				}
				_ = right.CloseWrite()
				if n, err := io.Copy(io.Discard, left); n != 100_000 || err != nil {
					t.Errorf("%d bytes, %v", n, err)
				}
				crash(panics)
			})
		}
	}
}
