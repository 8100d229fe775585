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
	ReportPort = 93 // over TCP; it is open when the others are
)

// maxSlots bounds what a Sink remembers of a flow: an hour.
const maxSlots = 36_000

// flowCounter counts what arrives.
type flowCounter struct {
	mu    sync.Mutex
	flows [maxFlows][]unit.Bytes
}

// CellListener is what a Sink hears of the cells on its link: with a Source, its flows have
// feedback of them.
type CellListener struct {
	Source string // as in listen.ParseSource; empty: nothing
	RNTI   uint16 // what the device is called there
}

// endpointOptions are those of the Sink's endpoint; it listens to the cells until ctx ends.
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

// Sink takes flows at all addresses until ctx ends.
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
	go acceptAll(func() (net.Conn, error) { return ep.Accept() }, s.countFlow)
	go acceptAll(streams.Accept, s.countFlow)
	go acceptAll(reports.Accept, s.sendReport)
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
		return nil
	}
}

// countFlow counts one flow until it ends.
func (s *flowCounter) countFlow(c net.Conn) {
	head := make([]byte, 9)
	if _, err := io.ReadFull(c, head); err != nil {
		return
	}
	flow, begin := head[0], time.Unix(0, int64(binary.BigEndian.Uint64(head[1:])))
	buf := make([]byte, 64<<10)
	for {
		n, err := c.Read(buf)
		s.addBytes(int(flow), time.Since(begin), n)
		if err != nil {
			return
		}
	}
}

func (s *flowCounter) addBytes(flow int, at time.Duration, n int) {
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

// sendReport answers a byte, the number of a flow, with what was counted of it.
func (s *flowCounter) sendReport(c net.Conn) {
	var flow [1]byte
	if _, err := io.ReadFull(c, flow[:]); err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = json.NewEncoder(c).Encode(s.flows[flow[0]])
}

// fetchCounts fetches what a sink counted of a flow.
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
		return nil, fmt.Errorf("what the sink counted: %w", err)
	}
	return slots, nil
}
