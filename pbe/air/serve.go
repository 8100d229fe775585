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
	// clientQueueLen is how many subframes wait for a caller at most: who is later is
	// dropped, and calls again.
	clientQueueLen = 1024
	// maxClients bounds who is served at a time.
	maxClients = 64
	// maxSocketPath is how long the path of a socket may be, on the strictest system.
	maxSocketPath = 103
	// clientWriteTimeout is how long a caller may take to read something.
	clientWriteTimeout = 2 * time.Second
)

// Server serves what is heard as live recordings: each caller gets the head, and what
// is heard from then on. Callers who do not keep up are dropped, not waited for.
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

// client is one who listens.
type client struct {
	conn net.Conn
	out  chan cell.Subframe // nobody changes their grants
}

// Serve opens unix:PATH or tcp:HOST:PORT. A socket file that nobody answers at is
// replaced.
func Serve(address string) (*Server, error) {
	network, at, _ := strings.Cut(address, ":")
	if network != "unix" && network != "tcp" || at == "" {
		return nil, fault.New(fault.Usage, fmt.Errorf("%q is no place to serve at", address), "write unix:PATH or tcp:HOST:PORT")
	}
	if network == "unix" {
		if len(at) > maxSocketPath {
			return nil, fault.New(fault.Usage, fmt.Errorf("the path of a socket has %d bytes at most, this one %d", maxSocketPath, len(at)), "serve at a shorter one")
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
		return nil, fault.New(kind, fmt.Errorf("serve messages: %w", err), "is the place free, and may this user serve there?")
	}
	s := &Server{ln: ln, clients: map[*client]bool{}}
	s.all.Go(s.acceptLoop)
	return s, nil
}

// removeStaleSocket removes what a server before has left at path.
func removeStaleSocket(path string) error {
	st, err := os.Lstat(path)
	if err != nil {
		return nil // Listen says what is wrong, if anything
	}
	if st.Mode()&os.ModeSocket == 0 {
		return fault.New(fault.Exists, fmt.Errorf("%s is there and is no socket", path), "serve elsewhere, or move it away")
	}
	if c, err := net.DialTimeout("unix", path, time.Second); err == nil {
		c.Close()
		return fault.New(fault.AlreadyRunning, fmt.Errorf("somebody serves at %s", path), "serve elsewhere, or stop that one")
	}
	return os.Remove(path)
}

// Addr is where it serves.
func (s *Server) Addr() net.Addr { return s.ln.Addr() }

// Dropped counts callers who did not keep up.
func (s *Server) Dropped() int64 { return s.dropped.Load() }

// Recorder records so many carriers for all who call.
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

func (s *Server) acceptLoop() {
	for {
		conn, err := s.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, perhaps
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

// serveClient writes a recording to a caller until he is gone or out is closed.
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
			_ = w.Flush() // he may be gone
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

// deadlineConn is a connection whose other end must read.
type deadlineConn struct{ net.Conn }

func (t deadlineConn) Write(b []byte) (int, error) {
	if err := t.SetWriteDeadline(time.Now().Add(clientWriteTimeout)); err != nil {
		return 0, err
	}
	return t.Conn.Write(b)
}

// Write gives a subframe to all callers.
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

// Flush does nothing: what is written goes at once.
func (s *Server) Flush() error { return nil }

// Close ends when all callers have what was written, or are late.
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
