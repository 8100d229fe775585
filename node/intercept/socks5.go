// SPDX-License-Identifier: Apache-2.0

package intercept

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"time"

	"mpbond/link/splice"
	"mpbond/link/wire"
)

// SOCKS5, RFC 1928. Supported: no authentication (the port listens on the loopback address),
// CONNECT, UDP ASSOCIATE (associate.go), all three address types. Not supported: BIND.
//
//	app:  05 | n | n methods              edge: 05 | 00 (no authentication) or FF (none acceptable)
//	app:  05 | command | 00 | address     edge: 05 | reply | 00 | address
//
//	address: 01 | 4 bytes | port    03 | length | name | port    04 | 16 bytes | port
const (
	socksVersion = 5

	socksNoAuth       = 0
	socksNoAcceptable = 0xff

	socksConnect   = 1
	socksAssociate = 3

	socksIPv4 = 1
	socksName = 3
	socksIPv6 = 4
)

// Reply codes of RFC 1928, section 6.
const (
	socksSucceeded          = 0
	socksFailure            = 1
	socksNotAllowed         = 2
	socksHostUnreachable    = 4
	socksRefused            = 5
	socksCommandUnsupported = 7
	socksAddressUnsupported = 8
)

// socksError is an invalid request with its reply code.
type socksError struct {
	reply byte
	text  string
}

func (e *socksError) Error() string { return e.text }

var errNoMethod = errors.New("the app insists on SOCKS5 authentication; switch it off, this port is for " +
	"this machine only")

// serveSOCKS serves a connection that begins with socksVersion.
func (e *Edge) serveSOCKS(a *appConn) {
	a.SetDeadline(time.Now().Add(handshakeTimeout)) //nolint:errcheck // reading reports it
	dest, udp, err := socksHandshake(a)
	e.markConnActive(a)
	if err == nil && udp != nil {
		e.serveAssociation(a, *udp, false)
		return
	}
	if err != nil {
		e.log.Info("SOCKS5 request refused", "app", a.RemoteAddr(), "err", err)
		a.CloseInOrder() //nolint:errcheck // there is nothing left to do
		return
	}
	c, err := e.dialProxied(a, dest)
	if err != nil {
		e.log.Info("SOCKS5 connection failed", "dest", dest, "err", err)
		a.SetDeadline(time.Now().Add(handshakeTimeout)) //nolint:errcheck // writing reports it
		writeSOCKSReply(a, socksReplyCode(err))         //nolint:errcheck // closing is all that is left
		a.CloseInOrder()                                //nolint:errcheck // as above
		return
	}
	a.SetDeadline(time.Time{}) //nolint:errcheck // reading reports it
	if err := writeSOCKSReply(a, socksSucceeded); err != nil {
		a.Close()
		splice.Reset(c)
		return
	}
	e.relayConn("socks5", a, c, dest)
}

// socksHandshake negotiates a method, reads the request and returns its destination. For an
// association it returns the announced source instead. If the RFC has a reply for an error, it was
// sent.
func socksHandshake(rw io.ReadWriter) (dest string, udp *wire.Addr, err error) {
	ok, err := readSOCKSMethods(rw)
	if err != nil {
		return "", nil, err
	}
	if !ok {
		rw.Write([]byte{socksVersion, socksNoAcceptable}) //nolint:errcheck // the connection ends here
		return "", nil, errNoMethod
	}
	if _, err := rw.Write([]byte{socksVersion, socksNoAuth}); err != nil {
		return "", nil, err
	}
	dest, udp, err = readSOCKSRequest(rw)
	var se *socksError
	if errors.As(err, &se) {
		writeSOCKSReply(rw, se.reply) //nolint:errcheck // the connection ends here
	}
	return dest, udp, err
}

// readSOCKSMethods reports whether the app accepts no authentication.
func readSOCKSMethods(r io.Reader) (bool, error) {
	var b [255]byte
	if _, err := io.ReadFull(r, b[:2]); err != nil {
		return false, fmt.Errorf("SOCKS5 greeting: %w", err)
	}
	if b[0] != socksVersion {
		return false, fmt.Errorf("SOCKS version %d is not spoken here; use SOCKS5", b[0])
	}
	methods := b[:b[1]]
	if _, err := io.ReadFull(r, methods); err != nil {
		return false, fmt.Errorf("SOCKS5 greeting: %w", err)
	}
	for _, m := range methods {
		if m == socksNoAuth {
			return true, nil
		}
	}
	return false, nil
}

// readSOCKSRequest reads exactly one request. It reads the whole request before it returns an
// error, so that the app reads the reply instead of a reset because of unread bytes.
func readSOCKSRequest(r io.Reader) (dest string, udp *wire.Addr, err error) {
	var b [257]byte // the longest part: a name and a port
	read := func(n int) []byte {
		if err == nil {
			_, err = io.ReadFull(r, b[:n])
		}
		return b[:n]
	}
	head := read(4)
	version, command, kind := head[0], head[1], head[3]
	if err == nil && version != socksVersion {
		return "", nil, fmt.Errorf("SOCKS version changed to %d within a connection", version)
	}
	var host string
	switch kind {
	case socksIPv4:
		host = netip.AddrFrom4([4]byte(read(4))).String()
	case socksIPv6:
		host = netip.AddrFrom16([16]byte(read(16))).String()
	case socksName:
		host = string(read(int(read(1)[0])))
	default:
		if err == nil {
			return "", nil, &socksError{socksAddressUnsupported, fmt.Sprintf("SOCKS5 address type %d is unknown", kind)}
		}
	}
	p := read(2)
	if err != nil {
		return "", nil, fmt.Errorf("SOCKS5 request: %w", err)
	}
	port := uint16(p[0])<<8 | uint16(p[1])
	switch command {
	case socksConnect:
	case socksAssociate: // the address is the source of the datagrams; only its port is used
		return "", &wire.Addr{Port: port}, nil
	default:
		return "", nil, &socksError{socksCommandUnsupported,
			fmt.Sprintf("SOCKS5 command %d (2 is BIND) is not supported; only CONNECT and UDP ASSOCIATE are", command)}
	}
	dest, err = parseDestination(host, port)
	if err != nil {
		return "", nil, &socksError{socksFailure, err.Error()}
	}
	return dest, nil, nil
}

// writeSOCKSReply answers a request. The bound address is unknown and, as in other servers, given
// as 0.0.0.0:0.
func writeSOCKSReply(w io.Writer, reply byte) error {
	_, err := w.Write([]byte{socksVersion, reply, 0, socksIPv4, 0, 0, 0, 0, 0, 0})
	return err
}

// socksReplyCode returns the reply code for a stream that could not be opened.
func socksReplyCode(err error) byte {
	switch refusalCode(err) {
	case wire.CodeForbidden:
		return socksNotAllowed
	case wire.CodeUnreachable, wire.CodeNameNotFound, wire.CodeTimeout:
		return socksHostUnreachable
	case wire.CodeConnRefused:
		return socksRefused
	}
	return socksFailure
}

// parseDestination checks the destination of an app and returns it as "host:port". It accepts
// addresses without a zone, and names without bytes that could be misread later.
func parseDestination(host string, port uint16) (string, error) {
	if port == 0 {
		return "", errors.New("port 0 cannot be connected to")
	}
	p := strconv.Itoa(int(port))
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip.Zone() != "" {
			return "", fmt.Errorf("%s is an address of this machine's own link, which the bond does not reach", host)
		}
		return net.JoinHostPort(ip.Unmap().String(), p), nil
	}
	if host == "" || len(host) > 255 {
		return "", fmt.Errorf("a host name has 1 to 255 bytes, not %d", len(host))
	}
	for _, c := range []byte(host) {
		switch {
		case c <= ' ', c == 0x7f, c == ':', c == '/', c == '@', c == '[', c == ']', c == '%', c == '?',
			c == '#', c == '\\':
			return "", fmt.Errorf("%q is not a host name", host)
		}
	}
	return net.JoinHostPort(host, p), nil
}
