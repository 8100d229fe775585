// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"time"

	"mpbond/e2e/rig"
)

// Ports on node web. The rig's own web server has port 80.
const (
	plainPort = "81" // TCP: the rig's plain web server
	echoPort  = "7"  // UDP
)

// runProgram runs one of this package's own programs in a node.
func runProgram(args []string) error {
	switch {
	case args[0] == "echo":
		return serveEcho()
	case args[0] == "put" && len(args) == 4:
		return uploadPlain(args[1], args[2], args[3])
	case args[0] == "datagrams" && len(args) == 3:
		return exchangeDatagrams(args[1], args[2])
	}
	return fmt.Errorf("unknown program %q", args)
}

func serveEcho() error {
	echo, err := net.ListenPacket("udp", ":"+echoPort)
	if err != nil {
		return err
	}
	for b := make([]byte, 64<<10); ; {
		n, from, err := echo.ReadFrom(b)
		if err != nil {
			return err
		}
		_, _ = echo.WriteTo(b[:n], from)
	}
}

// dialSOCKS sends a SOCKS5 command (1: connect, 3: UDP associate) for an address to the proxy at
// 127.0.0.1:1080. It returns the connection and the address in the reply.
func dialSOCKS(command byte, to netip.AddrPort) (net.Conn, netip.AddrPort, error) {
	c, err := net.Dial("tcp", "127.0.0.1:1080")
	if err != nil {
		return nil, to, err
	}
	_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
	if _, err := c.Write(appendAddr([]byte{5, 1, 0, 5, command, 0}, to)); err != nil {
		return nil, to, err
	}
	reply := make([]byte, 2+4)
	if _, err := io.ReadFull(c, reply); err != nil {
		return nil, to, err
	}
	if reply[3] != 0 {
		return nil, to, fmt.Errorf("SOCKS5 error %d", reply[3])
	}
	bound := make([]byte, map[byte]int{1: 6, 4: 18}[reply[5]])
	if _, err := io.ReadFull(c, bound); err != nil || len(bound) == 0 {
		return nil, to, fmt.Errorf("SOCKS5 reply %x: %w", reply, err)
	}
	ip, _ := netip.AddrFromSlice(bound[:len(bound)-2])
	return c, netip.AddrPortFrom(ip, binary.BigEndian.Uint16(bound[len(bound)-2:])), nil
}

// appendAddr appends a SOCKS5 address (RFC 1928 section 5) to b.
func appendAddr(b []byte, a netip.AddrPort) []byte {
	kind := byte(1)
	if a.Addr().Is6() {
		kind = 4
	}
	return binary.BigEndian.AppendUint16(append(append(b, kind), a.Addr().AsSlice()...), a.Port())
}

// uploadPlain uploads size bytes of noise, closes its sending side, and prints the answer. It
// connects through the proxy if by is "socks", and by the system's routes if by is "system".
func uploadPlain(by, to, size string) error {
	n, err := strconv.ParseInt(size, 10, 64)
	if err != nil {
		return err
	}
	addr, err := netip.ParseAddrPort(to)
	if err != nil {
		return err
	}
	var c net.Conn
	if by == "socks" {
		c, _, err = dialSOCKS(1, addr)
	} else {
		c, err = net.DialTimeout("tcp", to, time.Minute)
	}
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(3 * time.Minute))
	if _, err := fmt.Fprintf(c, "put %d\n", n); err != nil {
		return err
	}
	if _, err := io.Copy(struct{ io.Writer }{c}, rig.Noise(n)); err != nil {
		return err
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return err
	}
	got, err := io.ReadAll(c)
	if err != nil {
		return err
	}
	if want, _ := rig.Sum(rig.Noise(n)); string(got) != want {
		return fmt.Errorf("ended in order with the answer %q, want %s", got, want)
	}
	fmt.Print(string(got))
	return nil
}

const datagramCount = 150

// exchangeDatagrams sends numbered datagrams of random sizes, each with a CRC, and prints how many
// came back. A corrupt datagram is an error; a lost one is not.
func exchangeDatagrams(by, to string) error {
	addr, err := netip.ParseAddrPort(to)
	if err != nil {
		return err
	}
	target := addr
	var head []byte
	if by == "socks" {
		control, relay, err := dialSOCKS(3, netip.AddrPortFrom(netip.IPv4Unspecified(), 0))
		if err != nil {
			return err
		}
		defer control.Close()
		target, head = relay, appendAddr([]byte{0, 0, 0}, addr)
	}
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(target))
	if err != nil {
		return err
	}
	defer c.Close()
	done := make(chan error, 1)
	back := map[uint32]bool{}
	go func() {
		for b := make([]byte, 64<<10); ; {
			n, err := c.Read(b)
			if errors.Is(err, net.ErrClosed) {
				done <- nil
				return
			} else if err != nil {
				continue // an ICMP error counts as a lost datagram
			}
			p, ok := bytes.CutPrefix(b[:n], head)
			if !ok || len(p) < 8 || crc32.ChecksumIEEE(p[4:]) != binary.BigEndian.Uint32(p) {
				done <- fmt.Errorf("a wrong datagram of %d bytes", n)
				return
			}
			back[binary.BigEndian.Uint32(p[4:])] = true
		}
	}()
	for i := range uint32(datagramCount) {
		p := make([]byte, 8+rand.IntN(1300))
		for j := range p[8:] {
			p[8+j] = byte(rand.Uint32())
		}
		binary.BigEndian.PutUint32(p[4:], i)
		binary.BigEndian.PutUint32(p, crc32.ChecksumIEEE(p[4:]))
		_, _ = c.Write(append(head[:len(head):len(head)], p...))
		time.Sleep(5 * time.Millisecond) // as often as a voice call
	}
	select {
	case err := <-done:
		return err
	case <-time.After(time.Second): // wait for the last answers
	}
	c.Close()
	if err := <-done; err != nil {
		return err
	}
	fmt.Print(len(back))
	return nil
}
