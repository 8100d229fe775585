// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"mpbond/base/fault"
	"mpbond/base/pace"
	"mpbond/control/device"
	"mpbond/control/policy"
	"mpbond/link/pipe"
	"mpbond/link/subflow"
	"mpbond/link/wire"
	"mpbond/node/endpoint"
)

// bondHolder holds the bond with the server. A session is the bond with one instance of the server:
// when the server has lost the bond, replaceSession starts a new session, and the streams end. It
// opens streams and flows in the current session, knows the connection of each subflow, notifies
// the supervisor of an ended subflow, and keeps the class table up to date. Safe for concurrent
// use. mu is held while locks of the endpoint, of demand and of the trust file are taken, so that
// the session is not replaced between two steps; none of these calls back.
type bondHolder struct {
	names         deviceNames
	demand        *demand
	streamTimeout time.Duration // how long streams wait without a subflow
	clock         *pace.Clock
	log           *slog.Logger
	// open makes the endpoint of a bond, which calls down when a subflow has ended.
	open func(id wire.BondID, down func(*subflow.Subflow, error)) *endpoint.Endpoint

	mu        sync.Mutex
	active    *session
	classes   classTable
	newClass  chan struct{} // of capacity 1: wakes runClassLoop
	isClosing bool          // closeWithFarewell was called
	closing   chan struct{} // closed by closeWithFarewell
	wg        sync.WaitGroup
}

// session is the bond with one instance of the server. id and endpoint do not change; bondHolder.mu
// guards the rest.
type session struct {
	id          wire.BondID
	endpoint    *endpoint.Endpoint
	instance    uint64 // of the server; 0 until known
	lastSubflow wire.SubflowID
	subflows    map[wire.SubflowID]*sessionSubflow
}

// sessionSubflow is what a session knows of a joined subflow. bondHolder.mu must be held.
type sessionSubflow struct {
	device        deviceRef
	tier          wire.Tier  // when it joined
	link          *pipe.Link // session of pipes of a helped subflow, else nil
	conn          net.Conn   // of a direct subflow, else nil
	ended         chan error // receives why it ended, once
	pipeInterface string     // the interface of this device that the pipe uses
	pipeLocal     string     // the local address behind pipeInterface
	moves         int        // how often conn moved to another address
	lastMoveTry   time.Time  // last time conn moved, or failed to
}

// errRestarted asks the supervisor for another attempt at once.
var errRestarted = errors.New("the server has lost the bond; starting a new one")

// openFirstSession makes the first session.
func (b *bondHolder) openFirstSession() {
	b.closing = make(chan struct{})
	b.active = b.newServerSession()
}

func (b *bondHolder) newServerSession() *session {
	s := &session{subflows: map[wire.SubflowID]*sessionSubflow{}}
	_, _ = rand.Read(s.id[:]) // never fails
	s.endpoint = b.open(s.id, func(sf *subflow.Subflow, err error) {
		b.endSubflow(s, sf.ID, err)
		if s.endpoint.PeerClosed() { // new streams wait for the server's next instance
			b.replaceSession(s, "the server has ended the bond")
		}
	})
	return s
}

// currentSession returns the current session.
func (b *bondHolder) currentSession() *session {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.active
}

// sessionOfBond returns the current session if bond is its ID.
func (b *bondHolder) sessionOfBond(bond string) (*session, error) {
	s := b.currentSession()
	if s.id.String() != bond {
		return nil, fault.New(fault.NotFound, fmt.Errorf("there is no bond %.40q", bond), "see `mpbond status`")
	}
	return s, nil
}

// hasOpenStreams reports whether streams are open.
func (b *bondHolder) hasOpenStreams() bool { return b.currentSession().endpoint.Streams() > 0 }

// hasSubflow reports whether there is a subflow.
func (b *bondHolder) hasSubflow() bool { return b.currentSession().endpoint.NoSubflowFor() == 0 }

// ownSubflows returns the current session and its subflows by the local interface that carries them.
func (b *bondHolder) ownSubflows() (s *session, by map[string][]wire.SubflowID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	by = map[string][]wire.SubflowID{}
	for id, m := range b.active.subflows {
		if m.device.isLocalInterface() {
			by[m.device.iface] = append(by[m.device.iface], id)
		}
	}
	return b.active, by
}

// prepareJoin returns the current session and a JOIN for its next subflow, to be completed.
func (b *bondHolder) prepareJoin() (*session, wire.Join) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.active
	s.lastSubflow++
	return s, wire.Join{Version: wire.Version, Bond: s.id, Subflow: s.lastSubflow, Instance: s.instance}
}

// addAcceptedSubflow adds a subflow that an instance of the server has accepted. The returned
// channel receives why the subflow ended. addAcceptedSubflow owns the subflow, also after an error.
func (b *bondHolder) addAcceptedSubflow(
	s *session,
	sf *subflow.Subflow,
	instance uint64,
	m sessionSubflow,
) (<-chan error, error) {
	m.ended = make(chan error, 1)
	b.mu.Lock()
	s.instance = cmp.Or(s.instance, instance)
	same := s.instance == instance
	if b.active != s { // another session took its place while the subflow joined
		b.mu.Unlock()
		sf.Close()
		return nil, errRestarted
	}
	s.subflows[sf.ID] = &m
	b.mu.Unlock()
	if !same {
		sf.Close()
		b.replaceSession(s, "the server has restarted")
		return nil, errRestarted
	}
	if err := s.endpoint.Attach(sf); err != nil {
		return nil, err
	}
	b.updateClasses(func() {})
	b.demand.notifyJoined()
	return m.ended, nil
}

// endSubflow notifies the supervisor of a subflow that it has ended.
func (b *bondHolder) endSubflow(s *session, id wire.SubflowID, err error) {
	var m *sessionSubflow
	b.updateClasses(func() {
		m = s.subflows[id]
		delete(s.subflows, id)
	})
	if m != nil {
		m.ended <- err
	}
}

// detachSubflow ends a subflow for a reason and reports whether it existed.
func (b *bondHolder) detachSubflow(s *session, id wire.SubflowID, why error) bool {
	found := s.endpoint.Detach(id)
	if found {
		b.endSubflow(s, id, why)
	}
	return found
}

// replaceSession replaces a session for a reason: its streams are reset, and new ones use the new
// session.
func (b *bondHolder) replaceSession(old *session, why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.active != old || b.isClosing {
		return
	}
	b.active = b.newServerSession()
	b.classes.markAllUnsent()
	b.sendClasses()
	b.log.Warn("resetting open streams", "reason", why)
	b.wg.Go(func() {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		old.endpoint.ResetStreams(wire.CodeConnReset, why)
		old.endpoint.Close(now)
		b.mu.Lock()
		ends := old.subflows
		old.subflows = map[wire.SubflowID]*sessionSubflow{}
		b.mu.Unlock()
		for _, m := range ends {
			m.ended <- errors.New("the bond was replaced")
		}
	})
}

// drainPoll is how often a session that drains is checked for its end.
const drainPoll = 200 * time.Millisecond

// drainSession replaces a session without an end of its streams: they keep its subflows, for limit at most, and
// new ones use the new session.
func (b *bondHolder) drainSession(old *session, limit time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.active != old || b.isClosing {
		return
	}
	b.active = b.newServerSession()
	b.classes.markAllUnsent()
	b.sendClasses()
	for _, m := range old.subflows { // their supervisors open those of the new session
		m.ended <- errRestarted
	}
	old.subflows = map[wire.SubflowID]*sessionSubflow{}
	b.wg.Go(func() {
		poll, end := time.NewTicker(drainPoll), time.NewTimer(limit)
		defer poll.Stop()
		defer end.Stop()
		isEnding := false
		for !isEnding && old.endpoint.Streams()+len(old.endpoint.FlowList()) > 0 && !old.endpoint.PeerClosed() &&
			old.endpoint.NoSubflowFor() < b.streamTimeout {
			select {
			case <-poll.C:
			case <-end.C:
				isEnding = true
			case <-b.closing:
				isEnding = true
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		old.endpoint.Close(ctx)
	})
}

// closeWithFarewell ends the bond and says goodbye to the server until ctx ends.
func (b *bondHolder) closeWithFarewell(ctx context.Context) {
	b.mu.Lock()
	if !b.isClosing {
		b.isClosing = true
		close(b.closing)
	}
	e := b.active.endpoint
	b.mu.Unlock()
	e.Close(ctx)
	b.wg.Wait()
}

// Streams.

// minStreamWait is the least time that a new stream waits for a subflow, even if there has been
// none for longer than streamTimeout. It allows two attempts.
const minStreamWait = 10 * time.Second

// dialBondStream opens a stream with a mode and the class of a rule, nil for the default. It waits
// until there is a subflow.
func (b *bondHolder) dialBondStream(
	ctx context.Context,
	dest string,
	mode wire.Mode,
	class *policy.TrafficClass,
) (*endpoint.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock() // the session must not be replaced meanwhile
	if err := b.awaitSubflow(ctx); err != nil {
		return nil, err
	}
	defer b.demand.notifyWanted() // for a second subflow
	id, err := b.classForSettings(class)
	if err != nil {
		return nil, err
	}
	return b.active.endpoint.Dial(dest, mode, id)
}

// dialOnSubflow opens a stream that only one subflow carries. Rules do not apply, since only the
// server sees its bytes.
func (b *bondHolder) dialOnSubflow(ctx context.Context, dest string, id wire.SubflowID) (*endpoint.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.awaitSubflow(ctx); err != nil {
		return nil, err
	}
	c, err := b.active.endpoint.Dial(dest, wire.ModeBond, 0)
	if err != nil {
		return nil, err
	}
	if !c.Bind(id) {
		c.Reset()
		return nil, wire.Reset{Code: wire.CodeClosed, Text: fmt.Sprintf("there is no subflow %d", id)}
	}
	return c, nil
}

// dialPackets opens a datagram flow. It does not wait.
func (b *bondHolder) dialPackets() (*endpoint.PacketConn, error) {
	b.clock.Wake()
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.active.endpoint.DialPackets(false)
}

// awaitSubflow waits until the session has a subflow. mu must be held; it is released during the
// wait. A stream opened without a subflow might belong to a bond that the server has lost, and be
// reset.
func (b *bondHolder) awaitSubflow(ctx context.Context) error {
	gone := b.active.endpoint.NoSubflowFor()
	if gone == 0 {
		return nil
	}
	limit := max(b.streamTimeout-gone, min(b.streamTimeout, minStreamWait))
	giveUp := time.NewTimer(limit)
	defer giveUp.Stop()
	defer b.demand.beginStreamWait()()
	b.demand.notifyWanted()
	for {
		joined := b.demand.nextJoined()
		if b.active.endpoint.NoSubflowFor() == 0 {
			return nil
		}
		b.mu.Unlock()
		var err error
		select {
		case <-joined:
		case <-ctx.Done():
			err = ctx.Err()
		case <-b.closing:
			err = wire.Reset{Code: wire.CodeClosed, Text: "mpbond is shutting down"}
		case <-giveUp.C:
			// Not CodeUnreachable: apps would then connect directly.
			err = wire.Reset{
				Code: wire.CodeTimeout,
				Text: fmt.Sprintf("no way to the server for %v", limit.Round(100*time.Millisecond)),
			}
		}
		b.mu.Lock()
		if err != nil {
			return err
		}
	}
}

// Traffic classes.

// classInterval is how often classes are updated, besides when subflows join and end: a pipe may
// have changed, or a subflow may be silent.
const classInterval = 100 * time.Millisecond

// classForSettings returns the class ID for the settings of a rule. mu must be held.
func (b *bondHolder) classForSettings(settings *policy.TrafficClass) (wire.GroupID, error) {
	id, added, err := b.classes.assignClass(settings, b.active.endpoint.ClassesInUse)
	if added {
		b.sendClasses()
		select {
		case b.newClass <- struct{}{}:
		default:
		}
	}
	return id, err
}

// setFlowClass sets the class of a flow, unless a datagram was sent before. If a socket has several
// destinations, the first one decides.
func (b *bondHolder) setFlowClass(c *endpoint.PacketConn, t *policy.TrafficClass) error {
	b.mu.Lock()
	defer b.mu.Unlock() // the class must not be retired meanwhile
	class, err := b.classForSettings(t)
	if err == nil {
		c.SetClass(class)
	}
	return err
}

// changeStreamClass changes how a stream is carried. change gets its mode and class settings and
// returns new ones. found reports whether the stream exists.
func (b *bondHolder) changeStreamClass(
	s *session,
	id wire.StreamID,
	change func(wire.Mode, policy.TrafficClass) (wire.Mode, policy.TrafficClass, error),
) (found bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock() // the session and its classes must not be replaced meanwhile
	mode, class, ok := s.endpoint.StreamClass(id)
	if !ok || b.active != s {
		return false, nil
	}
	t := policy.TrafficClass{Weight: 1}
	if class > 0 {
		if t, ok = b.classes.settingsOf(class); !ok {
			return false, nil
		}
	}
	if mode, t, err = change(mode, t); err != nil {
		return true, err
	}
	settings := &t
	if !t.IsSpecial() {
		settings = nil
	}
	if class, err = b.classForSettings(settings); err != nil {
		return true, fault.New(fault.Limit, err, "close some connections, or reset them")
	}
	return s.endpoint.SetStreamClass(id, mode, class), nil
}

// updateClasses calls f and then updates the classes, both with mu held.
func (b *bondHolder) updateClasses(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
	b.sendClasses()
}

// sendClasses sends the bond the class table if it has changed. mu must be held.
func (b *bondHolder) sendClasses() {
	if b.classes.hasNoClasses() {
		return
	}
	if table, changed := b.classes.computeTable(b.listClassSubflows(), time.Now()); changed {
		b.active.endpoint.SetClasses(table)
	}
}

// runClassLoop keeps the classes up to date until ctx ends. It ends streams if their class has had
// no subflow for too long. New streams wait as awaitSubflow describes. It sleeps until the first
// class: each wake-up of an idle phone costs energy.
func (b *bondHolder) runClassLoop(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-b.newClass:
	}
	t := b.clock.NewTicker(classInterval)
	defer t.Stop()
	for {
		b.updateClasses(func() {})
		b.failEmptyClasses(time.Now())
		select {
		case <-ctx.Done():
			return
		case <-b.newClass:
		case <-t.C:
		}
	}
}

// failEmptyClasses ends streams of classes that have had no subflow for too long.
func (b *bondHolder) failEmptyClasses(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	empty := b.classes.listEmptyClasses(now)
	if len(empty) == 0 {
		return
	}
	inUse := b.active.endpoint.ClassesInUse()
	for _, c := range empty {
		if inUse[c.id] {
			b.clock.Wake() // what waits must not wait longer because nothing moves
		}
		if c.emptyFor <= b.streamTimeout {
			continue
		}
		b.active.endpoint.FailClass(c.id, min(b.streamTimeout, minStreamWait), wire.Reset{Code: wire.CodeTimeout,
			Text: fmt.Sprintf("no device that the policy allows has worked for %v", c.emptyFor.Round(time.Second))})
	}
}

// snapshotSubflows returns the subflows that could carry something now.
func (b *bondHolder) snapshotSubflows() subflowSnapshot {
	b.mu.Lock()
	defer b.mu.Unlock()
	return subflowSnapshot{b.listClassSubflows(), b.classes.firstSubflows()}
}

// listClassSubflows describes the subflows for traffic classes, with the names that rules use. mu
// must be held.
func (b *bondHolder) listClassSubflows() (list []policy.ClassSubflow) {
	for _, a := range b.active.endpoint.Status(false).Subflows {
		m := b.active.subflows[a.ID]
		if m == nil {
			continue // it is just joining
		}
		r := policy.ClassSubflow{
			ID:     a.ID,
			Direct: !a.Helped,
			Names:  []string{a.Device},
			Tier:   m.tier,
			Silent: a.SubflowInfo.Silent,
			Delay:  a.PAD,
		}
		if m.device.isLocalInterface() {
			r.Names = slices.Concat(r.Names, b.names.policyNames(), []string{m.device.iface})
		}
		if m.link != nil && !m.link.IsBroken() {
			r.Pipe = m.findPipeInterface()
		}
		list = append(list, r)
	}
	return list
}

// findPipeInterface returns the interface of this device that the pipe uses, as rules name it.
func (s *sessionSubflow) findPipeInterface() string {
	if at := s.link.LocalAddr(); at.String() != s.pipeLocal {
		s.pipeLocal = at.String()
		if s.pipeInterface = device.InterfaceOf(at); s.pipeInterface == "" && s.link.Radio() == wire.RadioBluetooth ||
			strings.HasPrefix(s.link.RemoteAddr().Network(), "rfcomm") {
			s.pipeInterface = "bluetooth"
		}
	}
	return s.pipeInterface
}
