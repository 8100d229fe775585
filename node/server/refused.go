package server

import (
	"cmp"
	"net"
	"time"

	"mpbond/base/identity"
	"mpbond/link/tcp"
	"mpbond/node/refusal"
)

// noteRefused keeps a device that was refused, and reports whether err, why a
// connection became no subflow, is worth a line in the log.
func (s *Server) noteRefused(from net.Addr, err error) bool {
	if !refusal.Is(err) {
		return true
	}
	key, known := identity.FailedPeer(err)
	peer, _ := s.trust.Lookup(key)
	r := refusal.Record{Key: tcp.Source(from).String(), Device: peer.Name, Address: from.String(), Here: true}
	if known {
		r.Key = key.String()
	}
	r.Reason, r.Hint = refusal.Explain(err, cmp.Or(peer.Name, "that device"))
	return s.refused.Note(r, time.Now())
}

// Refusals returns the devices that are refused here.
func (s *Server) Refusals() []refusal.Record { return s.refused.Refusals(time.Now()) }
