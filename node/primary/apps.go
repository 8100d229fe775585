// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"fmt"
	"net/netip"
	"sync"

	"mpbond/api"
	"mpbond/base/fault"
	"mpbond/node/endpoint"
)

// appStreams maps the local address of an app's connection to the stream that carries it. When the
// table has grown it drops ended streams. Safe for concurrent use; mu is held while streams are
// asked whether they are done.
type appStreams struct {
	mu    sync.Mutex
	byApp map[netip.AddrPort]*endpoint.Conn
}

// addAppStream adds the stream of an app's connection. open is the current number of streams.
func (a *appStreams) addAppStream(app netip.AddrPort, c *endpoint.Conn, open int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.byApp) > 2*open+16 {
		for addr, old := range a.byApp {
			if old.IsDone() {
				delete(a.byApp, addr)
			}
		}
	}
	if a.byApp == nil {
		a.byApp = map[netip.AddrPort]*endpoint.Conn{}
	}
	a.byApp[app] = c
}

// applyAppChunk applies a chunk announced by an app to its stream; see api.Chunk.
func (a *appStreams) applyAppChunk(c api.Chunk) error {
	addr, err := netip.ParseAddrPort(c.App)
	if err != nil {
		return fault.New(
			fault.Usage,
			fmt.Errorf("app %.60q: %w", c.App, err),
			"use the local address of the app's connection to mpbond, like 127.0.0.1:40000",
		)
	}
	if c.Bytes <= 0 {
		return fault.New(
			fault.Usage,
			fmt.Errorf("invalid chunk size of %d bytes", c.Bytes),
			"set bytes to 1 or more",
		)
	}
	a.mu.Lock()
	s := a.byApp[netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())]
	a.mu.Unlock()
	if s == nil || s.IsDone() {
		return fault.New(
			fault.NotFound,
			fmt.Errorf("mpbond carries no app connection from %v", addr),
			"use an open connection through the proxy or `mpbond run`",
		)
	}
	if c.Up {
		s.MarkChunkEnd(c.Bytes)
	} else {
		s.RequestChunk(c.Bytes)
	}
	return nil
}
