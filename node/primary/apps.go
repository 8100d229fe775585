package primary

import (
	"fmt"
	"net/netip"
	"sync"

	"mpbond/api"
	"mpbond/base/fault"
	"mpbond/node/endpoint"
)

// appStreams finds the stream that carries an app's connection by the app's own end of it.
// Streams that have ended are dropped when the table has grown. Safe for concurrent use;
// streams are asked whether they are over while its lock is held.
type appStreams struct {
	mu    sync.Mutex
	byApp map[netip.AddrPort]*endpoint.Conn
}

// addStream keeps a stream, of as many that are open in all.
func (a *appStreams) addStream(app netip.AddrPort, c *endpoint.Conn, open int) {
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

// markChunk passes on what an app says that it waits for; see api.Chunk.
func (a *appStreams) markChunk(c api.Chunk) error {
	addr, err := netip.ParseAddrPort(c.App)
	if err != nil {
		return fault.New(fault.Usage, fmt.Errorf("app %.60q: %w", c.App, err), "give the app's own end of its connection to mpbond, like 127.0.0.1:40000")
	}
	if c.Bytes <= 0 {
		return fault.New(fault.Usage, fmt.Errorf("a chunk of %d bytes", c.Bytes), "tell how many bytes are waited for, 1 or more")
	}
	a.mu.Lock()
	s := a.byApp[netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())]
	a.mu.Unlock()
	if s == nil || s.IsDone() {
		return fault.New(fault.NotFound, fmt.Errorf("no connection of an app at %v is carried", addr), "it must have been made through the proxy or by `mpbond run`, and be open")
	}
	if c.Up {
		s.Mark(c.Bytes)
	} else {
		s.Await(c.Bytes)
	}
	return nil
}
