package primary

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"mpbond/api"
	"mpbond/base/fault"
	"mpbond/control/policy"
	"mpbond/link/wire"
	"mpbond/node/status"
)

// Pipes lists the pipes that carry a subflow, and those that wait.
func (p *Primary) Pipes() []api.Pipe {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := []api.Pipe{}
	for id, l := range p.cur.links {
		if l.Broken() || l.Ended() {
			continue
		}
		c := api.Pipe{Address: l.RemoteAddr().String(), Via: l.Via(), State: api.PipeCarries, Bond: p.cur.id.String(), Path: uint32(id)}
		c.Device = p.cur.e.DeviceOf(id)
		list = append(list, c)
	}
	for _, slot := range p.helpers {
		waiting := slot.reserve
		if slot.held != nil {
			waiting = append(slices.Clone(waiting), slot.held)
		}
		for _, w := range waiting {
			if w.Err() == nil {
				list = append(list, api.Pipe{Device: slot.name, Address: w.RemoteAddr().String(), Via: w.Via(), State: api.PipeWaits, RTTms: float64(w.RTT().Microseconds()) / 1000})
			}
		}
	}
	return list
}

// CloseSubflow ends a subflow of the bond: what it carried goes over others, and
// its keeper makes a new one.
func (p *Primary) CloseSubflow(bond string, path uint32) error {
	s, err := p.session(bond)
	if err == nil && !s.e.Detach(wire.PathID(path)) {
		err = fault.New(fault.NotFound, fmt.Errorf("bond %s has no subflow %d", bond, path), "see `mpbond status`")
	}
	if err != nil {
		return err
	}
	p.ended(s, wire.PathID(path), errors.New("ended by hand"))
	return nil
}

// moveWait bounds how long who asks for a move waits for it.
const moveWait = 4 * time.Second

// MoveSubflow has a helped subflow go on over the pipe that waits at an address,
// until another one is better. It takes up to moveWait.
func (p *Primary) MoveSubflow(bond string, path uint32, to string) error {
	s, err := p.session(bond)
	if err != nil {
		return err
	}
	id := wire.PathID(path)
	p.mu.Lock()
	var slot *helperSlot
	link := s.links[id]
	for _, x := range p.helpers {
		if link != nil && x.link == link {
			slot = x
		}
	}
	p.mu.Unlock()
	switch {
	case s.e.DeviceOf(id) == "":
		return fault.New(fault.NotFound, fmt.Errorf("bond %s has no subflow %d", bond, path), "see `mpbond status`")
	case slot == nil:
		return fault.New(fault.Unsupported, fmt.Errorf("the pipe of subflow %d cannot be chosen", path), "a direct one has none, and a second one by a helper is ended when it is of no use")
	case !link.Broken() && link.RemoteAddr().String() == to:
		return nil
	}
	limit := time.NewTimer(moveWait)
	defer limit.Stop()
	w := wish{id, to, make(chan error, 1)}
	select {
	case slot.wishes <- w:
		select {
		case err := <-w.done:
			return err
		case <-limit.C:
		}
	case <-limit.C:
	}
	return fault.New(fault.Timeout, fmt.Errorf("subflow %d has not moved within %v", path, moveWait), "see `mpbond status`")
}

// ResetStream resets a stream of the bond, at both ends.
func (p *Primary) ResetStream(bond string, id uint64) error {
	s, err := p.session(bond)
	if err == nil && !s.e.ResetStream(wire.StreamID(id), "reset by hand") {
		err = fault.New(fault.NotFound, fmt.Errorf("bond %s has no stream %d", bond, id), "see `mpbond status --why`")
	}
	return err
}

// ChangeStream has both ends treat a stream of the bond otherwise from now on.
func (p *Primary) ChangeStream(bond string, id uint64, to api.StreamChange) error {
	s, err := p.session(bond)
	if err != nil {
		return err
	}
	none := fault.New(fault.NotFound, fmt.Errorf("bond %s has no stream %d", bond, id), "see `mpbond streams`")
	p.mu.Lock() // so that the bond, and its groups, are not replaced meanwhile
	defer p.mu.Unlock()
	mode, group, ok := s.e.TreatmentOf(wire.StreamID(id))
	if !ok || p.cur != s {
		return none
	}
	t := policy.Treatment{Weight: 1}
	if group > 0 {
		if t, ok = p.classes.treatment(group); !ok {
			return none
		}
	}
	if mode, err = retreat(&t, mode, to); err != nil {
		return err
	}
	treat := &t
	if !t.Special() {
		treat = nil
	}
	if group, err = p.classOf(treat); err != nil {
		return fault.New(fault.Limit, err, "close some connections, or reset them")
	}
	if !s.e.TreatStream(wire.StreamID(id), mode, group) {
		return none
	}
	return nil
}

// retreat changes a treatment, and the mode, as somebody asks for.
func retreat(t *policy.Treatment, mode wire.Mode, to api.StreamChange) (wire.Mode, error) {
	if to.Mode != nil {
		var m policy.Mode
		if err := m.UnmarshalText([]byte(*to.Mode)); err != nil {
			return mode, fault.New(fault.Usage, err, "")
		}
		t.Single = m == policy.ModeSingle
		switch m {
		case policy.ModeBond, policy.ModeSingle:
			mode = wire.Bond
		case policy.ModeLatency:
			mode = wire.Latency
		case policy.ModeRedundant:
			mode = wire.Redundant
		default:
			return mode, fault.New(fault.Usage, fmt.Errorf("a stream that is open cannot be carried in mode %v", m), "DELETE resets it")
		}
	}
	if to.Priority != nil {
		var c policy.Priority
		if err := c.UnmarshalText([]byte(*to.Priority)); err != nil {
			return mode, fault.New(fault.Usage, err, "")
		}
		t.Class = wire.Class(c)
	}
	if to.Weight != nil {
		t.Weight = uint8(max(1, min(*to.Weight, math.MaxUint8)))
	}
	return mode, nil
}

// Streams lists the bond's open streams, newest first.
func (p *Primary) Streams() []api.StreamOf {
	p.mu.Lock()
	s := p.cur
	p.mu.Unlock()
	peer, _ := p.server.get()
	return api.StreamsOf(s.id.String(), peer.Name, status.Streams(s.e.StreamList()))
}

// Flows lists the bond's datagram flows, the one used last first.
func (p *Primary) Flows() []api.FlowOf {
	p.mu.Lock()
	s := p.cur
	p.mu.Unlock()
	peer, _ := p.server.get()
	return api.FlowsOf(s.id.String(), peer.Name, status.Flows(s.e.FlowList()))
}

// session is the bond of that name.
func (p *Primary) session(bond string) (*session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cur.id.String() != bond {
		return nil, fault.New(fault.NotFound, fmt.Errorf("there is no bond %.40q", bond), "see `mpbond status`")
	}
	return p.cur, nil
}
