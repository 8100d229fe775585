// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"errors"
	"fmt"
	"math"
	"time"

	"mpbond/api"
	"mpbond/base/fault"
	"mpbond/control/device"
	"mpbond/control/policy"
	"mpbond/link/wire"
	"mpbond/node/status"
)

// Pipes lists the pipes: those that carry a subflow and those that wait.
func (p *Primary) Pipes() []api.Pipe {
	return append(p.bond.carryingPipes(), p.helpers.listWaitingPipes()...)
}

// CloseSubflow ends a subflow of the bond. Other subflows take over its bytes, and its supervisor
// opens a new one.
func (p *Primary) CloseSubflow(bond string, id uint32) error {
	s, err := p.bond.sessionOfBond(bond)
	if err == nil && !p.bond.detachSubflow(s, wire.SubflowID(id), errors.New("ended by hand")) {
		err = fault.New(fault.NotFound, fmt.Errorf("bond %s has no subflow %d", bond, id), "see `mpbond status`")
	}
	return err
}

// moveTimeout bounds how long MoveSubflow waits for the move.
const moveTimeout = 4 * time.Second

// MoveSubflow moves a helped subflow to the waiting pipe at an address. The subflow stays there
// until a better pipe comes. It takes up to moveTimeout.
func (p *Primary) MoveSubflow(bond string, number uint32, to string) error {
	s, err := p.bond.sessionOfBond(bond)
	if err != nil {
		return err
	}
	id := wire.SubflowID(number)
	link := p.bond.linkOfSubflow(s, id)
	h := p.helpers.findByLink(link)
	switch {
	case s.endpoint.DeviceOf(id) == "":
		return fault.New(fault.NotFound, fmt.Errorf("bond %s has no subflow %d", bond, number), "see `mpbond status`")
	case h == nil:
		return fault.New(
			fault.Unsupported,
			fmt.Errorf("the pipe of subflow %d cannot be chosen", number),
			"only the first subflow of a helper has a pipe that can be chosen",
		)
	case !link.IsBroken() && link.RemoteAddr().String() == to:
		return nil
	}
	limit := time.NewTimer(moveTimeout)
	defer limit.Stop()
	r := moveRequest{id, to, make(chan error, 1)}
	select {
	case h.moveRequests <- r:
		select {
		case err := <-r.done:
			return err
		case <-limit.C:
		}
	case <-limit.C:
	}
	return fault.New(
		fault.Timeout,
		fmt.Errorf("subflow %d has not moved within %v", number, moveTimeout),
		"see `mpbond status`",
	)
}

// ResetStream resets a stream of the bond at both ends.
func (p *Primary) ResetStream(bond string, id uint64) error {
	s, err := p.bond.sessionOfBond(bond)
	if err == nil && !s.endpoint.ResetStream(wire.StreamID(id), "reset by hand") {
		err = fault.New(fault.NotFound, fmt.Errorf("bond %s has no stream %d", bond, id), "see `mpbond status --why`")
	}
	return err
}

// ChangeStream changes the mode, priority or weight of a stream at both ends.
func (p *Primary) ChangeStream(bond string, id uint64, to api.StreamChange) error {
	s, err := p.bond.sessionOfBond(bond)
	if err != nil {
		return err
	}
	found, err := p.bond.changeStreamClass(
		s,
		wire.StreamID(id),
		func(mode wire.Mode, t policy.TrafficClass) (wire.Mode, policy.TrafficClass, error) {
			return applyStreamChange(mode, t, to)
		},
	)
	if err == nil && !found {
		err = fault.New(fault.NotFound, fmt.Errorf("bond %s has no stream %d", bond, id), "see `mpbond streams`")
	}
	return err
}

// applyStreamChange returns a mode and class with the requested changes applied.
func applyStreamChange(
	mode wire.Mode,
	t policy.TrafficClass,
	to api.StreamChange,
) (wire.Mode, policy.TrafficClass, error) {
	if to.Mode != nil {
		var m policy.Mode
		if err := m.UnmarshalText([]byte(*to.Mode)); err != nil {
			return mode, t, fault.New(fault.Usage, err, "")
		}
		t.Single = m == policy.ModeSingle
		switch m {
		case policy.ModeBond, policy.ModeSingle, policy.ModeLatency, policy.ModeRedundant:
			mode = m.StreamMode()
		default:
			return mode, t, fault.New(
				fault.Usage,
				fmt.Errorf("an open stream cannot change to mode %v", m),
				"close it with DELETE",
			)
		}
	}
	if to.Priority != nil {
		var c policy.Priority
		if err := c.UnmarshalText([]byte(*to.Priority)); err != nil {
			return mode, t, fault.New(fault.Usage, err, "")
		}
		t.Priority = wire.Priority(c)
	}
	if to.Weight != nil {
		t.Weight = uint8(max(1, min(*to.Weight, math.MaxUint8)))
	}
	return mode, t, nil
}

// Streams lists the bond's open streams, newest first.
func (p *Primary) Streams() []api.BondStream {
	s := p.bond.currentSession()
	peer, _ := p.server.currentServer()
	return api.BondStreams(s.id.String(), peer.Name, status.Streams(s.endpoint.StreamList()))
}

// Flows lists the bond's datagram flows, the most recently used first.
func (p *Primary) Flows() []api.BondFlow {
	s := p.bond.currentSession()
	peer, _ := p.server.currentServer()
	return api.BondFlows(s.id.String(), peer.Name, status.Flows(s.endpoint.FlowList()))
}

// DirectSubflowBytes returns the bytes that each direct subflow has moved, by a key that is never
// reused.
func (p *Primary) DirectSubflowBytes() map[string]device.ConnBytes {
	s := p.bond.currentSession()
	counts := map[string]device.ConnBytes{}
	for id, f := range s.endpoint.DirectSubflowBytes() {
		counts[fmt.Sprintf("%v/%d", s.id, id)] = device.ConnBytes(f)
	}
	return counts
}
