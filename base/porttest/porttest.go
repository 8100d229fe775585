// SPDX-License-Identifier: Apache-2.0

// Package porttest gives tests loopback addresses on which nothing listens. It has no part in the
// data path.
package porttest

import (
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
)

// Ports are below those that the kernel chooses itself, for outgoing connections and for listeners on
// port 0. So none of these takes a port before the test uses it.
const firstPort, endPort = 10_000, 32_000

// FreeAddress returns an address of 127.0.0.1 with a TCP port on which nothing listens. Until the test
// ends no other caller gets it, in any process of this network namespace. So connections to it are
// refused until the test itself, or a program that it starts, listens there.
func FreeAddress(t testing.TB) string {
	t.Helper()
	for range endPort - firstPort {
		port := firstPort + rand.IntN(endPort-firstPort)
		// An abstract socket excludes other processes, and goes with this one.
		lock, err := net.Listen("unix", fmt.Sprintf("@mpbond-test-port-%d", port))
		if err != nil {
			continue
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			lock.Close()
			continue
		}
		l.Close()
		t.Cleanup(func() { lock.Close() })
		return l.Addr().String()
	}
	t.Fatal("no port is free")
	return ""
}
