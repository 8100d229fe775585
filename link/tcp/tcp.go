// SPDX-License-Identifier: Apache-2.0

// Package tcp prepares kernel TCP connections for bonding: late decisions, observable state, few
// system calls. It stands below the transports of subflow (PS-path) and pipe (pipe, HS-path) and
// above the kernel. It knows nothing about frames, keys or roles.
//
// Late decisions: bytes that the kernel holds unsent can no longer be given to another subflow. So
// a writer calls WaitWritable, which returns when little is left unsent, chooses its next segment
// only then, and writes that one segment. A plain blocking Write would not work: it fills the send
// buffer whatever TCP_NOTSENT_LOWAT says.
package tcp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
)

// Tuning.
const (
	// DefaultNotSentLowat is the low-water mark of unsent bytes. With segments of 16 KB it keeps
	// the full rate of a 10 Mbit/s link with 16–24 KB unsent. Smaller segments cost two to three
	// times the CPU.
	DefaultNotSentLowat = 16 * unit.KB
	// DefaultKeepAlive is the silence after which the kernel probes the peer. A dead peer is
	// noticed after four unanswered probes, 20 s later. Keep-alives are the only traffic of an idle
	// connection, so they are rare.
	DefaultKeepAlive = 30 * time.Second
	// RadioKeepAlive is DefaultKeepAlive for an HS-path, and for a direct subflow over a cellular
	// link. Nothing else may wake the radio of an unused device. It is shorter than the five
	// minutes after which some NATs drop a silent connection.
	RadioKeepAlive = 4 * time.Minute
	keepAliveEvery = 5 * time.Second
	keepAliveCount = 4

	// With RetransmitOften, the time between two retransmissions is at most retransmitRoundTrips round
	// trips, and at least retransmitBound, the least that the kernel accepts. Fewer round trips would
	// bound the first timeout too, which depends on how much they vary.
	retransmitRoundTrips = 4
	retransmitBound      = time.Second
	maxRetransmitBound   = 2 * time.Minute // the kernel's own
)

// OwnMark is the firewall mark of mpbond's own sockets on a machine that sends other traffic to a
// TUN device: "mpbd".
const OwnMark = 0x6d706264

// Congestion controls that exist only over UDP (package pbe/transport). PBE names PBE-CC, which
// needs reports that only UDP transports carry. Copa names Copa, which no system offers for TCP.
const (
	PBE  = "pbe"
	Copa = "copa"
)

// overUDP are the congestion controls of package pbe/transport. They need nothing of the kernel.
var overUDP = map[string]bool{"cubic": true, "bbr": true, Copa: true, PBE: true}

// CheckCongestion reports whether this process may use the congestion control, so that a wrong name
// is found before the first connection. The empty name is the system's default. If udp is true,
// names that exist over UDP are valid, whatever the system has for TCP. Errors are faults.
func CheckCongestion(name string, udp bool) error {
	switch {
	case name == "" || udp && overUDP[name]:
		return nil
	case name == Copa || name == PBE:
		return fault.New(fault.Config, fmt.Errorf("congestion control %q works over UDP only, and UDP is off",
			name), "enable `udp`, or set another congestion control")
	}
	return checkCongestion(name)
}

// selectCongestion sets the congestion control of a TCP socket. A name that exists over UDP, but
// not in this system, selects the system's default: CheckCongestion has rejected it where UDP is
// off.
func selectCongestion(fd int, name string) error {
	if name == "" || name == Copa || name == PBE {
		return nil
	}
	if err := setCongestionName(fd, name); err != nil && !overUDP[name] {
		return err
	}
	return nil
}

// Options are the settings of a connection or listener. The zero value is usable.
type Options struct {
	// Congestion names the congestion control of the sending side, as listed in
	// /proc/sys/net/ipv4/tcp_available_congestion_control. Empty, and a name that exists over UDP
	// only, leave it to package congestion if the system's default is CUBIC, otherwise to the
	// system.
	Congestion string
	// Interface binds to a network device by name, Local to a local address ("192.0.2.7" or
	// "192.0.2.7:0"). Dial only.
	Interface string
	Local     string
	// Mark is the socket's firewall mark; 0 is none. It requires CAP_NET_ADMIN.
	Mark int
	// MaxSegment bounds the data of a packet in both directions; 0 leaves it to the interfaces.
	// Dial only.
	MaxSegment unit.Bytes
	// CheckAddress, if not nil, is called with each resolved address before connecting. Its error
	// ends the attempt. Dial only.
	CheckAddress func(netip.AddrPort) error
	// NotSentLowat is the low-water mark of WaitWritable; 0 is DefaultNotSentLowat.
	NotSentLowat unit.Bytes
	// KeepAlive is the silence before the first keep-alive probe; 0 is DefaultKeepAlive, a negative
	// value disables probes.
	KeepAlive time.Duration
	// UserTimeout ends a connection if its data is not acknowledged for this long; 0 is the
	// kernel's limit, about 15 minutes. Linux also applies it to a peer that keeps its window
	// closed: do not use it where back-pressure may last.
	UserTimeout time.Duration
	// RetransmitOften makes TCP retransmit about once a second while nothing is acknowledged, so that
	// the connection moves soon after an outage. The kernel alone doubles the time up to 2 minutes. It
	// needs Linux 6.15. Set a UserTimeout too: without one, the connection would end after 15
	// retransmissions.
	RetransmitOften bool
	// Ledger, if not nil, is notified of each connection.
	Ledger Ledger
}

// Ledger counts what connections carry. Many goroutines call its methods, which must not close the
// connection.
type Ledger interface {
	// Opened is called with each connection that is ready.
	Opened(*Conn)
	// Closing is called once before the connection closes. From then on only data that the kernel
	// still holds is sent. Carried can be called here for the last time.
	Closing(*Conn)
	// Carrying is called when the connection has received bytes or is about to send some: often, so
	// it must be quick.
	Carrying()
}

// Conn is a TCP connection. Reads go through a large buffer, so that a reader of small pieces
// (crypto/tls) makes few system calls. Several goroutines may call its methods, but only one at a
// time may read.
type Conn struct {
	tcpConn *net.TCPConn
	raw     syscall.RawConn
	r       *receiveBuffer

	ipv6        bool   // the connection uses IPv6
	ledger      Ledger // or nil
	closingOnce sync.Once
	device      string                 // Options.Interface
	peer        atomic.Pointer[string] // see For
	discarded   atomic.Bool            // data in the kernel will not be sent any more
	unsentBytes atomic.Uint64          // bytes that TCP counts as sent although the interface's queue refused them

	ackedBefore uint64        // acknowledged bytes before our first one (the SYN)
	written     atomic.Uint64 // bytes that the kernel has accepted
	resetSeen   atomic.Bool   // a write has failed by a reset
	pace        atomic.Int64  // bit/s; 0: none

	retransmitOften bool
	retransmitBound atomic.Int64 // ns; 0: the kernel's own

	congestion *congestionChooser // nil: the hop does not choose

	gapMu sync.Mutex // guards gap
	gap   receiveGap

	mu     sync.Mutex // guards the fields below; held while writing
	corked bool
	buf    *bytes.Buffer // from corkBuffers; nil while nothing waits
}

// Wrap takes over c, on which nothing may have been sent, and applies opt. On failure it closes c.
func Wrap(c *net.TCPConn, opt Options) (*Conn, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		c.Close()
		return nil, err
	}
	t := &Conn{tcpConn: c, raw: raw, r: newReceiveBuffer(c, raw)}
	if err := t.applyOptions(opt); err != nil {
		c.Close()
		return nil, err
	}
	if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		t.ipv6 = a.IP.To4() == nil
	}
	t.ackedBefore = readAckedBytes(raw)
	if t.retransmitOften = opt.RetransmitOften; t.retransmitOften {
		if _, err := t.Probe(); err != nil { // sets the bound
			c.Close()
			return nil, err
		}
	}
	t.ledger, t.device = opt.Ledger, opt.Interface
	if opt.Congestion == "" || opt.Congestion == Copa || opt.Congestion == PBE {
		t.startCongestionChoice()
	}
	if t.ledger != nil {
		t.ledger.Opened(t)
	}
	return t, nil
}

// SetPeerName sets the name of the peer, once it is known. A Ledger reads it with Peer.
func (c *Conn) SetPeerName(peer string) { c.peer.Store(&peer) }

// Peer returns the name that SetPeerName set, or "".
func (c *Conn) Peer() string {
	if p := c.peer.Load(); p != nil {
		return *p
	}
	return ""
}

// LimitWindow bounds how much the peer may have in flight towards us, once it has used up the
// window that it already has. The minimum is 2 KB. A large limit removes the bound. Outside Linux
// it does nothing.
func (c *Conn) LimitWindow(n unit.Bytes) error {
	return controlRawConn(c.raw, func(fd int) error { return setWindowClamp(fd, int(min(n, 1<<30))) })
}

// Interface returns the network device that the connection is bound to, "" if the routes decide.
func (c *Conn) Interface() string { return c.device }

// notifyClosing notifies the ledger, once, that the connection is about to close.
func (c *Conn) notifyClosing() {
	if c.ledger != nil {
		c.closingOnce.Do(func() { c.ledger.Closing(c) })
	}
}

// applyOptions sets the socket options of a connection.
func (c *Conn) applyOptions(opt Options) error {
	if err := c.tcpConn.SetNoDelay(true); err != nil { // segments are chosen above; their tails must not wait
		return err
	}
	if err := c.SetKeepAlive(opt.KeepAlive); err != nil {
		return err
	}
	if err := controlRawConn(c.raw, func(fd int) error { return selectCongestion(fd, opt.Congestion) }); err != nil {
		return err
	}
	if opt.UserTimeout > 0 {
		if err := controlRawConn(c.raw, func(fd int) error { return setUserTimeout(fd, opt.UserTimeout) }); err != nil {
			return fmt.Errorf("user timeout: %w", err)
		}
	}
	lowat := opt.NotSentLowat
	if lowat == 0 {
		lowat = DefaultNotSentLowat
	}
	return c.SetNotSentLowat(lowat)
}

// SetKeepAlive changes Options.KeepAlive.
func (c *Conn) SetKeepAlive(idle time.Duration) error {
	ka := net.KeepAliveConfig{Enable: idle >= 0, Idle: idle, Interval: keepAliveEvery, Count: keepAliveCount}
	if ka.Idle == 0 {
		ka.Idle = DefaultKeepAlive
	}
	if err := c.tcpConn.SetKeepAliveConfig(ka); err != nil {
		return fmt.Errorf("keep-alive: %w", err)
	}
	return nil
}

// controlRawConn runs f on the connection's descriptor and returns its error.
func controlRawConn(raw syscall.RawConn, f func(fd int) error) (err error) {
	if e := raw.Control(func(fd uintptr) { err = f(int(fd)) }); e != nil {
		return e
	}
	return err
}

// SetNotSentLowat sets the low-water mark of WaitWritable. A waiting writer notices it with the
// next acknowledgement.
func (c *Conn) SetNotSentLowat(n unit.Bytes) error {
	if err := controlRawConn(c.raw, func(fd int) error { return setNotSentLowat(fd, int(n)) }); err != nil {
		return fmt.Errorf("unsent low-water mark: %w", err)
	}
	return nil
}

// Pace limits the kernel's sending rate to r; 0 removes the limit. Data that the kernel already
// holds is paced too.
func (c *Conn) Pace(r unit.Rate) error {
	if err := controlRawConn(c.raw, func(fd int) error { return setMaxPacingRate(fd, r) }); err != nil {
		return fmt.Errorf("pace of %v: %w", r, err)
	}
	c.pace.Store(int64(r))
	return nil
}

// WaitWritable blocks until less than half the low-water mark is unsent (the kernel's own rule), so
// that a segment written now leaves soon. It returns an error after Close or the write deadline. If
// the connection fails, it returns nil: the next write reports the error. Outside Linux it returns
// at once.
func (c *Conn) WaitWritable() error {
	return c.raw.Write(func(fd uintptr) bool { return isPollWritable(int(fd)) })
}

// Read implements net.Conn. It always reports a reset by the peer as an error, after the data that
// came before it. The kernel reports a reset only once: if a write got it, a read would otherwise
// see an orderly end.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if n > 0 && c.ledger != nil {
		c.ledger.Carrying()
	}
	if err == io.EOF && c.resetSeen.Load() {
		err = syscall.ECONNRESET
	}
	return n, err
}

// Peek returns the next n bytes, at most 64 KB, without consuming them. They are valid until the
// next Read.
func (c *Conn) Peek(n int) ([]byte, error) { return c.r.peek(n) }

// Write implements net.Conn. Between Cork and Flush it gathers data and writes only when corkLimit
// is reached.
func (c *Conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.corked {
		return c.writeToSocket(p)
	}
	if c.buf == nil {
		c.buf = corkBuffers.Get().(*bytes.Buffer)
	}
	c.buf.Write(p)
	if c.buf.Len() < corkLimit {
		return len(p), nil
	}
	if err := c.writeCorkedData(); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Cork makes writes accumulate until Flush, so that several TLS records leave in one system call.
// Data that is still gathered when the connection closes is lost.
func (c *Conn) Cork() {
	c.mu.Lock()
	c.corked = true
	c.mu.Unlock()
}

// Flush ends corking and writes the gathered data. It blocks as Write does.
func (c *Conn) Flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.corked = false
	return c.writeCorkedData()
}

func (c *Conn) writeCorkedData() error {
	if c.buf == nil {
		return nil
	}
	_, err := c.writeToSocket(c.buf.Bytes())
	if c.buf.Cap() == corkBuffer {
		c.buf.Reset()
		corkBuffers.Put(c.buf)
	}
	c.buf = nil
	return err
}

// writeToSocket writes p. mu must be held.
func (c *Conn) writeToSocket(p []byte) (int, error) {
	if c.ledger != nil {
		c.ledger.Carrying()
	}
	n, err := c.tcpConn.Write(p)
	c.written.Add(uint64(n))
	c.observeCongestion()
	if errors.Is(err, syscall.ECONNRESET) { // not EPIPE, which can follow a FIN
		c.resetSeen.Store(true)
	}
	return n, err
}

// Written returns how many bytes the kernel has accepted.
func (c *Conn) Written() uint64 { return c.written.Load() }

// CloseWrite ends our sending direction with a FIN, after the data that the kernel holds.
func (c *Conn) CloseWrite() error { return c.tcpConn.CloseWrite() }

// Close implements net.Conn. It does not wait: the kernel still sends the data that it holds.
// Blocked calls return net.ErrClosed.
func (c *Conn) Close() error {
	c.notifyClosing()
	return c.tcpConn.Close()
}

// SetLinger sets SO_LINGER, for package splice. With 0 the connection is reset when it closes, also
// when the process ends. A negative value restores the default.
func (c *Conn) SetLinger(seconds int) error { return c.tcpConn.SetLinger(seconds) }

// Abort closes the connection with a reset. The kernel drops the data that it holds.
func (c *Conn) Abort() error {
	c.discarded.Store(true)
	c.notifyClosing()
	_ = c.tcpConn.SetLinger(0)
	return c.tcpConn.Close()
}

// LocalAddr implements net.Conn.
func (c *Conn) LocalAddr() net.Addr { return c.tcpConn.LocalAddr() }

// RemoteAddr implements net.Conn.
func (c *Conn) RemoteAddr() net.Addr { return c.tcpConn.RemoteAddr() }

// SetDeadline implements net.Conn.
func (c *Conn) SetDeadline(t time.Time) error { return c.tcpConn.SetDeadline(t) }

// SetReadDeadline implements net.Conn.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.tcpConn.SetReadDeadline(t) }

// SetWriteDeadline implements net.Conn.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.tcpConn.SetWriteDeadline(t) }

// Dial connects to addr, "host:port". Errors are faults with a hint.
func Dial(ctx context.Context, addr string, opt Options) (*Conn, error) {
	d := net.Dialer{KeepAlive: -1, Control: opt.beforeConnect}
	if opt.Local != "" {
		host, port, err := net.SplitHostPort(opt.Local)
		if err != nil {
			host, port = opt.Local, "0"
		}
		local, err := net.ResolveTCPAddr("tcp", net.JoinHostPort(host, port))
		if err != nil {
			return nil, fmt.Errorf("local address %q: %w", opt.Local, err)
		}
		d.LocalAddr = local
	}
	d.SetMultipathTCP(false) // a kernel that adds MPTCP subflows would spoil every estimate
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, explainSocketError(fmt.Errorf("connect to %s: %w", addr, stripAddress(err)))
	}
	return Wrap(c.(*net.TCPConn), opt)
}

// beforeConnect checks the address and sets the options that must be set before connecting.
func (o Options) beforeConnect(_, address string, raw syscall.RawConn) error {
	if o.CheckAddress != nil {
		to, err := netip.ParseAddrPort(address)
		if err == nil {
			err = o.CheckAddress(to)
		}
		if err != nil {
			return err
		}
	}
	return controlRawConn(raw, func(fd int) error {
		if o.MaxSegment > 0 {
			if err := setMaxSegment(fd, int(o.MaxSegment)); err != nil {
				return fmt.Errorf("segments of %v: %w", o.MaxSegment, err)
			}
		}
		return bindAndMarkSocket(fd, o.Interface, o.Mark)
	})
}

// Bind binds a socket other than TCP as the Options say: to their interface, with their mark. It
// can be used as Control of package net.
func (o Options) Bind(_, _ string, raw syscall.RawConn) error {
	return controlRawConn(raw, func(fd int) error { return bindAndMarkSocket(fd, o.Interface, o.Mark) })
}

// SetMark sets the mark of any socket; see Options.Mark.
func SetMark(raw syscall.RawConn, mark int) error {
	return controlRawConn(raw, func(fd int) error { return bindAndMarkSocket(fd, "", mark) })
}

// Listener accepts connections and applies its options to them.
type Listener struct {
	listener *net.TCPListener
	opt      Options
	pause    func() // called before a retry when descriptors have run out
}

// Listen listens on addr, "host:port". Errors are faults with a hint.
func Listen(ctx context.Context, addr string, opt Options) (*Listener, error) {
	lc := net.ListenConfig{KeepAlive: -1, Control: func(_, _ string, raw syscall.RawConn) error {
		return controlRawConn(raw, func(fd int) error {
			// this finds a wrong name now instead of at the first connection
			if err := selectCongestion(fd, opt.Congestion); err != nil {
				return err
			}
			return bindAndMarkSocket(fd, "", opt.Mark)
		})
	}}
	lc.SetMultipathTCP(false)
	l, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, explainSocketError(fmt.Errorf("listen on %s: %w", addr, stripAddress(err)))
	}
	return &Listener{l.(*net.TCPListener), opt, func() { time.Sleep(50 * time.Millisecond) }}, nil
}

// Accept waits for the next connection. After Close it returns net.ErrClosed. It skips connections
// that break before their options are set. When descriptors or memory run out, it retries until
// some are free.
func (l *Listener) Accept() (*Conn, error) {
	for {
		c, err := l.listener.AcceptTCP()
		if IsTemporaryAcceptError(err) {
			l.pause()
			continue
		}
		if err != nil {
			return nil, err
		}
		if t, err := Wrap(c, l.opt); err == nil {
			return t, nil
		}
	}
}

// IsTemporaryAcceptError reports whether accept may succeed later: descriptors or memory ran out,
// or the connection broke before it was accepted.
func IsTemporaryAcceptError(err error) bool {
	return IsOutOfSockets(err) ||
		errors.Is(err, syscall.ENOBUFS) || errors.Is(err, syscall.ENOMEM) || errors.Is(err, syscall.ECONNABORTED)
}

// IsOutOfSockets reports whether no socket could be made because too many files are open, here or in the system.
func IsOutOfSockets(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// Addr returns the address of the listener.
func (l *Listener) Addr() net.Addr { return l.listener.Addr() }

// Close stops accepting; a blocked Accept returns net.ErrClosed.
func (l *Listener) Close() error { return l.listener.Close() }

// stripAddress removes the addresses from a net.OpError, because our message names them.
func stripAddress(err error) error {
	if op := (*net.OpError)(nil); errors.As(err, &op) {
		return op.Err
	}
	return err
}

// explainSocketError makes err a fault with a hint for the user.
func explainSocketError(err error) error {
	for _, h := range []struct {
		is   error
		kind fault.Kind
		hint string
	}{
		{syscall.EADDRINUSE, fault.AlreadyRunning,
			"is mpbond already running here? `ss -ltnp` shows which program listens"},
		{syscall.EADDRNOTAVAIL, fault.Config, "no interface of this device has that address: `ip address` lists them"},
		{syscall.ECONNREFUSED, fault.Unreachable,
			"the device answers, but nothing listens there: is mpbond running on it, with this port?"},
		{syscall.ENETUNREACH, fault.Unreachable, "this device has no route there: check its network"},
		{syscall.EHOSTUNREACH, fault.Unreachable, "check that the device is on, and on the same network"},
		{syscall.ENODEV, fault.Config, "there is no such network interface: `ip link` lists them"},
		{os.ErrPermission, fault.Permission, "run as root, or choose a port over 1023 and no mark"},
		{os.ErrDeadlineExceeded, fault.Timeout, "check the address and any firewall"},
		{context.DeadlineExceeded, fault.Timeout, "check the address and any firewall"},
	} {
		if errors.Is(err, h.is) && fault.Is(err, fault.Other) {
			return fault.New(h.kind, err, h.hint)
		}
	}
	var wrong *net.AddrError
	var unknown *net.DNSError
	switch {
	case !fault.Is(err, fault.Other):
	case errors.As(err, &wrong):
		return fault.New(fault.Config, err,
			"write an address as HOST:PORT; where mpbond listens HOST may be empty, as in :7600")
	case errors.As(err, &unknown):
		return fault.New(fault.Unreachable, err, "check the name, and the DNS of this device")
	}
	return err
}
