// SPDX-License-Identifier: Apache-2.0

package intercept

import (
	"context"
	"io"
	"net"
	"testing"

	"mpbond/link/splice/splicetest"
	"mpbond/link/wire"
)

// TestKilledEdgeResets checks that a killed process resets connections around the bond, direct
// ones, and those of apps.
func TestKilledEdgeResets(t *testing.T) {
	server := tcpServer(t, func(c *net.TCPConn) { _, _ = io.Copy(c, c) })
	to, err := net.ResolveTCPAddr("tcp", server)
	if err != nil {
		t.Fatal(err)
	}
	plain := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, server)
	}
	for name, d := range map[string]Dialer{
		"around": &aroundDialer{fakeBond: &fakeBond{}, around: map[string]bool{"s.test:80": true}},
		"direct": &fakeBond{refuse: map[string]wire.Code{"s.test:80": wire.CodeForbidden}},
	} {
		t.Run(name, func(t *testing.T) {
			_, proxy := startProxy(t, Config{Dialer: d, Direct: plain, Around: plain})
			c, _ := socksDial(t, proxy, "s.test")
			_, _ = io.WriteString(c, "hello")
			if _, err := io.ReadFull(c, make([]byte, 5)); err != nil {
				t.Fatal(err)
			}
			splicetest.CheckResetOnExit(t, to.Port, false)
			splicetest.CheckResetOnExit(t, c.RemoteAddr().(*net.TCPAddr).Port, true)
		})
	}
}
