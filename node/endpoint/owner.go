package endpoint

import "unique"

// Owner is the app that a stream or flow belongs to, as the role found it out; unknown
// parts are empty.
type Owner struct {
	App, Program, Label, User string
}

// owner is an Owner that streams of one app share. Endpoint.mu must be held.
type owner struct{ is unique.Handle[Owner] }

func (o owner) get() (none Owner) {
	if o == (owner{}) {
		return none
	}
	return o.is.Value()
}

// SetOwner sets the owner of the stream, for status output.
func (c *Conn) SetOwner(o Owner) {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	c.owner = owner{unique.Make(o)}
}

// SetOwner sets the owner of the flow, for status output.
func (c *PacketConn) SetOwner(o Owner) {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	c.owner = owner{unique.Make(o)}
}

// Done reports that the flow is over.
func (c *PacketConn) Done() bool {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	return c.closed || c.f.Err() != nil
}
