// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// relayOffset is the distance between a port of the web node and the relay's port.
const relayOffset = 10000

// relayScheme is a plain TCP relay in Go on the server, over the direct path alone. It shows what a
// program between two connections can reach on a machine.
type relayScheme struct {
	schemeDefaults
	copyBytes bool // read and write; otherwise the bytes stay in the kernel
}

func (r *relayScheme) Start(ctx context.Context, b *Bench) error {
	if err := b.StartWeb(ctx); err != nil {
		return err
	}
	web, err := b.Lab.Topology.Addr("web", "")
	if err != nil {
		return err
	}
	for _, port := range []int{webPort, sinkPort} {
		listen, target := fmt.Sprintf(":%d", port+relayOffset), fmt.Sprintf("%s:%d", web, port)
		argv := []string{"relay", listen, target}
		if r.copyBytes {
			argv = append(argv, "--copy")
		}
		if err := b.SpawnSelf(ctx, "server", port+relayOffset, argv...); err != nil {
			return err
		}
	}
	return nil
}

func (*relayScheme) Client(b *Bench, t Transfer) []string {
	server, _ := b.Lab.Topology.Addr("server", b.Lab.Topology.linkBetween("primary", "server"))
	port := webPort
	if t.Upload {
		port = sinkPort
	}
	return append(b.FetchCommand(t), "--connect-to", fmt.Sprintf("::%s:%d", server, port+relayOffset))
}

// Relay connects every connection to listen with one to target, until ctx ends. io.Copy between TCP
// connections is splice(2), so that bytes stay in the kernel, unless copies asks for reading and
// writing.
func Relay(ctx context.Context, listen, target string, copies bool) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { l.Close() })()
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		go relayToTarget(c, target, copies)
	}
}

// relayBuffer is the buffer size of a relay that copies.
const relayBuffer = 64 << 10

// relayToTarget relays both directions of c to target.
func relayToTarget(c net.Conn, target string, copies bool) {
	defer c.Close()
	d, err := net.Dial("tcp", target)
	if err != nil {
		return
	}
	defer d.Close()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{c, d}, {d, c}} {
		both.Go(func() {
			if copies { // hide the methods that io.Copy would use
				_, _ = io.CopyBuffer(struct{ io.Writer }{way[0]}, struct{ io.Reader }{way[1]},
					make([]byte, relayBuffer))
			} else {
				_, _ = io.Copy(way[0], way[1])
			}
			_ = way[0].(*net.TCPConn).CloseWrite()
		})
	}
	both.Wait()
}
