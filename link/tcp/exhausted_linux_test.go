// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"context"
	"net"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// TestAcceptSurvivesExhaustion checks that Accept waits when descriptors run out. Failing would end
// a server.
func TestAcceptSurvivesExhaustion(t *testing.T) {
	l, err := Listen(context.Background(), "127.0.0.1:0", Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String()) // the kernel completes it before Accept
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	free := uint64(f.Fd()) // the lowest free descriptor, once f is closed
	f.Close()
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	restore := func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	}
	defer restore()
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: free, Max: before.Max}); err != nil {
		t.Fatal(err)
	}
	pauses := 0
	l.pause = func() { pauses++; restore() }
	a, err := l.Accept()
	if err != nil {
		t.Fatalf("Accept once there are descriptors again: %v", err)
	}
	a.Close()
	if pauses != 1 {
		t.Errorf("%d pauses, want 1", pauses)
	}
}
