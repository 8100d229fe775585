// SPDX-License-Identifier: Apache-2.0

package flow

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"mpbond/base/fault"
	"mpbond/link/tcp"
	"mpbond/pbe/cc"
	"mpbond/pbe/transport"
)

// flowStream is the connection of a flow.
type flowStream interface {
	io.Writer
	// WaitWritable blocks while enough bytes wait to be sent.
	WaitWritable() error
	// Retransmitted returns the number of packets sent again.
	Retransmitted() int64
	// Abort ends the connection at once.
	Abort() error
}

// dialTimeout bounds how long connecting may take.
const dialTimeout = 10 * time.Second

// Source connects all flows of a job and prints "ready" on out. It then reads the time to begin
// from in, a line with Unix nanoseconds. At the end it prints an Outcome of each flow as JSON.
func Source(ctx context.Context, job Job, in io.Reader, out io.Writer) error {
	streams := make([]flowStream, len(job.Flows))
	for i, f := range job.Flows {
		s, err := f.dialFlowStream(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", f.Controller, err)
		}
		streams[i] = s
	}
	if _, err := fmt.Fprintln(out, "ready"); err != nil {
		return err
	}
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil {
		return err
	}
	begin, err := strconv.ParseInt(strings.TrimSpace(line), 10, 64)
	if err != nil {
		return err
	}
	time.Sleep(time.Until(time.Unix(0, begin)))
	var all sync.WaitGroup
	errs := make([]error, len(streams))
	for i, s := range streams {
		all.Go(func() { errs[i] = sendFlowData(s, i, begin, job.Length) })
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	outcomes := make([]Outcome, len(streams))
	for i, s := range streams {
		outcomes[i].Retransmitted = s.Retransmitted()
		_ = s.Abort()
	}
	for i, f := range job.Flows {
		if outcomes[i].SlotBytes, err = fetchCounts(ctx, f.To, i); err != nil {
			return err
		}
	}
	return json.NewEncoder(out).Encode(outcomes)
}

// sendFlowData sends for length: first the header for the Sink, then zeros.
func sendFlowData(s flowStream, flow int, begin int64, length time.Duration) error {
	buf := make([]byte, 16<<10)
	buf[0] = byte(flow)
	binary.BigEndian.PutUint64(buf[1:], uint64(begin))
	end := time.Unix(0, begin).Add(length)
	for time.Now().Before(end) {
		if err := s.WaitWritable(); err != nil {
			return err
		}
		if _, err := s.Write(buf); err != nil {
			return err
		}
	}
	return nil
}

// dialFlowStream connects a flow to its Sink.
func (f Flow) dialFlowStream(ctx context.Context) (flowStream, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if name, ok := strings.CutPrefix(f.Controller, KernelPrefix); ok {
		return dialKernelTCP(ctx, f.To, name)
	}
	if f.Controller == HopChoice {
		c, err := tcp.Dial(ctx, joinHostPort(f.To, tcpPort), tcp.Options{})
		if err != nil {
			return nil, err
		}
		return hopStream{c}, nil
	}
	if err := CheckController(f.Controller); err != nil {
		return nil, err
	}
	c, err := transport.Dial(ctx, joinHostPort(f.To, udpPort), transport.Options{
		Controller: func() cc.Controller { return cc.New(f.Controller, f.Seed) },
	})
	if err != nil {
		return nil, err
	}
	return udpStream{c}, nil
}

// joinHostPort returns an address with a port.
func joinHostPort(addr string, n int) string { return net.JoinHostPort(addr, strconv.Itoa(n)) }

// udpStream is a flow over pbe/transport.
type udpStream struct{ *transport.Conn }

// Retransmitted implements flowStream.
func (o udpStream) Retransmitted() int64 {
	h, _ := o.Probe()
	return int64(h.Retransmitted)
}

// hopStream is a flow over TCP as mpbond's subflows use it.
type hopStream struct{ *tcp.Conn }

// Retransmitted implements flowStream.
func (o hopStream) Retransmitted() int64 {
	h, _ := o.Probe()
	return int64(h.Retransmitted)
}

// tcpStream is a flow over the kernel's TCP.
type tcpStream struct {
	*net.TCPConn
	raw syscall.RawConn
}

// dialKernelTCP connects over TCP with a congestion controller of the kernel.
func dialKernelTCP(ctx context.Context, addr, controller string) (flowStream, error) {
	d := net.Dialer{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		if e := raw.Control(func(fd uintptr) {
			err = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, controller)
		}); e != nil {
			return e
		}
		if err != nil {
			return fault.New(fault.Config, fmt.Errorf("setting the kernel's controller %s: %w", controller, err),
				"choose one that `sysctl net.ipv4.tcp_available_congestion_control` lists")
		}
		return nil
	}}
	c, err := d.DialContext(ctx, "tcp", joinHostPort(addr, tcpPort))
	if err != nil {
		return nil, err
	}
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		return nil, err
	}
	return tcpStream{c.(*net.TCPConn), raw}, nil
}

// WaitWritable implements flowStream. Writes to the kernel block by themselves.
func (tcpStream) WaitWritable() error { return nil }

// Retransmitted implements flowStream.
func (k tcpStream) Retransmitted() (n int64) {
	_ = k.raw.Control(func(fd uintptr) {
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n = int64(info.Total_retrans)
		}
	})
	return n
}

// Abort implements stream.
func (k tcpStream) Abort() error {
	_ = k.SetLinger(0)
	return k.Close()
}
