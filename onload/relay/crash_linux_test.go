// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"io"
	"net"
	"strconv"
	"testing"

	"mpbond/link/splice/splicetest"
)

// TestKilledRelayResets checks that the kill of a helper resets its connections to servers.
func TestKilledRelayResets(t *testing.T) {
	w := newWorld(t)
	server := echoServer(t)
	_, port, _ := net.SplitHostPort(server)
	n, _ := strconv.Atoi(port)
	c, err := w.dialer(keys().laptop).DialContext(t.Context(), "tcp", server)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "hello"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	splicetest.CheckResetOnExit(t, n, false)
}
