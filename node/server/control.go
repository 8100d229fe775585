// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"mpbond/api"
	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/link/wire"
	"mpbond/node/refusal"
	"mpbond/node/status"
)

// Status describes all bonds. If why is set it includes their last decisions.
func (s *Server) Status(why bool) []api.Bond {
	out := []api.Bond{}
	for _, b := range s.sessions.listSessions() {
		a := status.Bond(b.endpoint.Status(why))
		a.ID, a.Peer = b.id, currentDeviceName(s.trust, b)
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b api.Bond) int { return cmp.Compare(a.Peer+a.ID, b.Peer+b.ID) })
	return out
}

// Streams lists the open streams of all bonds, newest first for each bond.
func (s *Server) Streams() []api.BondStream {
	list := []api.BondStream{}
	for _, b := range s.sessions.listSessions() {
		list = append(list, api.BondStreams(b.id, currentDeviceName(s.trust, b),
			status.Streams(b.endpoint.StreamList()))...)
	}
	return list
}

// Flows lists the datagram flows of all bonds, the most recently used first for each bond.
func (s *Server) Flows() []api.BondFlow {
	list := []api.BondFlow{}
	for _, b := range s.sessions.listSessions() {
		list = append(list, api.BondFlows(b.id, currentDeviceName(s.trust, b), status.Flows(b.endpoint.FlowList()))...)
	}
	return list
}

// CloseSubflow ends a subflow of a bond. Other subflows take over its bytes, and the device opens a
// new one.
func (s *Server) CloseSubflow(bond string, id uint32) error {
	b, err := s.sessions.findSessionByID(bond)
	if err == nil && !b.endpoint.Detach(wire.SubflowID(id)) {
		err = fault.New(fault.NotFound, fmt.Errorf("bond %s has no subflow %d", bond, id), "see `mpbond status`")
	}
	return err
}

// ResetStream resets a stream of a bond at both ends.
func (s *Server) ResetStream(bond string, id uint64) error {
	b, err := s.sessions.findSessionByID(bond)
	if err == nil && !b.endpoint.ResetStream(wire.StreamID(id), "reset at the server by hand") {
		err = fault.New(fault.NotFound, fmt.Errorf("bond %s has no stream %d", bond, id), "see `mpbond status --why`")
	}
	return err
}

// Refusals returns the devices that are refused here.
func (s *Server) Refusals() []refusal.Record { return s.callers.refused.Refusals(time.Now()) }

// Calls returns the count of connections to the server's port.
func (s *Server) Calls() *api.Calls { return s.callers.serverCallCount() }

// IsKeyCopied reports whether two running mpbond use the key of a device at once.
func (s *Server) IsKeyCopied(device identity.PublicKey) bool {
	return s.sessions.isKeyCopied(device, time.Now())
}
