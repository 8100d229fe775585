// SPDX-License-Identifier: Apache-2.0

package porttest

import (
	"errors"
	"net"
	"syscall"
	"testing"
)

// TestFreeAddress checks that addresses differ, refuse connections, and can be listened on.
func TestFreeAddress(t *testing.T) {
	got := map[string]bool{}
	for range 600 {
		addr := FreeAddress(t)
		if got[addr] {
			t.Fatalf("%s was given twice", addr)
		}
		got[addr] = true
		if c, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("%s: %v, %v", addr, c, err)
		}
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
}
