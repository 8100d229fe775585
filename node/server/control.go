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

// Status describes all bonds. With why they hold their last decisions too.
func (s *Server) Status(why bool) []api.Bond {
	out := []api.Bond{}
	for _, b := range s.sessions.list() {
		a := status.Bond(b.e.Status(why))
		a.ID, a.Peer = b.id, nameOf(s.trust, b)
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b api.Bond) int { return cmp.Compare(a.Peer+a.ID, b.Peer+b.ID) })
	return out
}

// Streams lists the open streams of all bonds, of each the newest first.
func (s *Server) Streams() []api.StreamOf {
	list := []api.StreamOf{}
	for _, b := range s.sessions.list() {
		list = append(list, api.StreamsOf(b.id, nameOf(s.trust, b), status.Streams(b.e.StreamList()))...)
	}
	return list
}

// Flows lists the datagram flows of all bonds, of each the one used last first.
func (s *Server) Flows() []api.FlowOf {
	list := []api.FlowOf{}
	for _, b := range s.sessions.list() {
		list = append(list, api.FlowsOf(b.id, nameOf(s.trust, b), status.Flows(b.e.FlowList()))...)
	}
	return list
}

// CloseSubflow ends a subflow of a bond: what it carried goes over others, and
// the device makes a new one.
func (s *Server) CloseSubflow(bond string, path uint32) error {
	b, err := s.sessions.named(bond)
	if err == nil && !b.e.Detach(wire.PathID(path)) {
		err = fault.New(fault.NotFound, fmt.Errorf("bond %s has no subflow %d", bond, path), "see `mpbond status`")
	}
	return err
}

// ResetStream resets a stream of a bond, at both ends.
func (s *Server) ResetStream(bond string, id uint64) error {
	b, err := s.sessions.named(bond)
	if err == nil && !b.e.ResetStream(wire.StreamID(id), "reset at the server by hand") {
		err = fault.New(fault.NotFound, fmt.Errorf("bond %s has no stream %d", bond, id), "see `mpbond status --why`")
	}
	return err
}

// Refusals returns the devices that are refused here.
func (s *Server) Refusals() []refusal.Record { return s.callers.refused.Refusals(time.Now()) }

// Calls returns the connections that reached the server's port.
func (s *Server) Calls() *api.Calls { return s.callers.count() }

// Copied reports whether two mpbond at once use the key of a device.
func (s *Server) Copied(device identity.PublicKey) bool { return s.sessions.copied(device, time.Now()) }
