package helper

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/link/pipe"
	"mpbond/link/wire"
)

// relayTable holds the subflows that a helper relays, and bounds their number. A subflow
// takes a place before it is connected (reserve), is added when both of its hops are there,
// and removed when its relay has ended. The table closes relays but never waits for one;
// who runs a relay owns it. mu guards the set alone: what is known of one subflow has its
// own lock. Methods may be called by any goroutine.
type relayTable struct {
	limit int

	mu      sync.Mutex
	set     map[*subflow]struct{}
	places  int    // of the set and those reserved
	opened  uint64 // relays there were, for their numbers
	carried uint64 // bytes of relays that have ended
}

// subflow is one relay and what is known of it. The fields above mu do not change once it
// is in the table.
type subflow struct {
	*relay
	number  uint64 // in the trace and the api, from 1
	primary identity.Peer
	server  string
	since   time.Time
	link    string // interface of the HS-path, "" if it is not known
	share   *sharedRelay

	mu    sync.Mutex
	moves moves
	mute  mute
	meter relayRate
}

func newRelayTable(limit int) *relayTable {
	return &relayTable{limit: limit, set: map[*subflow]struct{}{}}
}

// reserve takes a place for a subflow, or fails with fault.Limit. The place is given back by
// release, or by remove once a subflow was added.
func (t *relayTable) reserve() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.places >= t.limit {
		return fault.New(fault.Limit, fmt.Errorf("it relays %d subflows already", t.limit), "raise max_subflows there")
	}
	t.places++
	return nil
}

func (t *relayTable) release() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.places--
}

// add gives s, whose place is reserved, its number.
func (t *relayTable) add(s *subflow) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.opened++
	s.number = t.opened
	t.set[s] = struct{}{}
}

// remove takes out s, whose relay has ended.
func (t *relayTable) remove(s *subflow) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.set, s)
	t.places--
	t.carried += s.bytes()
}

// list returns the subflows, oldest first.
func (t *relayTable) list() []*subflow {
	list, _ := t.listAndBytes()
	return list
}

// listAndBytes returns the subflows, oldest first, and the bytes of all that there were.
func (t *relayTable) listAndBytes() (list []*subflow, bytes uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	list, bytes = make([]*subflow, 0, len(t.set)), t.carried
	for s := range t.set {
		list = append(list, s)
		bytes += s.bytes()
	}
	slices.SortFunc(list, func(a, b *subflow) int { return int(a.number) - int(b.number) })
	return list, bytes
}

// find returns the pipe of a primary's subflow, nil if there is none of that token.
func (t *relayTable) find(token wire.Token, primary identity.PublicKey) *pipe.Link {
	for _, s := range t.list() {
		if s.pipe.Token() == token && s.primary.Key == primary {
			return s.pipe
		}
	}
	return nil
}

// closeWhere closes each subflow for which why returns an error, with that error, and
// returns how many these are.
func (t *relayTable) closeWhere(why func(*subflow) error) (n int) {
	for _, s := range t.list() {
		err := why(s)
		switch {
		case err == nil:
			continue
		case errors.As(err, new(capError)):
			s.close(err) // before another byte is counted; it does not block
		default:
			go s.close(err) // it may wait for its TLS to say goodbye
		}
		n++
	}
	return n
}

// lastLocalAddr returns the address that the newest HS-path goes from, nil if there is none.
func (t *relayTable) lastLocalAddr() net.Addr {
	if list := t.list(); len(list) > 0 {
		return list[len(list)-1].hs.LocalAddr()
	}
	return nil
}

// bytes returns what has come in from both ends.
func (r *relay) bytes() uint64 { return r.up.read.Load() + r.down.read.Load() }

// sample measures the subflow's rates and whether its HS-path is mute. It is called each
// addressEvery.
func (s *subflow) sample(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.meter.add(now, s.up.read.Load(), s.down.read.Load())
	if hs, err := s.hs.Probe(); err == nil {
		s.mute.look(now, hs)
	}
}

// lastMute returns since when the HS-path is mute.
func (s *subflow) lastMute() mute {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mute
}

// dropLost acts on addresses that this device has lost: a pipe from such an address is
// broken, so that the subflow looks for another; an HS-path goes on from another address,
// over UDP, or the subflow is given back to the primary.
func (s *subflow) dropLost(lost func(net.Addr) bool, log *slog.Logger) {
	log = log.With("primary", s.primary.Name)
	if local := s.pipe.LocalAddr(); lost(local) && s.pipe.Break(local, errAddress) {
		log.Info("pipe given up", "from", local, "err", errAddress)
	}
	local := s.hs.LocalAddr()
	if !lost(local) {
		return
	}
	s.mu.Lock()
	before := s.moves.count
	goesOn := s.moves.follow(s.hs.Conn())
	moved := s.moves.count > before
	s.mu.Unlock()
	if !goesOn {
		log.Info("HS-path given up", "from", local, "err", errAddress)
		go s.close(errAddress) // may wait for a write that is under way
	} else if moved {
		log.Info("HS-path goes on from another address", "before", local, "now", s.hs.LocalAddr())
	}
}

// status returns the state for the api, without the primary's present name and the reason
// why UDP is not used.
func (s *subflow) status() SubflowStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return SubflowStatus{Number: s.number, Primary: s.primary.Name, Server: s.server, Since: s.since, Transport: s.hs.LocalAddr().Network(),
		Migrated: s.moves.count, Up: s.up.status(), Down: s.down.status(), UpBps: s.meter.upBps, DownBps: s.meter.downBps}
}
