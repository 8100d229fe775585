//go:build linux

// Package splicetest is for tests of whatever stands between apps and destinations: it
// checks that the process's sockets follow the rule of package splice.
package splicetest

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// CheckResetOnExit checks that the kernel will reset those connections of this process
// whose own (or else whose far) end has a TCP port, if the process is killed now. There
// must be one.
func CheckResetOnExit(t *testing.T, port int, own bool) {
	t.Helper()
	end := unix.Getpeername
	if own {
		end = unix.Getsockname
	}
	fds, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, path := range fds {
		fd, err := strconv.Atoi(filepath.Base(path))
		if err != nil {
			continue
		}
		if _, err := unix.Getpeername(fd); err != nil {
			continue // no connection
		}
		a, err := end(fd)
		if err != nil || portOf(a) != port {
			continue
		}
		found++
		l, err := unix.GetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER)
		if err != nil || l.Onoff != 1 || l.Linger != 0 {
			target, _ := os.Readlink(path)
			t.Errorf("%s of port %d would end in order: linger %+v, %v", target, port, l, err)
		}
	}
	if found == 0 {
		t.Errorf("there is no connection of port %d", port)
	}
}

func portOf(a unix.Sockaddr) int {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return a.Port
	case *unix.SockaddrInet6:
		return a.Port
	}
	return 0
}
