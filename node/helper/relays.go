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
	maxSubflows int

	mu          sync.Mutex
	subflows    map[*subflow]struct{}
	slots       int    // of the set and those reserved
	openedCount uint64 // relays there were, for their numbers
	endedBytes  uint64 // bytes of relays that have ended
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

	mu      sync.Mutex
	moves   addressMoves
	silence silenceMeter
	rates   relayRate
}

func newRelayTable(limit int) *relayTable {
	return &relayTable{maxSubflows: limit, subflows: map[*subflow]struct{}{}}
}

// reserveSlot takes a place for a subflow, or fails with fault.Limit. The place is given back by
// release, or by remove once a subflow was added.
func (t *relayTable) reserveSlot() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.slots >= t.maxSubflows {
		return fault.New(fault.Limit, fmt.Errorf("it relays %d subflows already", t.maxSubflows), "raise max_subflows there")
	}
	t.slots++
	return nil
}

func (t *relayTable) releaseSlot() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.slots--
}

// addSubflow gives s, whose place is reserved, its number.
func (t *relayTable) addSubflow(s *subflow) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.openedCount++
	s.number = t.openedCount
	t.subflows[s] = struct{}{}
}

// removeSubflow takes out s, whose relay has ended.
func (t *relayTable) removeSubflow(s *subflow) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.subflows, s)
	t.slots--
	t.endedBytes += s.receivedBytes()
}

// listSubflows returns the subflows, oldest first.
func (t *relayTable) listSubflows() []*subflow {
	list, _ := t.listWithBytes()
	return list
}

// listWithBytes returns the subflows, oldest first, and the bytes of all that there were.
func (t *relayTable) listWithBytes() (list []*subflow, bytes uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	list, bytes = make([]*subflow, 0, len(t.subflows)), t.endedBytes
	for s := range t.subflows {
		list = append(list, s)
		bytes += s.receivedBytes()
	}
	slices.SortFunc(list, func(a, b *subflow) int { return int(a.number) - int(b.number) })
	return list, bytes
}

// findPipe returns the pipe of a primary's subflow, nil if there is none of that token.
func (t *relayTable) findPipe(token wire.Token, primary identity.PublicKey) *pipe.Link {
	for _, s := range t.listSubflows() {
		if s.pipe.Token() == token && s.primary.Key == primary {
			return s.pipe
		}
	}
	return nil
}

// closeWhere closes each subflow for which why returns an error, with that error, and
// returns how many these are.
func (t *relayTable) closeWhere(why func(*subflow) error) (n int) {
	for _, s := range t.listSubflows() {
		err := why(s)
		switch {
		case err == nil:
			continue
		case errors.As(err, new(capError)):
			s.closeRelay(err) // before another byte is counted; it does not block
		default:
			go s.closeRelay(err) // it may wait for its TLS to say goodbye
		}
		n++
	}
	return n
}

// lastLocalAddr returns the address that the newest HS-path goes from, nil if there is none.
func (t *relayTable) lastLocalAddr() net.Addr {
	if list := t.listSubflows(); len(list) > 0 {
		return list[len(list)-1].hs.LocalAddr()
	}
	return nil
}

// receivedBytes returns what has come in from both ends.
func (r *relay) receivedBytes() uint64 { return r.up.bytesRead.Load() + r.down.bytesRead.Load() }

// sampleRates measures the subflow's rates and whether its HS-path is mute. It is called each
// addressInterval.
func (s *subflow) sampleRates(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rates.updateRate(now, s.up.bytesRead.Load(), s.down.bytesRead.Load())
	if hs, err := s.hs.Probe(); err == nil {
		s.silence.observeHop(now, hs)
	}
}

// lastSilence returns since when the HS-path is mute.
func (s *subflow) lastSilence() silenceMeter {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.silence
}

// handleLostAddress acts on addresses that this device has lost: a pipe from such an address is
// broken, so that the subflow looks for another; an HS-path goes on from another address,
// over UDP, or the subflow is given back to the primary.
func (s *subflow) handleLostAddress(lost func(net.Addr) bool, log *slog.Logger) {
	log = log.With("primary", s.primary.Name)
	if local := s.pipe.LocalAddr(); lost(local) && s.pipe.AbandonConn(local, errAddress) {
		log.Info("pipe given up", "from", local, "err", errAddress)
	}
	local := s.hs.LocalAddr()
	if !lost(local) {
		return
	}
	s.mu.Lock()
	before := s.moves.count
	goesOn := s.moves.moveConn(s.hs.Conn())
	moved := s.moves.count > before
	s.mu.Unlock()
	if !goesOn {
		log.Info("HS-path given up", "from", local, "err", errAddress)
		go s.closeRelay(errAddress) // may wait for a write that is under way
	} else if moved {
		log.Info("HS-path goes on from another address", "before", local, "now", s.hs.LocalAddr())
	}
}

// describeSubflow returns the state for the api, without the primary's present name and the reason
// why UDP is not used.
func (s *subflow) describeSubflow() SubflowStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return SubflowStatus{Number: s.number, Primary: s.primary.Name, Server: s.server, Since: s.since, Transport: s.hs.LocalAddr().Network(),
		Migrated: s.moves.count, Up: s.up.describeDirection(), Down: s.down.describeDirection(), UpBps: s.rates.upBps, DownBps: s.rates.downBps}
}
