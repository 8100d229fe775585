// SPDX-License-Identifier: Apache-2.0

package playlist

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"

	"mpbond/link/splice/splicetest"
)

// TestKilledProxyResets checks that the kill of a proxy resets its connections to players and
// servers.
func TestKilledProxyResets(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = io.Copy(c, c)
			c.Close()
		}
	}()
	address := realServer(t)
	c, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprintf(c, "CONNECT %[1]v HTTP/1.1\r\nHost: %[1]v\r\n\r\n", l.Addr())
	in := bufio.NewReader(c)
	if a, err := http.ReadResponse(in, nil); err != nil || a.StatusCode != http.StatusOK {
		t.Fatal(a, err)
	}
	_, _ = io.WriteString(c, "hello")
	if _, err := io.ReadFull(in, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	splicetest.CheckResetOnExit(t, c.RemoteAddr().(*net.TCPAddr).Port, true)
	splicetest.CheckResetOnExit(t, l.Addr().(*net.TCPAddr).Port, false)
}
