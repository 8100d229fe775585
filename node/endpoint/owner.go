package endpoint

import "unique"

// AppInfo is the app that a stream or flow belongs to, as the role found it out; unknown
// parts are empty.
type AppInfo struct {
	App, Program, Label, User string
}

// appHandle is an Owner that streams of one app share. Endpoint.mu must be held.
type appHandle struct{ handle unique.Handle[AppInfo] }

func (o appHandle) appInfo() (none AppInfo) {
	if o == (appHandle{}) {
		return none
	}
	return o.handle.Value()
}

// SetApp sets the owner of the stream, for status output.
func (c *Conn) SetApp(o AppInfo) {
	c.endpoint.mu.Lock()
	defer c.endpoint.mu.Unlock()
	c.app = appHandle{unique.Make(o)}
}

// SetApp sets the owner of the flow, for status output.
func (c *PacketConn) SetApp(o AppInfo) {
	c.endpoint.mu.Lock()
	defer c.endpoint.mu.Unlock()
	c.app = appHandle{unique.Make(o)}
}

// IsDone reports that the flow is over.
func (c *PacketConn) IsDone() bool {
	c.endpoint.mu.Lock()
	defer c.endpoint.mu.Unlock()
	return c.closed || c.flow.Err() != nil
}
