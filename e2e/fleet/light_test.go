// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"

	"mpbond/base/identity"
	"mpbond/core/bond"
	"mpbond/core/sched"
	"mpbond/link/pairing"
	"mpbond/link/subflow"
	"mpbond/link/tcp"
	"mpbond/link/wire"
	"mpbond/node/endpoint"
)

// lightDevice is a device that has a pairing and a bond with one subflow, as a primary has them, and nothing else of a
// primary. One process holds as many as it may open files.
type lightDevice struct {
	key      *identity.Key
	endpoint *endpoint.Endpoint // nil: no bond
	streams  []*endpoint.Conn
}

// pairLight pairs a new device by a fleet's code with the server at addr, and returns it with the server's key. trust
// is an empty trust file, which it leaves empty.
func pairLight(ctx context.Context, text, addr string, trust *identity.Trust) (d *lightDevice,
	server identity.PublicKey, err error) {
	code, err := pairing.ParseCode(text)
	if err != nil {
		return nil, server, err
	}
	code.Addrs = []string{addr}
	d = &lightDevice{}
	if d.key, err = identity.Generate(); err != nil {
		return nil, server, err
	}
	p, err := pairing.CallAny(ctx, code, pairing.Self{
		Key: d.key, Trust: trust,
		About:      func() wire.PairIdentity { return wire.PairIdentity{Roles: wire.PairPrimary, Name: "light"} },
		CheckFleet: func(identity.PublicKey, []byte) error { return nil },
		JoinFleet: func(_ identity.PublicKey, _ []byte, key identity.PublicKey) (identity.Peer, error) {
			server = key
			return identity.Peer{Name: "server", Roles: []identity.Role{identity.RoleServer}, Key: key}, nil
		},
	})
	if err == nil {
		_, err = p.Finish(ctx)
	}
	return d, server, err
}

// join begins the device's bond with a server, by one subflow from a local address; "" is any. A refusal wraps a
// wire.Refuse.
func (d *lightDevice) join(ctx context.Context, addr, local string, server identity.PublicKey) error {
	c, err := tcp.Dial(ctx, addr, tcp.Options{Local: local})
	if err != nil {
		return err
	}
	var id wire.BondID
	_, _ = rand.Read(id[:]) // never fails
	sf, _, err := subflow.Join(ctx, c, d.key.ClientConfig(server, wire.ALPN),
		wire.Join{Version: wire.Version, Bond: id, Subflow: 1, Device: "light"})
	if err != nil {
		return err
	}
	scheduler, err := sched.New(sched.Default)
	if err != nil {
		return err
	}
	d.endpoint = endpoint.New(endpoint.Config{Bond: bond.Config{OpensStreams: true, Scheduler: scheduler}})
	return d.endpoint.Attach(sf)
}

// openStream opens a stream to a server that echoes, and checks that it works. A refusal by the server wraps a
// wire.Reset.
func (d *lightDevice) openStream(ctx context.Context, echo string) error {
	c, err := d.endpoint.Dial(echo, wire.ModeBond, 0)
	if err != nil {
		return err
	}
	if err = c.WaitOpen(ctx); err == nil {
		err = echoes(c)
	}
	if err != nil {
		c.Close()
		return err
	}
	d.streams = append(d.streams, c)
	return nil
}

// closeStreams closes all streams of the device.
func (d *lightDevice) closeStreams() {
	for _, c := range d.streams {
		c.Close()
	}
	d.streams = nil
}

// The programs of this test binary that serve the streams of many devices: their files are not those of the devices.
const echoProgram, sourceProgram = "echo", "source"

// runStreamServer serves at an address until the process ends: echoProgram sends back what comes, sourceProgram sends
// without end.
func runStreamServer(args []string) error {
	if len(args) != 2 || args[0] != echoProgram && args[0] != sourceProgram {
		return fmt.Errorf("unknown program %q", args)
	}
	l, err := net.Listen("tcp", args[1])
	if err != nil {
		return err
	}
	piece := make([]byte, 256<<10)
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			if args[0] == sourceProgram {
				for err == nil {
					_, err = c.Write(piece)
				}
				return
			}
			// not as a splice: that has a pipe for each connection
			_, _ = io.CopyBuffer(struct{ io.Writer }{c}, struct{ io.Reader }{c}, make([]byte, 512))
		}()
	}
}

// isFull reports whether an error says that a server is full.
func isFull(err error) bool {
	var refused wire.Refuse
	var reset wire.Reset
	return errors.As(err, &refused) && refused.Code == wire.CodeClosed ||
		errors.As(err, &reset) && reset.Code == wire.CodeLimit
}
