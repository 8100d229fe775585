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

// errSilent is that a subflow was given up, since nothing came by it.
var errSilent = errors.New("silent")

// silenceOf returns err if that is why a subflow was given up, else nil.
func silenceOf(err error) error {
	if errors.Is(err, errSilent) {
		return err
	}
	return nil
}

// isAwaitingPipe reports whether a subflow is silent because its pipe is, or was until a
// moment ago; hopeless is its silence beyond the time that pipes are given to
// come back. Link is nil for a direct one.
func isAwaitingPipe(link *pipe.Link, now time.Time, hopeless bool) bool {
	if link == nil || link.HasEnded() {
		return false
	}
	link.CheckStalled(now)
	c := link.Counts()
	return shouldAwaitPipe(link.IsBroken(), hopeless, now.Sub(c.LastStalled), now.Sub(c.LastChange))
}

// shouldAwaitPipe decides for how long a silent subflow is left to its pipe, which was last
// found stalled, and last went on over another connection, so long ago. A broken
// pipe has its session's window, which ends by itself. What went on a moment ago is
// given time to speak, also when that was in the window's last moments. A pipe that
// only stalls is waited for until that is hopeless; one that no longer does carries
// again this way, but what comes the other way may wait for a retransmission that
// has been put off for as long as the silence was.
func shouldAwaitPipe(broken, hopeless bool, stalled, back time.Duration) bool {
	return broken || back < silentLimit || stalled < silentLimit && !hopeless
}

// linkOfSubflow returns the pipe's link of a subflow, nil if it is direct or has ended.
func (b *sessions) linkOfSubflow(s *session, id wire.SubflowID) *pipe.Link {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m := s.subflows[id]; m != nil {
		return m.link
	}
	return nil
}

// giveUpSilent ends the subflows that have said nothing for long, and all streams after
// long without a subflow. Pipes are given resume to come back.
func (b *sessions) giveUpSilent(resume time.Duration) {
	s := b.currentSession()
	hopeless := s.endpoint.SilentSubflows(max(silentLimit, resume))
	for _, id := range s.endpoint.SilentSubflows(silentLimit) {
		over := slices.Contains(hopeless, id)
		if isAwaitingPipe(b.linkOfSubflow(s, id), time.Now(), over) || !over && b.isMoving(s, id, time.Now()) {
			continue // its pipe, or its interface, may come back, or has
		}
		b.log.Info("silent subflow given up", "path", id)
		s.endpoint.Detach(id)
		b.endSubflow(s, id, fmt.Errorf("%w for more than %v", errSilent, silentLimit))
	}
	if gone := s.endpoint.NoSubflowFor(); gone > b.streamTimeout {
		// Not CodeUnreachable, which lets apps go directly.
		s.endpoint.ResetStreams(wire.CodeTimeout, fmt.Sprintf("no way to the server for %v", gone.Round(time.Second)))
	}
}

// endUnwanted ends the subflows for which check returns a reason, by device and the tier that
// they joined with.
func (b *sessions) endUnwanted(check func(deviceRef, wire.Tier) error) {
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

// migrateSubflows has direct subflows whose interface has got another address go on from there,
// if they can: those over UDP. lost reports whether an address is gone.
func (b *sessions) migrateSubflows(lost func(net.Addr) bool) {
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
			continue // it is given up as silent
		}
		b.recordMove(s, id, err == nil)
		if err != nil {
			b.log.Debug("subflow has lost its address", "path", id, "err", err)
		} else {
			b.log.Info("subflow goes on from another address", "path", id, "before", before, "now", c.LocalAddr())
		}
	}
}

// recordMove counts that a subflow went on from another address, or has looked for one.
func (b *sessions) recordMove(s *session, id wire.SubflowID, moved bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m := s.subflows[id]; m != nil {
		m.lastMoveTry = time.Now()
		if moved {
			m.moves++
		}
	}
}

// isMoving reports whether a silent subflow may have something to say soon: it went on from
// another address, or looks for one.
func (b *sessions) isMoving(s *session, id wire.SubflowID, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := s.subflows[id]
	return m != nil && now.Sub(m.lastMoveTry) < silentLimit
}

// renameHelpers gives helpers other names, all at once: one may have got what another was called.
func (b *sessions) renameHelpers(list []deviceRename) {
	e := b.currentSession().endpoint
	aside := func(i int) string { return fmt.Sprintf(" %d", i) } // which is no name
	for i, r := range list {
		e.RenameHelper(r.from, aside(i))
	}
	for i, r := range list {
		e.RenameHelper(aside(i), r.to)
	}
}

// helpedFlows returns what the helped subflows have carried so far.
func (b *sessions) helpedFlows() map[subflowOf]helpedBytes {
	s := b.currentSession()
	flows := s.endpoint.HelpedFlows()
	list := map[subflowOf]helpedBytes{}
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, f := range flows {
		if m := s.subflows[id]; m != nil && !m.device.isOwnLink() {
			list[subflowOf{s.id, id}] = helpedBytes{m.device.helper, f.Radio, f.Rx, f.Tx}
		}
	}
	return list
}

// carryingPipes lists the pipes that carry a subflow.
func (b *sessions) carryingPipes() []api.Pipe {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := []api.Pipe{}
	for id, m := range b.active.subflows {
		if l := m.link; l != nil && !l.IsBroken() && !l.HasEnded() {
			list = append(list, api.Pipe{Address: l.RemoteAddr().String(), Via: l.Via(), State: api.PipeCarries, Bond: b.active.id.String(), Subflow: uint32(id), Device: b.active.endpoint.DeviceOf(id)})
		}
	}
	return list
}

// describeSubflows adds to paths of a session what they go over. waiting is how many pipes
// wait beside a link; why returns the reason that an interface does not go over UDP.
func (b *sessions) describeSubflows(s *session, paths []api.Subflow, waiting map[*pipe.Link]int, why func(link string, local net.Addr) string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range paths {
		p, m := &paths[i], s.subflows[wire.SubflowID(paths[i].ID)]
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
				p.Fallback = why(m.device.link, m.conn.LocalAddr())
			}
		}
	}
}
