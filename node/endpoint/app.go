// SPDX-License-Identifier: Apache-2.0

package endpoint

import "unique"

// AppInfo is the app of a stream or flow, as far as the role has identified it; unknown fields are
// empty.
type AppInfo struct {
	App, Program, Label, User string
}

// appHandle is an AppInfo that streams of one app share. Endpoint.mu must be held.
type appHandle struct{ handle unique.Handle[AppInfo] }

func (o appHandle) internedAppInfo() (none AppInfo) {
	if o == (appHandle{}) {
		return none
	}
	return o.handle.Value()
}

// SetApp sets the app of the stream, for status output.
func (c *Conn) SetApp(o AppInfo) {
	c.endpoint.mu.Lock()
	defer c.endpoint.mu.Unlock()
	c.app = appHandle{unique.Make(o)}
}

// SetApp sets the app of the flow, for status output.
func (c *PacketConn) SetApp(o AppInfo) {
	c.endpoint.mu.Lock()
	defer c.endpoint.mu.Unlock()
	c.app = appHandle{unique.Make(o)}
}

// IsDone reports whether the flow has ended.
func (c *PacketConn) IsDone() bool {
	c.endpoint.mu.Lock()
	defer c.endpoint.mu.Unlock()
	return c.closed || c.flow.Err() != nil
}
