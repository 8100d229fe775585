// SPDX-License-Identifier: Apache-2.0

package natstest

import (
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// Isolate cuts the node off from all other nodes, until Rejoin. Clients still reach it. If it is silent, connections
// stay open and what is sent arrives after Rejoin; else they end at once. The cluster must have been started with
// Partitions.
func (n *Node) Isolate(silent bool) {
	for _, l := range n.links {
		l.Cut(silent)
	}
}

// Rejoin ends Isolate.
func (n *Node) Rejoin() {
	for _, l := range n.links {
		l.Restore()
	}
}

// Link forwards TCP connections to an address, those of one node to another one or those of clients to a node, as a
// network does: it can delay them and be cut. Safe for concurrent use.
type Link struct {
	listener net.Listener
	to       string
	delay    time.Duration // each way

	mu       sync.Mutex
	restored chan struct{} // closed while the link is not cut
	refuses  bool          // new connections end at once
	ended    bool
	conns    map[net.Conn]bool
}

// NewLink returns a link for clients of the node, which ends with the test, and its address for them.
func (n *Node) NewLink(t testing.TB) (l *Link, url string) {
	scheme, addr, _ := strings.Cut(n.URL, "://")
	l = NewLink(t, addr, 0)
	return l, scheme + "://" + l.Addr()
}

// NewLink returns a link to an address, which ends with the test. It delays what it forwards, in each direction.
func NewLink(t testing.TB, to string, delay time.Duration) *Link {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &Link{listener: ln, to: to, delay: delay, restored: make(chan struct{}), conns: map[net.Conn]bool{}}
	close(l.restored)
	var tasks sync.WaitGroup
	tasks.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			tasks.Go(func() { l.forward(c) })
		}
	})
	t.Cleanup(func() {
		ln.Close()
		l.mu.Lock()
		l.ended = true
		l.mu.Unlock()
		l.Cut(false)
		l.Restore()
		tasks.Wait()
	})
	return l
}

// Addr returns where the link accepts connections.
func (l *Link) Addr() string { return l.listener.Addr().String() }

// Cut stops the link until Restore. If it is silent, connections stay open and what is sent arrives after Restore; else
// they end, and new ones at once.
func (l *Link) Cut(silent bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.restored:
		l.restored = make(chan struct{})
	default:
	}
	if l.refuses = !silent; l.refuses {
		for c := range l.conns {
			c.Close()
		}
	}
}

// Restore ends Cut.
func (l *Link) Restore() {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.restored:
	default:
		close(l.restored)
	}
	l.refuses = false
}

// add adds a connection, or closes it if the link refuses it.
func (l *Link) add(c net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refuses || l.ended {
		c.Close()
		return false
	}
	l.conns[c] = true
	return true
}

// remove closes and forgets a connection.
func (l *Link) remove(c net.Conn) {
	c.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.conns, c)
}

// await waits until the link is not cut.
func (l *Link) await() {
	l.mu.Lock()
	restored := l.restored
	l.mu.Unlock()
	<-restored
}

// forward serves one connection.
func (l *Link) forward(c net.Conn) {
	if !l.add(c) {
		return
	}
	defer l.remove(c)
	l.await()
	d, err := net.Dial("tcp", l.to)
	if err != nil || !l.add(d) {
		return // the node does not run
	}
	defer l.remove(d)
	var both sync.WaitGroup
	both.Go(func() { l.copy(c, d) })
	both.Go(func() { l.copy(d, c) })
	both.Wait()
}

// segment holds bytes that were read from one connection. They are written to the other one when they are due.
type segment struct {
	data []byte
	due  time.Time
}

// maxSegments bounds what one connection has on its way.
const maxSegments = 10_000

// copy copies what comes from one connection to another, delayed, while the link is not cut. Then it closes both.
func (l *Link) copy(to, from net.Conn) {
	way, ended := make(chan segment, maxSegments), make(chan struct{})
	var reading sync.WaitGroup
	defer reading.Wait()
	defer to.Close()
	defer from.Close()
	defer close(ended)
	reading.Go(func() {
		defer close(way)
		for {
			b := make([]byte, 4<<10)
			n, err := from.Read(b)
			select {
			case way <- segment{b[:n], time.Now().Add(l.delay)}:
			case <-ended:
				return
			}
			if err != nil {
				return
			}
		}
	})
	for s := range way {
		if l.deliver(to, s) != nil {
			return
		}
	}
}

// deliver writes a segment when it is due and the link is not cut.
func (l *Link) deliver(to net.Conn, s segment) error {
	time.Sleep(time.Until(s.due))
	l.await()
	_, err := to.Write(s.data)
	return err
}
