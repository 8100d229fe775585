// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package splicetest checks, in tests of packages between apps and destinations, that the sockets
// of the process follow the rule of package splice.
package splicetest

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// CheckResetOnExit checks that the kernel resets this process's connections with the given TCP port
// if the process is killed now. own selects the port of our end, otherwise that of the far end. At
// least one such connection must exist.
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
		if err != nil || portOfSockaddr(a) != port {
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

func portOfSockaddr(a unix.Sockaddr) int {
	switch a := a.(type) {
	case *unix.SockaddrInet4:
		return a.Port
	case *unix.SockaddrInet6:
		return a.Port
	}
	return 0
}
