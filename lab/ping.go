// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The server answers pings at pingPort. pingSize is their UDP payload. lastPingTimeout bounds the
// wait for the last answers. firstPingTimeout bounds the wait for the first answer of each link,
// whose server may still start.
const (
	pingPort        = 94
	pingSize        = 32
	lastPingTimeout = 2 * time.Second

	firstPingTimeout = 20 * time.Second
)

// Ping summarises small packets over one link beside a transfer, one in each interval.
type Ping struct {
	Sent int `json:"sent"`
	Lost int `json:"lost"`
	// Down are the delays from the server to the primary, Back the round trips.
	Down Delays `json:"down"`
	Back Delays `json:"back"`
}

// pingJob describes which pings to send.
type pingJob struct {
	Every, First time.Duration
	To           map[string]string // by link: the server's address there
}

// echoPings answers each ping with its own time.
func echoPings() error {
	c, err := net.ListenPacket("udp4", fmt.Sprintf(":%d", pingPort))
	if err != nil {
		return err
	}
	buf := make([]byte, 2048)
	for {
		n, from, err := c.ReadFrom(buf)
		if err != nil {
			return err
		}
		if n == pingSize {
			binary.BigEndian.PutUint64(buf[8:], uint64(time.Now().UnixNano()))
			_, _ = c.WriteTo(buf[:n], from)
		}
	}
}

// linkPinger sends pings over one link.
type linkPinger struct {
	conn       net.Conn
	answered   chan struct{} // closed with the first answer
	mu         sync.Mutex
	sent       int
	ended      bool // no more pings follow
	down, back delayHist
}

// pingUntilEOF sends pings until in ends. It prints a line when all links have answered, and at the
// end a Ping for each link. It fails if a link does not answer within First.
func (j pingJob) pingUntilEOF(in io.Reader, out io.Writer) error {
	all := map[string]*linkPinger{}
	var readers, senders sync.WaitGroup
	end := make(chan struct{})
	for link, addr := range j.To {
		c, err := net.Dial("udp4", net.JoinHostPort(addr, strconv.Itoa(pingPort)))
		if err != nil {
			return err
		}
		p := &linkPinger{conn: c, answered: make(chan struct{})}
		all[link] = p
		readers.Go(p.receiveAnswers)
		senders.Go(func() { p.sendPeriodicPings(j.Every, end) })
	}
	late := time.After(j.First)
	for link, p := range all {
		select {
		case <-p.answered:
		case <-late:
			close(end)
			for _, p := range all {
				_ = p.conn.SetReadDeadline(time.Now())
			}
			return fmt.Errorf("no answer over %s in %v", link, j.First)
		}
	}
	fmt.Fprintln(out, "ready")
	_, _ = io.Copy(io.Discard, in)
	close(end)
	senders.Wait()
	for _, p := range all {
		p.mu.Lock()
		p.ended = true
		wait := lastPingTimeout
		if int(p.back.n) == p.sent {
			wait = 0
		}
		p.mu.Unlock()
		_ = p.conn.SetReadDeadline(time.Now().Add(wait))
	}
	readers.Wait()
	results := map[string]Ping{}
	for link, p := range all {
		results[link] = Ping{p.sent, p.sent - int(p.back.n), p.down.summarizeDelays(), p.back.summarizeDelays()}
	}
	return json.NewEncoder(out).Encode(results)
}

// sendPeriodicPings sends a ping in each interval until end is closed.
func (p *linkPinger) sendPeriodicPings(every time.Duration, end <-chan struct{}) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	msg := make([]byte, pingSize)
	for {
		binary.BigEndian.PutUint64(msg, uint64(time.Now().UnixNano()))
		_, err := p.conn.Write(msg)
		p.mu.Lock()
		if err == nil {
			p.sent++
		}
		p.mu.Unlock()
		select {
		case <-end:
			return
		case <-tick.C:
		}
	}
}

// receiveAnswers counts answers until the last one or the deadline.
func (p *linkPinger) receiveAnswers() {
	buf := make([]byte, 2048)
	for {
		n, err := p.conn.Read(buf)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return
		case err != nil || n != pingSize: // nothing listens there yet: another ping follows
			continue
		}
		now := time.Now().UnixNano()
		p.mu.Lock()
		p.back.countPacketDelay(time.Duration(now - int64(binary.BigEndian.Uint64(buf))))
		p.down.countPacketDelay(time.Duration(now - int64(binary.BigEndian.Uint64(buf[8:]))))
		first, last := p.back.n == 1, p.ended && int(p.back.n) == p.sent
		p.mu.Unlock()
		if first {
			close(p.answered)
		}
		if last {
			return
		}
	}
}

// startPings sends pings over each shaped link between primary and server until stop is called.
// stop returns the results, each time that it is called.
func (b *Bench) startPings(ctx context.Context, every time.Duration) (stop func() (map[string]Ping, error), err error) {
	t := b.Lab.Topology
	job := pingJob{every, firstPingTimeout, map[string]string{}}
	for _, link := range t.linksBetween("primary", "server") {
		if !t.Link[link].Shaped() {
			continue
		}
		addr, err := t.Addr("server", link)
		if err != nil {
			return nil, err
		}
		job.To[link] = addr.String()
	}
	if err := b.SpawnSelf(ctx, "server", 0, "probe", "echo"); err != nil {
		return nil, err
	}
	text, err := json.Marshal(job)
	if err != nil {
		return nil, err
	}
	cmd, err := b.Lab.Command(ctx, "primary", labCommand("probe", "ping", string(text))...)
	if err != nil {
		return nil, err
	}
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	var said strings.Builder
	cmd.Stderr, cmd.WaitDelay = &said, stopTimeout
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		return nil, err
	}
	lines := bufio.NewReader(out)
	if _, err := lines.ReadString('\n'); err != nil {
		return nil, fmt.Errorf("pings: %w: %w: %s", err, cmd.Wait(), &said)
	}
	return sync.OnceValues(func() (results map[string]Ping, err error) {
		in.Close()
		err = json.NewDecoder(lines).Decode(&results)
		return results, errors.Join(err, cmd.Wait())
	}), nil
}
