// SPDX-License-Identifier: Apache-2.0

package air

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"mpbond/base/fault"
	"mpbond/pbe/cell"
)

// Tuning of serving.
const (
	// clientQueueLen is how many subframes wait for a client. A slower client is disconnected, and
	// may call again.
	clientQueueLen = 1024
	// maxClients bounds the number of concurrent clients.
	maxClients = 64
	// maxSocketPath is the longest path of a socket on the strictest system.
	maxSocketPath = 103
	// clientWriteTimeout is how long a write to a client may take.
	clientWriteTimeout = 2 * time.Second
)

// Server serves subframes as live recordings: each client gets the head and all later subframes.
// Slow clients are disconnected.
type Server struct {
	ln      net.Listener
	dropped atomic.Int64

	mu      sync.Mutex
	prb     [cell.MaxCells]uint8
	hasHead bool
	self    cell.RNTI
	clients map[*client]bool
	closed  bool
	all     sync.WaitGroup
}

// client is one connection.
type client struct {
	conn net.Conn
	out  chan cell.Subframe // their grants are immutable
}

// Serve listens at unix:PATH or tcp:HOST:PORT. It replaces a stale socket file.
func Serve(address string) (*Server, error) {
	network, at, _ := strings.Cut(address, ":")
	if network != "unix" && network != "tcp" || at == "" {
		return nil, fault.New(fault.Usage, fmt.Errorf("invalid address to serve at: %q", address),
			"write unix:PATH or tcp:HOST:PORT")
	}
	if network == "unix" {
		if len(at) > maxSocketPath {
			return nil, fault.New(fault.Usage, fmt.Errorf("the path of the socket has %d bytes, more than %d",
				len(at), maxSocketPath), "use a shorter path")
		}
		if err := removeStaleSocket(at); err != nil {
			return nil, err
		}
	}
	ln, err := net.Listen(network, at)
	if err != nil {
		kind := fault.Config
		if errors.Is(err, os.ErrPermission) {
			kind = fault.Permission
		}
		return nil, fault.New(kind, fmt.Errorf("serve messages: %w", err),
			"check that the address is free and that this user may listen there")
	}
	s := &Server{ln: ln, clients: map[*client]bool{}}
	s.all.Go(s.acceptClients)
	return s, nil
}

// removeStaleSocket removes the socket that an earlier server left at path.
func removeStaleSocket(path string) error {
	st, err := os.Lstat(path)
	if err != nil {
		return nil // Listen reports errors
	}
	if st.Mode()&os.ModeSocket == 0 {
		return fault.New(fault.Exists, fmt.Errorf("%s exists and is not a socket", path),
			"serve elsewhere, or move it away")
	}
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		c.Close()
		return fault.New(fault.AlreadyRunning, fmt.Errorf("another process already serves at %s", path),
			"serve elsewhere, or stop that process")
	}
	return os.Remove(path)
}

// Addr returns the address of the server.
func (s *Server) Addr() net.Addr { return s.ln.Addr() }

// Dropped returns the number of disconnected slow clients.
func (s *Server) Dropped() int64 { return s.dropped.Load() }

// Recorder returns a Recorder of that many carriers for all clients.
func (s *Server) Recorder(carriers int) *Recorder {
	return &Recorder{cells: carriers, openWriter: func(prb [cell.MaxCells]uint8, self cell.RNTI) (recordWriter, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.prb, s.self, s.hasHead = prb, self, true
		for c := range s.clients {
			s.all.Go(func() { s.serveClient(c) })
		}
		return s, nil
	}}
}

// acceptClients serves clients until the listener is closed. Those that come before the head of the
// stream is known are served later.
func (s *Server) acceptClients() {
	for {
		conn, err := s.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // perhaps out of file descriptors
			time.Sleep(100 * time.Millisecond)
			continue
		}
		c := &client{conn, make(chan cell.Subframe, clientQueueLen)}
		s.mu.Lock()
		if s.closed || len(s.clients) >= maxClients {
			conn.Close()
		} else if s.clients[c] = true; s.hasHead {
			s.all.Go(func() { s.serveClient(c) })
		}
		s.mu.Unlock()
	}
}

// serveClient writes a recording to a client until it disconnects or its queue is closed.
func (s *Server) serveClient(c *client) {
	defer s.removeClient(c)
	s.mu.Lock()
	prb, self := s.prb, s.self
	s.mu.Unlock()
	w, err := cell.NewWriter(deadlineConn{c.conn}, prb)
	if err == nil && self != 0 {
		err = w.WriteSelf(self)
	}
	for err == nil {
		if len(c.out) == 0 {
			if err = w.Flush(); err != nil {
				return
			}
		}
		m, more := <-c.out
		if !more {
			_ = w.Flush() // the client may be gone
			return
		}
		err = w.Write(m)
	}
}

func (s *Server) removeClient(c *client) {
	s.mu.Lock()
	delete(s.clients, c)
	s.mu.Unlock()
	c.conn.Close()
}

// deadlineConn is a connection with a timeout for each write.
type deadlineConn struct{ net.Conn }

func (t deadlineConn) Write(b []byte) (int, error) {
	if err := t.SetWriteDeadline(time.Now().Add(clientWriteTimeout)); err != nil {
		return 0, err
	}
	return t.Conn.Write(b)
}

// Write queues a subframe for all clients.
func (s *Server) Write(m cell.Subframe) error {
	m.Grants = slices.Clone(m.Grants)
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.clients {
		select {
		case c.out <- m:
		default:
			s.dropped.Add(1)
			delete(s.clients, c)
			close(c.out)
			c.conn.Close()
		}
	}
	return nil
}

// Flush does nothing: subframes are sent at once.
func (s *Server) Flush() error { return nil }

// Close waits until all clients have received the queued subframes, or timed out.
func (s *Server) Close() error {
	err := s.ln.Close()
	s.mu.Lock()
	s.closed = true
	for c := range s.clients {
		delete(s.clients, c)
		close(c.out)
		if !s.hasHead {
			c.conn.Close()
		}
	}
	s.mu.Unlock()
	s.all.Wait()
	return err
}
