// SPDX-License-Identifier: Apache-2.0

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

// relayTable holds the subflows that a helper relays and bounds their number. A subflow takes a
// slot before it connects (reserveSlot), is added when both hops are connected, and removed when
// its relay has ended. The table closes relays but never waits for one; the goroutine that runs a
// relay owns it. mu guards the set only: each subflow has its own lock. Safe for concurrent use.
type relayTable struct {
	maxSubflows int

	mu          sync.Mutex
	subflows    map[*subflow]struct{}
	slots       int    // of subflows and reservations
	openedCount uint64 // all relays so far, for their numbers
	endedBytes  uint64 // of ended relays
	ending      error  // why all relays end; nil while the helper runs
}

// subflow is an entry of the table: a relay with its number, its peers and measurements. The fields
// above mu do not change once it is in the table.
type subflow struct {
	*relay
	number  uint64 // in the trace and the API, from 1
	primary identity.Peer
	server  string
	since   time.Time
	link    string // interface of the HS-path, "" if unknown
	share   *sharedRelay

	mu      sync.Mutex
	moves   addressMoves
	silence silenceMeter
	rates   relayRate
}

func newRelayTable(limit int) *relayTable {
	return &relayTable{maxSubflows: limit, subflows: map[*subflow]struct{}{}}
}

// reserveSlot takes a slot for a subflow, or fails with fault.Limit. releaseSlot gives it back, or
// removeEndedSubflow once the subflow was added.
func (t *relayTable) reserveSlot() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.slots >= t.maxSubflows {
		return fault.New(
			fault.Limit,
			fmt.Errorf("the helper already relays %d subflows", t.maxSubflows),
			"raise max_subflows there",
		)
	}
	t.slots++
	return nil
}

func (t *relayTable) releaseSlot() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.slots--
}

// addRelayedSubflow adds s in any case and sets its number. Its slot must be reserved. If the
// helper is ending it returns why: the caller must then close s. removeEndedSubflow removes it as
// usual.
func (t *relayTable) addRelayedSubflow(s *subflow) (ending error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.openedCount++
	s.number = t.openedCount
	t.subflows[s] = struct{}{}
	return t.ending
}

// closeAllRelays closes all subflows, with that error. Those that are added later must end too: a
// request may be under way while the helper ends.
func (t *relayTable) closeAllRelays(why error) {
	t.mu.Lock()
	t.ending = why
	t.mu.Unlock()
	t.closeWhere(func(*subflow) error { return why })
}

// removeEndedSubflow removes s after its relay has ended.
func (t *relayTable) removeEndedSubflow(s *subflow) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.subflows, s)
	t.slots--
	t.endedBytes += s.bytesFromBothEnds()
}

// relayedSubflows returns the subflows, oldest first.
func (t *relayTable) relayedSubflows() []*subflow {
	list, _ := t.listWithBytes()
	return list
}

// listWithBytes returns the subflows, oldest first, and the bytes of all relays so far.
func (t *relayTable) listWithBytes() (list []*subflow, bytes uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	list, bytes = make([]*subflow, 0, len(t.subflows)), t.endedBytes
	for s := range t.subflows {
		list = append(list, s)
		bytes += s.bytesFromBothEnds()
	}
	slices.SortFunc(list, func(a, b *subflow) int { return int(a.number) - int(b.number) })
	return list, bytes
}

// findPipeByToken returns the pipe of a primary's subflow with that token, or nil.
func (t *relayTable) findPipeByToken(token wire.Token, primary identity.PublicKey) *pipe.Link {
	for _, s := range t.relayedSubflows() {
		if s.pipe.Token() == token && s.primary.Key == primary {
			return s.pipe
		}
	}
	return nil
}

// closeWhere closes each subflow for which why returns an error, with that error. It returns their
// number.
func (t *relayTable) closeWhere(why func(*subflow) error) (n int) {
	for _, s := range t.relayedSubflows() {
		err := why(s)
		switch {
		case err == nil:
			continue
		case errors.As(err, new(capError)):
			s.closeRelay(err) // before another byte is counted; does not block
		default:
			go s.closeRelay(err) // may wait for the TLS close
		}
		n++
	}
	return n
}

// newestHSPathAddr returns the local address of the newest HS-path, or nil.
func (t *relayTable) newestHSPathAddr() net.Addr {
	if list := t.relayedSubflows(); len(list) > 0 {
		return list[len(list)-1].hs.LocalAddr()
	}
	return nil
}

// bytesFromBothEnds returns the bytes received from both ends.
func (r *relay) bytesFromBothEnds() uint64 { return r.up.bytesRead.Load() + r.down.bytesRead.Load() }

// sampleHSPath measures the rates of the subflow and for how long its HS-path has been silent. It
// reports whether that has bytes in flight: then the next call is due addressInterval later.
func (s *subflow) sampleHSPath(now time.Time) (inFlight bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rates.updateRate(now, s.up.bytesRead.Load(), s.down.bytesRead.Load())
	hs, err := s.hs.Probe()
	if err == nil {
		s.silence.observeHSPath(now, hs)
	}
	return err == nil && hs.Queue > 0
}

// lastSilence returns the silence of the HS-path at the last sample.
func (s *subflow) lastSilence() silenceMeter {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.silence
}

// handleLostAddress reacts to addresses that this device has lost. It breaks a pipe from such an
// address, so that the subflow looks for another one. It moves an HS-path to another address, over
// UDP, or gives the subflow back to the primary.
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
	goesOn := s.moves.moveHSPathConn(s.hs.Conn())
	moved := s.moves.count > before
	s.mu.Unlock()
	if !goesOn {
		log.Info("HS-path given up", "from", local, "err", errAddress)
		go s.closeRelay(errAddress) // may wait for a pending write
	} else if moved {
		log.Info("HS-path moved to another address", "before", local, "now", s.hs.LocalAddr())
	}
}

// describeSubflow returns the state for the API. Primary is the name when the subflow was opened:
// the caller replaces it if the device was renamed, and adds why UDP is not used.
func (s *subflow) describeSubflow() SubflowStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	return SubflowStatus{
		Number:    s.number,
		Primary:   s.primary.Name,
		Server:    s.server,
		Since:     s.since,
		Transport: s.hs.LocalAddr().Network(),
		Migrated:  s.moves.count,
		Up:        s.up.describeDirection(),
		Down:      s.down.describeDirection(),
		UpBps:     s.rates.upBps,
		DownBps:   s.rates.downBps,
	}
}
