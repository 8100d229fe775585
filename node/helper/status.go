// SPDX-License-Identifier: Apache-2.0

package helper

import (
	"errors"
	"fmt"
	"time"

	"mpbond/api"
	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/unit"
	"mpbond/link/congestion"
)

// Status is the state of a helper at one moment, for the API.
type Status struct {
	Name     string          `json:"name"`
	Pipes    []PipeStatus    `json:"pipes"`
	Subflows []SubflowStatus `json:"subflows"`
	// Buffer is the maximum of bytes held per subflow and direction.
	Buffer unit.Bytes `json:"buffer"`
	// Relayed counts the bytes of all subflows, including ended ones.
	Relayed uint64 `json:"relayed"`
	// Shares is what may be shared of each interface that carries subflows.
	Shares []ShareStatus `json:"link_shares"`
}

// PipeStatus is the pipe kept waiting at one address of a primary.
type PipeStatus struct {
	Primary string `json:"primary"`
	Address string `json:"address"`
	// State is "starting", "waiting" (ready for a subflow), "busy" (over Bluetooth: in use, and
	// there is no second) or "retrying", for which Error and Hint tell why.
	State string `json:"state"`
	Error string `json:"error,omitempty"`
	Hint  string `json:"hint,omitempty"`
	// Trouble is Error in parts or, of a working pipe, what keeps the primary from using it.
	Trouble *api.Trouble `json:"trouble,omitempty"`
}

// SubflowStatus is one relayed subflow. Up is from primary to server.
type SubflowStatus struct {
	// Number counts the relays of this helper, from 1.
	Number  uint64    `json:"number"`
	Primary string    `json:"primary"`
	Server  string    `json:"server"`
	Since   time.Time `json:"since"`
	// Transport is that of the HS-path, "tcp" or "udp". Fallback is why it is TCP although UDP is
	// configured. Migrated counts moves to another address.
	Transport string    `json:"transport"`
	Fallback  string    `json:"fallback,omitempty"`
	Migrated  int       `json:"migrated,omitempty"`
	Up        Direction `json:"up"`
	Down      Direction `json:"down"`
	// UpBps and DownBps are the rates over the last second.
	UpBps   unit.Rate `json:"up_bps"`
	DownBps unit.Rate `json:"down_bps"`
}

// Direction is one direction of a relay: received ciphertext bytes, those in the buffer now, the
// most so far, and the rate of the hop beyond (0 if unknown).
type Direction struct {
	Bytes       uint64    `json:"bytes"`
	Buffered    int       `json:"buffered"`
	MaxBuffered int       `json:"max_buffered"`
	Rate        unit.Rate `json:"rate"`
	// Congestion is the congestion control of the hop beyond, if that hop's losses choose it.
	Congestion *api.Congestion `json:"congestion,omitempty"`
}

// describeDirection returns the state of a direction for status output.
func (d *direction) describeDirection() Direction {
	now, most := d.ring.Held()
	one := Direction{d.bytesRead.Load(), now, most, unit.Rate(d.rate.Load()), nil}
	if c, chooses := d.out.(congestion.Chooser); chooses {
		if choice, ok := c.CongestionChoice(); ok {
			one.Congestion = &api.Congestion{Name: choice.Algorithm.String(), Reason: choice.Reason.String(),
				Changes: choice.Changes}
		}
	}
	return one
}

// currentPrimaryName returns the current name of a device, or the last one if it is no longer
// trusted.
func currentPrimaryName(trust *identity.Trust, p identity.Peer) string {
	if now, ok := trust.Lookup(p.Key); ok {
		return now.Name
	}
	return p.Name
}

// Status returns the state of the helper.
func (h *Helper) Status() Status {
	s := Status{Name: h.name, Pipes: []PipeStatus{}, Subflows: []SubflowStatus{}, Buffer: h.cfg.Buffer}
	for _, t := range h.targets.listTargets() {
		s.Pipes = append(s.Pipes, t.describeTarget(currentPrimaryName(h.trust, t.primary)))
	}
	s.Shares = h.share.listSharedLinks()
	list, relayed := h.relays.listWithBytes()
	s.Relayed = relayed
	for _, f := range list {
		one := f.describeSubflow()
		one.Primary = currentPrimaryName(h.trust, f.primary)
		if one.Transport != "udp" {
			one.Fallback = h.servers.udpDialer.WhyTCP(f.link, f.hs.LocalAddr())
		}
		s.Subflows = append(s.Subflows, one)
	}
	return s
}

// CloseSubflow ends the relay with that number. bond must be empty, since a helper knows no bonds.
// The primary opens a new subflow.
func (h *Helper) CloseSubflow(bond string, number uint32) error {
	closed := h.relays.closeWhere(func(s *subflow) error {
		if bond == "" && s.number == uint64(number) {
			return errEndedByUser
		}
		return nil
	})
	if closed > 0 {
		return nil
	}
	return fault.New(
		fault.NotFound,
		fmt.Errorf("no subflow %d is relayed", number),
		"see `mpbond status`; at a helper the bond is written -",
	)
}

var errEndedByUser = errors.New("ended by hand at the helper")
