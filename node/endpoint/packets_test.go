// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"bytes"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"mpbond/link/wire"
)

// echoPackets returns all datagrams and refuses port 1.
func echoPackets(c *PacketConn) {
	for {
		r, err := c.Receive()
		if err != nil {
			c.Close()
			return
		}
		if r.Addr.Port == 1 {
			c.Refuse(wire.FlowRefused{Addr: r.Addr, Code: wire.CodeForbidden, Text: "no"})
		} else if err := c.Send(r.Bytes, r.Addr); err != nil {
			return
		}
	}
}

func TestPackets(t *testing.T) {
	p := newBondPair(t, 2, echoStream)
	p.server.mu.Lock()
	p.server.cfg.AcceptPackets = echoPackets
	p.server.mu.Unlock()
	c, err := p.client.DialPackets(false)
	if err != nil {
		t.Fatal(err)
	}
	a := wire.Addr{Name: "x", Port: 7}
	for _, n := range []int{0, 1, 1472, 65507} {
		b := randomBytes(n)
		if err := c.Send(b, a); err != nil {
			t.Fatal(err)
		}
		if r, err := c.Receive(); err != nil || !bytes.Equal(r.Bytes, b) || r.Addr != a {
			t.Fatalf("%d bytes came back as %d from %v, %v", n, len(r.Bytes), r.Addr, err)
		}
	}
	if err := c.Send(nil, wire.Addr{Name: "x", Port: 1}); err != nil {
		t.Fatal(err)
	}
	if r, err := c.Receive(); err != nil || !r.Refused || r.Code != wire.CodeForbidden || r.Addr.Port != 1 {
		t.Errorf("refused: %+v, %v", r, err)
	}
	_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
	if _, err := c.Receive(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("past the deadline: %v", err)
	}
	_ = c.SetReadDeadline(time.Time{})
	closed := make(chan error, 1)
	go func() { _, err := c.Receive(); closed <- err }()
	c.Close()
	if err := <-closed; !errors.Is(err, net.ErrClosed) {
		t.Errorf("closed: %v", err)
	}
	if err := c.Send(nil, a); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Send after Close: %v", err)
	}
}

// TestPacketsEndWithTheBond: flows end with the bond at both ends.
func TestPacketsEndWithTheBond(t *testing.T) {
	came, far := make(chan bool, 1), make(chan error, 1)
	p := newBondPair(t, 1, echoStream)
	p.server.mu.Lock()
	p.server.cfg.AcceptPackets = func(c *PacketConn) {
		for {
			if _, err := c.Receive(); err != nil {
				far <- err
				return
			}
			came <- true
		}
	}
	p.server.mu.Unlock()
	c, err := p.client.DialPackets(true)
	if err == nil {
		err = c.Send([]byte("x"), wire.Addr{Name: "x", Port: 7})
	}
	if err != nil {
		t.Fatal(err)
	}
	<-came
	c.SetApp(AppInfo{App: "curl"})
	if list := p.client.FlowList(); len(list) != 1 || list[0].App.App != "curl" || list[0].UpBytes != 1 ||
		list[0].DownBytes != 0 {
		t.Errorf("flows: %+v", list)
	}
	if list := p.server.FlowList(); len(list) != 1 || list[0].App.App != "" || list[0].UpBytes != 1 ||
		list[0].DownBytes != 0 ||
		c.IsDone() {
		t.Errorf("flows at the server: %+v", list)
	}
	if st := p.server.Status(true); st.Flows != 1 || len(st.FlowList) != 1 || st.FlowList[0].Received != 1 {
		t.Errorf("status: %+v", st)
	}
	p.client.ResetStreams(wire.CodeClosed, "over")
	if !c.IsDone() {
		t.Error("the flow is not over")
	}
	var r wire.Reset
	if _, err := c.Receive(); !errors.As(err, &r) || r.Text != "over" {
		t.Errorf("near end: %v", err)
	}
	p.server.ResetStreams(wire.CodeClosed, "over")
	if err := <-far; !errors.As(err, &r) {
		t.Errorf("far end: %v", err)
	}
}
