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
	"mpbond/control/device"
	"mpbond/control/policy"
	"mpbond/link/pipe"
	"mpbond/link/subflow"
	"mpbond/link/wire"
	"mpbond/node/endpoint"
)

// sessions holds the bond with the server. A session is one life of it with one instance
// of the server: when that has lost the bond, restart replaces the session, and its streams
// end. It opens streams and flows in the session of the moment, knows what each subflow
// goes over, tells the keeper of a subflow when that has ended, and keeps the plan of the
// traffic classes up to date. Safe for concurrent use. Its lock is held while those of the
// endpoint, of demand and of the trust file are taken, so that a session is not replaced
// between two steps; none of these calls back.
type sessions struct {
	names         deviceNames
	demand        *demand
	streamTimeout time.Duration // streams wait so long while there is no subflow
	log           *slog.Logger
	// open makes the endpoint of a bond, which calls down when a subflow has ended.
	open func(id wire.BondID, down func(*subflow.Subflow, error)) *endpoint.Endpoint

	mu        sync.Mutex
	active    *session
	classes   classTable
	isClosing bool          // close was called
	closing   chan struct{} // closed then
	wg        sync.WaitGroup
}

// session is the bond with one instance of the server. id and e do not change;
// sessions.mu guards the rest.
type session struct {
	id          wire.BondID
	endpoint    *endpoint.Endpoint
	instance    uint64 // of the server; 0 until it has told
	lastSubflow wire.SubflowID
	subflows    map[wire.SubflowID]*sessionSubflow
}

// sessionSubflow is what a session knows of a subflow that has joined. sessions.mu must be held.
type sessionSubflow struct {
	device        deviceRef
	tier          wire.Tier  // that it joined with
	link          *pipe.Link // of a helped one, else nil
	conn          net.Conn   // of a direct one, else nil
	ended         chan error // gets its end, once
	pipeInterface string     // the link of this device that the pipe goes by
	pipeLocal     string     // address that pipe was found for
	moves         int        // how many times conn went on from another address
	lastMoveTry   time.Time  // when it did, or lacked one, last
}

// errRestarted asks for another attempt at once.
var errRestarted = errors.New("the server has lost the bond, a new one is made")

// openFirst makes the first session.
func (b *sessions) openFirst() {
	b.closing = make(chan struct{})
	b.active = b.newSession()
}

func (b *sessions) newSession() *session {
	s := &session{subflows: map[wire.SubflowID]*sessionSubflow{}}
	_, _ = rand.Read(s.id[:]) // never fails
	s.endpoint = b.open(s.id, func(sf *subflow.Subflow, err error) {
		b.endSubflow(s, sf.ID, err)
		if s.endpoint.PeerClosed() { // new streams shall wait for the server's next life
			b.replaceSession(s, "the server has ended the bond")
		}
	})
	return s
}

// currentSession returns the session of the moment.
func (b *sessions) currentSession() *session {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.active
}

// findSession returns the session of that name.
func (b *sessions) findSession(bond string) (*session, error) {
	s := b.currentSession()
	if s.id.String() != bond {
		return nil, fault.New(fault.NotFound, fmt.Errorf("there is no bond %.40q", bond), "see `mpbond status`")
	}
	return s, nil
}

// isBusy reports whether there are open streams.
func (b *sessions) isBusy() bool { return b.currentSession().endpoint.Streams() > 0 }

// hasSubflow reports whether there is a subflow.
func (b *sessions) hasSubflow() bool { return b.currentSession().endpoint.NoSubflowFor() == 0 }

// newJoin returns the session of the moment, and the beginning of a JOIN for its next subflow.
func (b *sessions) newJoin() (*session, wire.Join) {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.active
	s.lastSubflow++
	return s, wire.Join{Version: wire.Version, Bond: s.id, Subflow: s.lastSubflow, Instance: s.instance}
}

// addSubflow puts a subflow to use that an instance of the server has accepted, and returns the
// channel that gets its end. It owns the subflow from now on, also after an error.
func (b *sessions) addSubflow(s *session, sf *subflow.Subflow, instance uint64, m sessionSubflow) (<-chan error, error) {
	m.ended = make(chan error, 1)
	b.mu.Lock()
	s.instance = cmp.Or(s.instance, instance)
	same := s.instance == instance
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

// endSubflow tells the keeper of a subflow that it has ended.
func (b *sessions) endSubflow(s *session, id wire.SubflowID, err error) {
	var m *sessionSubflow
	b.updateClasses(func() {
		m = s.subflows[id]
		delete(s.subflows, id)
	})
	if m != nil {
		m.ended <- err
	}
}

// detachSubflow ends a subflow for a reason, and reports whether there was one of that number.
func (b *sessions) detachSubflow(s *session, id wire.SubflowID, why error) bool {
	found := s.endpoint.Detach(id)
	if found {
		b.endSubflow(s, id, why)
	}
	return found
}

// replaceSession replaces a session for a reason: its streams end with a reset, new ones work.
func (b *sessions) replaceSession(old *session, why string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.active != old || b.isClosing {
		return
	}
	b.active = b.newSession()
	b.classes.resetSent()
	b.sendClasses()
	b.log.Warn("open streams end", "reason", why)
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

// closeBond ends the bond, and says goodbye to the server until ctx ends.
func (b *sessions) closeBond(ctx context.Context) {
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

// minStreamWait is how long a new stream waits for a way to the server, if there has
// been none for longer than streams wait: time for two attempts.
const minStreamWait = 10 * time.Second

// dialStream opens a stream of a mode, treated as a rule says, nil for nothing special. It waits
// until there is a subflow.
func (b *sessions) dialStream(ctx context.Context, dest string, mode wire.Mode, treat *policy.TrafficClass) (*endpoint.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock() // so that the session is not replaced meanwhile
	if err := b.awaitSubflow(ctx); err != nil {
		return nil, err
	}
	defer b.demand.notifyWanted() // a second subflow
	class, err := b.classOf(treat)
	if err != nil {
		return nil, err
	}
	return b.active.endpoint.Dial(dest, mode, class)
}

// dialOnSubflow opens a stream that one subflow alone carries. Rules do not concern it, since
// nothing but the server ever sees its bytes.
func (b *sessions) dialOnSubflow(ctx context.Context, dest string, path wire.SubflowID) (*endpoint.Conn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err := b.awaitSubflow(ctx); err != nil {
		return nil, err
	}
	c, err := b.active.endpoint.Dial(dest, wire.Bond, 0)
	if err != nil {
		return nil, err
	}
	if !c.Bind(path) {
		c.Reset()
		return nil, wire.Reset{Code: wire.CodeClosed, Text: fmt.Sprintf("there is no subflow %d", path)}
	}
	return c, nil
}

// dialPackets opens a datagram flow. It does not wait.
func (b *sessions) dialPackets() (*endpoint.PacketConn, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.active.endpoint.DialPackets(false)
}

// awaitSubflow waits until the session has a subflow. mu must be held; it is released while
// it waits. A stream that is opened without one could turn out to be part of a bond that the
// server has lost meanwhile, and be reset.
func (b *sessions) awaitSubflow(ctx context.Context) error {
	gone := b.active.endpoint.NoSubflowFor()
	if gone == 0 {
		return nil
	}
	limit := max(b.streamTimeout-gone, min(b.streamTimeout, minStreamWait))
	giveUp := time.NewTimer(limit)
	defer giveUp.Stop()
	defer b.demand.beginWait()()
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
			// Not CodeUnreachable, which lets apps go directly.
			err = wire.Reset{Code: wire.CodeTimeout, Text: fmt.Sprintf("no way to the server for %v", limit.Round(100*time.Millisecond))}
		}
		b.mu.Lock()
		if err != nil {
			return err
		}
	}
}

// The plan.

// classInterval is how often classes are brought up to date, besides when subflows
// come and go: a pipe may have changed, or a subflow fallen silent.
const classInterval = 100 * time.Millisecond

// classOf returns the traffic class of what a rule says. mu must be held.
func (b *sessions) classOf(t *policy.TrafficClass) (wire.GroupID, error) {
	id, added, err := b.classes.assignClass(t, b.active.endpoint.ClassesInUse)
	if added {
		b.sendClasses()
	}
	return id, err
}

// setFlowClass puts a flow into the class that a rule wants, unless a datagram was sent
// before: of a socket with several destinations the first one decides.
func (b *sessions) setFlowClass(c *endpoint.PacketConn, t *policy.TrafficClass) error {
	b.mu.Lock()
	defer b.mu.Unlock() // so that the class is not gone meanwhile
	class, err := b.classOf(t)
	if err == nil {
		c.SetClass(class)
	}
	return err
}

// changeStreamClass changes how a stream is carried. change gets its mode and treatment, and
// returns others. It reports whether there is such a stream.
func (b *sessions) changeStreamClass(s *session, id wire.StreamID, change func(wire.Mode, policy.TrafficClass) (wire.Mode, policy.TrafficClass, error)) (found bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock() // so that the session, and its classes, are not replaced meanwhile
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
	treat := &t
	if !t.IsSpecial() {
		treat = nil
	}
	if class, err = b.classOf(treat); err != nil {
		return true, fault.New(fault.Limit, err, "close some connections, or reset them")
	}
	return s.endpoint.SetStreamClass(id, mode, class), nil
}

// updateClasses does f, and brings the plan up to date.
func (b *sessions) updateClasses(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f()
	b.sendClasses()
}

// sendClasses sends the bond what has changed about classes. mu must be held.
func (b *sessions) sendClasses() {
	if b.classes.isEmpty() {
		return
	}
	if table, changed := b.classes.computeTable(b.listRoutes(), time.Now()); changed {
		b.active.endpoint.SetClasses(table)
	}
}

// runClassLoop keeps classes up to date until ctx ends, and ends streams whose class
// has had no subflow for too long, but for new ones, which wait a while as others
// do; see awaitSubflow.
func (b *sessions) runClassLoop(ctx context.Context) {
	t := time.NewTicker(classInterval)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		b.updateClasses(func() {})
		b.failEmptyClasses(time.Now())
	}
}

// failEmptyClasses ends streams of classes that have had no subflow for too long.
func (b *sessions) failEmptyClasses(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.classes.listEmpty(now, b.streamTimeout) {
		b.active.endpoint.FailClass(c.id, min(b.streamTimeout, minStreamWait), wire.Reset{Code: wire.CodeTimeout,
			Text: fmt.Sprintf("no device that policy allows for it has worked for %v", c.emptyFor.Round(time.Second))})
	}
}

// snapshotRoutes returns what there is to carry something now.
func (b *sessions) snapshotRoutes() routeSnapshot {
	b.mu.Lock()
	defer b.mu.Unlock()
	return routeSnapshot{b.listRoutes(), b.classes.firstSubflows()}
}

// listRoutes returns the subflows as rules name them. mu must be held.
func (b *sessions) listRoutes() (list []policy.ClassSubflow) {
	for _, a := range b.active.endpoint.Status(false).Subflows {
		m := b.active.subflows[a.ID]
		if m == nil {
			continue // it is just joining
		}
		r := policy.ClassSubflow{ID: a.ID, Local: !a.Helped, Names: []string{a.Device}, Tier: m.tier, Silent: a.SubflowInfo.Silent, Delay: a.PAD}
		if m.device.isOwnLink() {
			r.Names = slices.Concat(r.Names, b.names.policyNames(), []string{m.device.link})
		}
		if m.link != nil && !m.link.IsBroken() {
			r.Pipe = m.pipeLink()
		}
		list = append(list, r)
	}
	return list
}

// pipeLink returns the link of this device by which the pipe goes, as rules name it.
func (m *sessionSubflow) pipeLink() string {
	if at := m.link.LocalAddr(); at.String() != m.pipeLocal {
		m.pipeLocal = at.String()
		if m.pipeInterface = device.InterfaceOf(at); m.pipeInterface == "" && m.link.Radio() == wire.RadioBluetooth || strings.HasPrefix(m.link.RemoteAddr().Network(), "rfcomm") {
			m.pipeInterface = "bluetooth"
		}
	}
	return m.pipeInterface
}
