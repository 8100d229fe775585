package endpoint

import (
	"unique"

	"mpbond/api"
)

// owner is whose a stream or flow is. Streams of one app share what it says.
// Guarded by Endpoint.mu.
type owner struct{ is unique.Handle[api.Owner] }

func (o owner) get() (none api.Owner) {
	if o == (owner{}) {
		return none
	}
	return o.is.Value()
}

// SetOwner tells whose the stream is, for status output.
func (c *Conn) SetOwner(o api.Owner) {
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	c.owner = owner{unique.Make(o)}
}

// SetOwner tells whose the flow is, for status output.
func (c *PacketConn) SetOwner(o api.Owner) {
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
