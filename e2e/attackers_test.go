// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"mpbond/base/identity"
	"mpbond/link/subflow"
	"mpbond/link/tcp"
	"mpbond/link/wire"
)

// loadIdentity returns the key of this process's node and the server in its trust file.
func loadIdentity() (key *identity.Key, server identity.PublicKey, addr string, err error) {
	dir := os.Getenv("MPBOND_HOME")
	if key, err = identity.LoadKey(filepath.Join(dir, "device.key")); err != nil {
		return nil, server, "", err
	}
	trust, err := identity.OpenTrust(filepath.Join(dir, "trust.toml"))
	if err != nil {
		return nil, server, "", err
	}
	servers := trust.ByRole(identity.RoleServer)
	if len(servers) == 0 {
		return nil, server, "", errors.New("no server is trusted")
	}
	return key, servers[0].Key, servers[0].Addresses[0], nil
}

// exhaustServer is an enrolled device that sends the data that costs a server most memory. It
// prints how much it sent and stays until its input ends. Kind "pages" sends one byte into each
// page of 2,048 streams, in three bonds. Kind "gaps" sends every other byte, backwards, of one
// stream after the other.
func exhaustServer(kind string, in io.Reader, out io.Writer) error {
	key, server, addr, err := loadIdentity()
	if err != nil {
		return err
	}
	join := func(bond byte) (*subflow.Subflow, error) {
		c, err := tcp.Dial(context.Background(), addr, tcp.Options{})
		if err != nil {
			return nil, err
		}
		sf, _, err := subflow.Join(context.Background(), c, key.ClientConfig(server, wire.ALPN),
			wire.Join{Version: wire.Version, Bond: wire.BondID{bond}, Subflow: 1, Device: "hostile"})
		if err == nil {
			go func() { // discard the server's answers
				for err := error(nil); err == nil; {
					_, _, err = sf.Next()
				}
			}()
		}
		return sf, err
	}
	frames, bonds := 65_536, byte(3) // 1 GB of pages in each
	if kind == "gaps" {
		frames, bonds = 131_000, 1
	}
	var sent, cut int
	for bond := range bonds {
		sf, err := join(bond + 1)
		if err != nil {
			return err
		}
		defer sf.Close()
		var buf []byte
		for n := range frames {
			f := wire.Data{Stream: wire.StreamID(1 + n/32), Seq: wire.DataSeq(n%32<<14 + 1), Bytes: []byte("x")}
			if kind == "gaps" {
				const each = 16_000
				f.Stream, f.Seq = wire.StreamID(1+n/each), wire.DataSeq(wire.InitialWindow)-1-2*wire.DataSeq(n%each)
			}
			if buf = wire.Append(buf, f); len(buf) < 32<<10 && n < frames-1 {
				continue
			}
			sent += len(buf)
			if err := sf.Write(buf); err != nil {
				cut++
				break
			}
			buf = buf[:0]
		}
	}
	fmt.Fprintf(out, "%d bytes sent, %d of %d bonds cut off\n", sent, cut, bonds)
	_, err = io.Copy(io.Discard, in)
	return err
}

// holdIdleConns opens n connections to addr that ask for nothing and holds them until its input
// ends. A third sends one byte of SOCKS5 first, a third the beginning of an HTTP request.
// Connections that the other end closes stay closed.
func holdIdleConns(n int, addr string, in io.Reader, out io.Writer) error {
	var conns []net.Conn
	for i := range n {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			continue
		}
		_, _ = io.WriteString(c, []string{"", "\x05", "GET"}[i%3])
		conns = append(conns, c)
	}
	fmt.Fprintln(out, "held")
	_, err := io.Copy(io.Discard, in)
	for _, c := range conns {
		c.Close()
	}
	return err
}

// keepCrowd keeps 64 connections to the server from each of a number of addresses, beginning with
// first. It replaces each connection that the server ends, at up to 1,000 a second in all. The
// connections misbehave in the ways of kinds, in turn. It prints "there" when all are open, but
// after 2,000 at the latest, and the totals when its input ends.
func keepCrowd(first string, addresses int, kinds []string, in io.Reader, out io.Writer) error {
	_, server, addr, err := loadIdentity()
	if err != nil {
		return err
	}
	from, err := netip.ParseAddr(first)
	if err != nil {
		return err
	}
	stranger, err := identity.Generate()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	pace := rate.NewLimiter(1000, 10)
	var opened, ended atomic.Int64
	there := sync.OnceFunc(func() { fmt.Fprintln(out, "there") })
	var all sync.WaitGroup
	for range addresses {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: from.AsSlice()}, Timeout: 10 * time.Second}
		from = from.Next()
		for range 64 {
			all.Go(func() {
				for pace.Wait(ctx) == nil {
					c, err := dialer.DialContext(ctx, "tcp", addr)
					if err != nil {
						continue
					}
					stop := context.AfterFunc(ctx, func() { c.Close() })
					n := opened.Add(1)
					if int(n) >= min(64*addresses, 2000) {
						there()
					}
					misbehave(ctx, c, kinds[int(n)%len(kinds)], stranger.ClientConfig(server, wire.ALPN))
					_, _ = io.Copy(io.Discard, c)
					stop()
					c.Close()
					ended.Add(1)
				}
			})
		}
	}
	_, err = io.Copy(io.Discard, in)
	cancel()
	all.Wait()
	fmt.Fprintf(out, "%d connections opened, %d ended by the server\n", opened.Load(), ended.Load())
	return err
}

// misbehave does on c what a stranger may do: silence, a partial handshake or garbage.
func misbehave(ctx context.Context, c net.Conn, kind string, cfg *tls.Config) {
	switch kind {
	case "silent":
	case "byte":
		_, _ = c.Write([]byte{22})
	case "half": // a handshake without the second flight
		near, far := net.Pipe()
		go func() { _ = tls.Client(near, cfg).HandshakeContext(ctx); near.Close() }()
		b := make([]byte, 16<<10)
		n, _ := far.Read(b)
		far.Close()
		_, _ = c.Write(b[:n])
	case "stranger": // a whole handshake with an unknown key
		t := tls.Client(c, cfg)
		_ = t.HandshakeContext(ctx)
		_, _ = t.Read(make([]byte, 1))
	case "garbage":
		_, _ = io.WriteString(c, "GET / HTTP/1.1\r\n\r\n")
	case "oversize":
		_, _ = c.Write(oversizeFrame(wire.TypeHello))
	case "hello": // as a helper does, and then nothing
		_, _ = c.Write(wire.Append(nil, wire.Hello{Version: wire.Version, Name: "stranger"}))
	case "version":
		_, _ = c.Write(wire.Append(nil, wire.Hello{Version: wire.Version + 1, Name: "stranger"}))
	case "pair":
		_, _ = c.Write(append([]byte{byte(wire.TypePair), 0, 0, 4}, "nope"...))
	}
}

// runAttack runs one of these programs. The arguments after its name are its parameters.
func runAttack(args []string) error {
	number := func(i int) int { n, _ := strconv.Atoi(args[i]); return n }
	switch args[0] {
	case "exhaust":
		return exhaustServer(args[1], os.Stdin, os.Stdout)
	case "idle":
		return holdIdleConns(number(1), args[2], os.Stdin, os.Stdout)
	}
	return keepCrowd(args[1], number(2), args[3:], os.Stdin, os.Stdout)
}
