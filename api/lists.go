// SPDX-License-Identifier: Apache-2.0

package api

import (
	"embed"
	"time"

	"mpbond/base/unit"
)

// Source is the source of this package. Its comments are the descriptions of the OpenAPI
// document.
//
//go:embed api.go advice.go lists.go facts.go fleet.go handoffs.go pairing.go plots.go trouble.go policy.go usage.go
var Source embed.FS

// Device is this device or a trusted one.
type Device struct {
	Name string `json:"name"`
	ID   string `json:"id"`   // of its key
	Self bool   `json:"self"` // it is this one
	// Paused is set while a trusted device is not used.
	Paused    bool     `json:"paused,omitempty"`
	Roles     []string `json:"roles"` // its roles towards this one, or this one's own
	Addresses []string `json:"addresses,omitempty"`
	// Online is set while there is a pipe to it, or a subflow that it carries or ends.
	Online   bool       `json:"online"`
	Pipes    int        `json:"pipes"`    // to it
	Subflows int        `json:"subflows"` // that it carries or, for a device at a server, ends
	RxBytes  unit.Bytes `json:"rx_bytes"` // received over these subflows
	TxBytes  unit.Bytes `json:"tx_bytes"` // sent over these subflows
	RxRate   unit.Rate  `json:"rx_rate_bps"`
	TxRate   unit.Rate  `json:"tx_rate_bps"`
	// Facts that it reported, or that this device knows of itself.
	Facts *KnownFacts `json:"facts,omitempty"`
	// Radios are the radios of its links and the energy that they spent: of this device all of
	// known kind; of a helper, at its primary, the radio of its link to the Internet, for this
	// primary.
	Radios []Radio `json:"radios,omitempty"`
	// LastPipe is when the last pipe of a helper came, at its primary.
	LastPipe time.Time `json:"last_pipe,omitzero"`
	// KeyCopied is set at a server while two running mpbond use the key of this device.
	KeyCopied bool `json:"key_copied,omitempty"`
	// Tier of a helper, at its primary: primary, secondary or backup.
	Tier string `json:"tier,omitempty"`
	// Suspended is why policy lets a helper carry nothing.
	Suspended string `json:"suspended,omitempty"`
	// Refused is why this device and that one do not connect, such as "version 4 here, 5 there:
	// upgrade mpbond on phone".
	Refused string `json:"refused,omitempty"`
}

// Refusal is a lasting refusal of a device. The device retries after growing waits.
type Refusal struct {
	Device  string    `json:"device,omitempty"`  // at the other end; "" if unknown
	Address string    `json:"address,omitempty"` // where it called from or was called
	Here    bool      `json:"here"`              // this device refused it; else it refused this one
	Reason  string    `json:"reason"`
	Hint    string    `json:"hint,omitempty"` // what to do, unless the reason tells
	Since   time.Time `json:"since"`          // the first time, for this reason
	Last    time.Time `json:"last"`
	Count   int       `json:"count"` // since then
}

// Radio is the energy that a radio spent since the start of this mpbond, estimated from bytes and
// published measurements: waking, carrying, and staying awake afterwards. It includes nothing else
// of the device.
type Radio struct {
	Link   string      `json:"link,omitempty"` // network interface
	Kind   string      `json:"kind"`           // as in a subflow: WiFi, cellular or Bluetooth
	Joules unit.Joules `json:"joules"`
}

// States of pipes.
const (
	PipeCarries  = "carries"  // carries a subflow
	PipeWaits    = "waits"    // waits for a subflow
	PipeRetrying = "retrying" // there is none, and the helper retries
	PipeStarting = "starting" // the first attempt
	PipeBusy     = "busy"     // at a helper: in use, and there can be no second
)

// Pipe is one local link between a primary and a helper, as seen from one end.
type Pipe struct {
	Device  string  `json:"device"`            // at the other end
	Address string  `json:"address"`           // of the other end: identifies the pipe with Device
	Via     string  `json:"via,omitempty"`     // the local link: an interface, or a kind of carrier
	State   string  `json:"state"`             // carries, waits, retrying, starting or busy
	Bond    string  `json:"bond,omitempty"`    // of the subflow that it carries
	Subflow uint32  `json:"subflow,omitempty"` // the subflow that it carries
	RTTms   float64 `json:"rtt_ms,omitempty"`  // of its handshake
	Error   string  `json:"error,omitempty"`   // why there is none
	Hint    string  `json:"hint,omitempty"`    // what may help
	// Trouble is Error in parts or, of a working pipe at a helper, what keeps the primary from
	// using it.
	Trouble *Trouble `json:"trouble,omitempty"`
}

// BondSubflow is one subflow with its bond. A helper knows only the bytes of a subflow that it
// relays.
type BondSubflow struct {
	Bond string `json:"bond"` // "" at a helper
	Peer string `json:"peer"` // name of the device at the other end of the bond; at a helper, of the primary
	Subflow
}

// SubflowMove is the body of PATCH /v2/subflows/BOND/NUMBER at a primary, which moves a helped
// subflow to another pipe. The answer is 204. The subflow moves on by itself when another pipe is
// better or this one breaks.
type SubflowMove struct {
	Pipe string `json:"pipe" maxLength:"128"` // the address of a waiting pipe of that helper
}

// BondStream is one stream with its bond.
type BondStream struct {
	Bond string `json:"bond"`
	Peer string `json:"peer"` // name of the device at the other end of the bond
	Stream
}

// BondStreams adds the bond to a list of its streams. It never returns nil.
func BondStreams(bond, peer string, list []Stream) []BondStream {
	all := make([]BondStream, 0, len(list))
	for _, s := range list {
		all = append(all, BondStream{bond, peer, s})
	}
	return all
}

// BondFlow is one datagram flow with its bond.
type BondFlow struct {
	Bond string `json:"bond"`
	Peer string `json:"peer"` // name of the device at the other end of the bond
	Flow
}

// BondFlows adds the bond to a list of its flows. It never returns nil.
func BondFlows(bond, peer string, list []Flow) []BondFlow {
	all := make([]BondFlow, 0, len(list))
	for _, f := range list {
		all = append(all, BondFlow{bond, peer, f})
	}
	return all
}

// StreamChange is the body of PATCH /v2/streams/BOND/NUMBER at a primary, which changes how both
// ends carry a stream. Omitted fields stay as they are, as do the devices and pipes that a rule
// allows. Bytes in flight are not affected. The answer is 204.
type StreamChange struct {
	Mode     *string `json:"mode,omitempty" enum:"bond,single,latency,redundant"`
	Priority *string `json:"priority,omitempty" enum:"high,normal,low"`
	Weight   *int    `json:"weight,omitempty" minimum:"1" maximum:"100"`
}

// Event is one change, as GET /v2/events reports it. Unused fields are omitted.
type Event struct {
	Seq  uint64    `json:"seq"` // counts the events since the start of this mpbond, from 1
	T    time.Time `json:"t"`
	Kind string    `json:"kind"` // such as subflow_up; docs/reference/api.md has the list
	Bond string    `json:"bond,omitempty"`
	// Device that came or left, or that carries the subflow.
	Device  string `json:"device,omitempty"`
	Subflow uint32 `json:"subflow,omitempty"` // a subflow
	Stream  uint64 `json:"stream,omitempty"`  // a stream
	Flow    uint64 `json:"flow,omitempty"`    // a datagram flow
	Relay   uint64 `json:"relay,omitempty"`   // a subflow that a helper relays
	// subflow_down, subflow_silent: not acknowledged; stream_close: received; relay_down: relayed
	Bytes  unit.Bytes `json:"bytes,omitempty"`
	Count  uint64     `json:"datagrams,omitempty"` // flow_close: sent and received
	GapMs  float64    `json:"gap_ms,omitempty"`    // pipe_moved: without a pipe before
	Reason string     `json:"reason,omitempty"`    // a fixed set of texts
	// stream_open: the destination; pipe_up, pipe_down and pipe_moved: the address
	Text string `json:"text,omitempty"`
}

// Position is the position of a reader of events. It comes at the start, after missed events, and
// now and then in silence.
type Position struct {
	Seq uint64 `json:"seq"` // the next event follows this one
	// MissedEvents is the number of events dropped before this reader took them.
	MissedEvents uint64 `json:"missed_events,omitempty"`
	// Restarted is set if the requested position is of another run of mpbond.
	Restarted bool `json:"restarted,omitempty"`
}
