// SPDX-License-Identifier: Apache-2.0

package flow

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"mpbond/base/unit"
	"mpbond/pbe/cell"
	"mpbond/pbe/listen"
	"mpbond/pbe/transport"
)

// Ports of a Sink.
const (
	udpPort    = 94
	tcpPort    = 94
	ReportPort = 93 // over TCP; it opens after the other ports
)

// maxSlots bounds the slots of a flow: one hour.
const maxSlots = 36_000

// flowCounter counts the bytes of each flow.
type flowCounter struct {
	mu    sync.Mutex
	flows [maxFlows][]unit.Bytes
}

// CellListener selects the mobile cells on a Sink's link. With a Source, flows get feedback from
// them.
type CellListener struct {
	Source string // as for listen.ParseSource; empty: no feedback
	RNTI   uint16 // the device's name in the cells
}

// endpointOptions returns the options of the Sink's endpoint. It listens to the cells until ctx
// ends.
func (h CellListener) endpointOptions(ctx context.Context) (opt transport.Options, err error) {
	if h.Source == "" {
		return opt, nil
	}
	source, err := listen.ParseSource(h.Source)
	if err != nil {
		return opt, err
	}
	l := listen.New(listen.Config{Source: source, RNTI: cell.RNTI(h.RNTI)})
	go l.Run(ctx)
	opt.Feedback = func() transport.Feedback { return l.Flow() }
	return opt, nil
}

// Sink receives flows at all local addresses until ctx ends.
func Sink(ctx context.Context, cells CellListener) error {
	s := &flowCounter{}
	opt, err := cells.endpointOptions(ctx)
	if err != nil {
		return err
	}
	ep, err := transport.Listen(joinHostPort("", udpPort), opt)
	if err != nil {
		return err
	}
	defer ep.Close()
	streams, err := net.Listen("tcp", joinHostPort("", tcpPort))
	if err != nil {
		return err
	}
	defer streams.Close()
	reports, err := net.Listen("tcp", joinHostPort("", ReportPort))
	if err != nil {
		return err
	}
	defer reports.Close()
	ended := make(chan error, 3)
	acceptAll := func(accept func() (net.Conn, error), f func(net.Conn)) {
		for {
			c, err := accept()
			if err != nil {
				ended <- err
				return
			}
			go func() {
				f(c)
				c.Close()
			}()
		}
	}
	go acceptAll(func() (net.Conn, error) { return ep.Accept() }, s.countFlowToEnd)
	go acceptAll(streams.Accept, s.countFlowToEnd)
	go acceptAll(reports.Accept, s.serveFlowReport)
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil
	}
}

// countFlowToEnd counts one flow until it ends.
func (s *flowCounter) countFlowToEnd(c net.Conn) {
	head := make([]byte, 9)
	if _, err := io.ReadFull(c, head); err != nil {
		return
	}
	flow, begin := head[0], time.Unix(0, int64(binary.BigEndian.Uint64(head[1:])))
	buf := make([]byte, 64<<10)
	for {
		n, err := c.Read(buf)
		s.countFlowBytes(int(flow), time.Since(begin), n)
		if err != nil {
			return
		}
	}
}

// countFlowBytes counts n bytes of a flow that arrived at a time since its beginning.
func (s *flowCounter) countFlowBytes(flow int, at time.Duration, n int) {
	slot := int(at / SlotLength)
	if slot < 0 || slot >= maxSlots || n == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.flows[flow]) <= slot {
		s.flows[flow] = append(s.flows[flow], 0)
	}
	s.flows[flow][slot] += unit.Bytes(n)
}

// serveFlowReport reads a flow's number, one byte, and answers with its slots as JSON.
func (s *flowCounter) serveFlowReport(c net.Conn) {
	var flow [1]byte
	if _, err := io.ReadFull(c, flow[:]); err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = json.NewEncoder(c).Encode(s.flows[flow[0]])
}

// fetchCounts asks a Sink how many bytes of a flow arrived in each time slot.
func fetchCounts(ctx context.Context, addr string, flow int) (slots []unit.Bytes, err error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	c, err := new(net.Dialer).DialContext(ctx, "tcp", joinHostPort(addr, ReportPort))
	if err != nil {
		return nil, err
	}
	defer c.Close()
	end, _ := ctx.Deadline()
	err = errors.Join(c.SetDeadline(end))
	if err == nil {
		_, err = c.Write([]byte{byte(flow)})
	}
	if err == nil {
		err = json.NewDecoder(io.LimitReader(c, 1<<22)).Decode(&slots)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the sink's report: %w", err)
	}
	return slots, nil
}
