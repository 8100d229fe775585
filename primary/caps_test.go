package primary

import (
	"io"
	"net"
	"testing"
	"time"

	"mpbond/fault"
	"mpbond/policy"
)

// TestSpentLink: what is asked about in the end is the link that the connection
// has, whatever the routes told before; then nothing is sent over it.
func TestSpentLink(t *testing.T) {
	p := offline(t, time.Minute)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p.server.Addresses = []string{l.Addr().String()}
	spent := policy.Caps{Daily: 20e6}.Judge(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), 20e6, 20e6)
	p.cfg.Allowed = func(link string) policy.Allowance {
		if link == "" { // of a server on this device no link is told before
			return policy.Allowance{}
		}
		return spent
	}
	if _, err := p.direct(t.Context(), "", "laptop", 0); !fault.Is(err, fault.Limit) {
		t.Errorf("a subflow: %v", err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if b, err := io.ReadAll(c); len(b) > 0 || err != nil {
		t.Errorf("%d bytes were sent, and then %v", len(b), err)
	}
}
