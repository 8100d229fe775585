// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"mpbond/api"
	"mpbond/link/pipe"
	"mpbond/link/wire"
	"mpbond/node/dial"
)

// errSilent is why a silent subflow was given up.
var errSilent = errors.New("silent")

// onlySilenceError returns err if it is errSilent, else nil.
func onlySilenceError(err error) error {
	if errors.Is(err, errSilent) {
		return err
	}
	return nil
}

// isAwaitingPipe reports whether a subflow is silent because of its pipe, now or until a moment
// ago. hopeless means that the silence exceeds the time that pipes get to come back. link is nil
// for a direct subflow.
func isAwaitingPipe(link *pipe.Link, now time.Time, hopeless bool) bool {
	if link == nil || link.HasEnded() {
		return false
	}
	link.CheckStalled(now)
	c := link.Counts()
	return shouldAwaitPipe(link.IsBroken(), hopeless, now.Sub(c.LastStalled), now.Sub(c.LastChange))
}

// shouldAwaitPipe decides whether a silent subflow keeps waiting for its pipe. sinceStall is the
// time since the pipe was last found stalled, sinceMove since it last moved to another connection.
func shouldAwaitPipe(broken, hopeless bool, sinceStall, sinceMove time.Duration) bool {
	// The link ends a broken pipe by itself after its resume timeout.
	return broken ||
		// A pipe that has just moved gets time to deliver, even after that timeout.
		sinceMove < silentLimit ||
		// A pipe that stalls is awaited until that is hopeless. One that stalled until a moment ago
		// carries our bytes again, but bytes of the other direction may wait for a retransmission
		// timer as long as the silence was.
		sinceStall < silentLimit && !hopeless
}

// linkOfSubflow returns the pipe link of a subflow, nil if it is direct or has ended.
func (b *bondHolder) linkOfSubflow(s *session, id wire.SubflowID) *pipe.Link {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m := s.subflows[id]; m != nil {
		return m.link
	}
	return nil
}

// giveUpSilent ends subflows that have been silent for too long, and all streams after too long
// without a subflow. Pipes get the time resume to come back.
func (b *bondHolder) giveUpSilent(resume time.Duration) {
	s := b.currentSession()
	hopeless := s.endpoint.SilentSubflows(max(silentLimit, resume))
	for _, id := range s.endpoint.SilentSubflows(silentLimit) {
		over := slices.Contains(hopeless, id)
		if isAwaitingPipe(b.linkOfSubflow(s, id), time.Now(), over) || !over && b.isSubflowMoving(s, id, time.Now()) {
			continue // its pipe or interface may come back, or just has
		}
		b.log.Info("silent subflow given up", "subflow", id)
		s.endpoint.Detach(id)
		b.endSubflow(s, id, fmt.Errorf("%w for more than %v", errSilent, silentLimit))
	}
	s.endpoint.ResetStranded(b.streamTimeout)
}

// endUnwanted ends the subflows for which check returns a reason. check gets the device and the
// tier at joining.
func (b *bondHolder) endUnwanted(check func(deviceRef, wire.Tier) error) {
	ends := map[wire.SubflowID]error{}
	b.mu.Lock()
	s := b.active
	for id, m := range s.subflows {
		if why := check(m.device, m.tier); why != nil {
			ends[id] = why
		}
	}
	b.mu.Unlock()
	for id, why := range ends {
		b.detachSubflow(s, id, why)
	}
}

// migrateSubflows moves direct subflows to the new address of their interface where possible, which
// is over UDP. lost reports whether this device lost an address.
func (b *bondHolder) migrateSubflows(lost func(net.Addr) bool) {
	conns := map[wire.SubflowID]net.Conn{}
	b.mu.Lock()
	s := b.active
	for id, m := range s.subflows {
		if m.conn != nil {
			conns[id] = m.conn
		}
	}
	b.mu.Unlock()
	for id, c := range conns {
		before := c.LocalAddr()
		if !lost(before) {
			continue
		}
		err := dial.Move(c)
		if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, dial.ErrElsewhere) {
			continue // it is given up as silent later
		}
		b.recordMove(s, id, err == nil)
		if err != nil {
			b.log.Debug("subflow lost its address", "subflow", id, "err", err)
		} else {
			b.log.Info("subflow moved to another address", "subflow", id, "before", before, "now", c.LocalAddr())
		}
	}
}

// recordMove records that a subflow moved to another address, or tried to.
func (b *bondHolder) recordMove(s *session, id wire.SubflowID, moved bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m := s.subflows[id]; m != nil {
		m.lastMoveTry = time.Now()
		if moved {
			m.moves++
		}
	}
}

// isSubflowMoving reports whether a silent subflow may deliver soon: it moved to another address,
// or is trying to.
func (b *bondHolder) isSubflowMoving(s *session, id wire.SubflowID, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := s.subflows[id]
	return m != nil && now.Sub(m.lastMoveTry) < silentLimit
}

// renameHelpers renames helpers all at once, since one may get the old name of another.
func (b *bondHolder) renameHelpers(list []deviceRename) {
	e := b.currentSession().endpoint
	aside := func(i int) string { return fmt.Sprintf(" %d", i) } // not a valid name
	for i, r := range list {
		e.RenameHelper(r.from, aside(i))
	}
	for i, r := range list {
		e.RenameHelper(aside(i), r.to)
	}
}

// helpedSubflowBytes returns what the helped subflows have carried so far.
func (b *bondHolder) helpedSubflowBytes() map[subflowOf]helpedBytes {
	s := b.currentSession()
	counts := s.endpoint.HelpedSubflowBytes()
	list := map[subflowOf]helpedBytes{}
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, f := range counts {
		if m := s.subflows[id]; m != nil && !m.device.isLocalInterface() {
			list[subflowOf{s.id, id}] = helpedBytes{m.device.helper, f.Radio, f.Rx, f.Tx}
		}
	}
	return list
}

// carryingPipes lists the pipes that carry a subflow.
func (b *bondHolder) carryingPipes() []api.Pipe {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := []api.Pipe{}
	for id, m := range b.active.subflows {
		if l := m.link; l != nil && !l.IsBroken() && !l.HasEnded() {
			list = append(
				list,
				api.Pipe{
					Address: l.RemoteAddr().String(),
					Via:     l.Via(),
					State:   api.PipeCarries,
					Bond:    b.active.id.String(),
					Subflow: uint32(id),
					Device:  b.active.endpoint.DeviceOf(id),
				},
			)
		}
	}
	return list
}

// addSubflowDetails adds connection details to the subflows of a session. waiting is the number of
// reserve pipes for each link; why returns the reason that an interface does not use UDP.
func (b *bondHolder) addSubflowDetails(
	s *session,
	subflows []api.Subflow,
	waiting map[*pipe.Link]int,
	why func(iface string, local net.Addr) string,
) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range subflows {
		p, m := &subflows[i], s.subflows[wire.SubflowID(subflows[i].ID)]
		switch {
		case m == nil:
		case m.link != nil:
			c := m.link.Counts()
			p.Resumed, p.Migrated, p.Waiting = c.Resumed, c.Migrated, waiting[m.link]
			if !m.link.IsBroken() {
				p.Pipe = m.link.RemoteAddr().String()
			}
		case m.conn != nil:
			p.Migrated = m.moves
			if p.Transport != "udp" {
				p.Fallback = why(m.device.iface, m.conn.LocalAddr())
			}
		}
	}
}
