package api

import (
	"embed"
	"time"

	"mpbond/base/unit"
)

// Source is the source of this package: the descriptions in the OpenAPI document
// are its comments.
//
//go:embed api.go lists.go facts.go pairing.go plots.go trouble.go policy.go usage.go
var Source embed.FS

// Device is this device, or one that it trusts.
type Device struct {
	Name string `json:"name"`
	ID   string `json:"id"`   // of its key
	Self bool   `json:"self"` // it is this one
	// Paused: it is trusted, but not used until it is resumed.
	Paused    bool     `json:"paused,omitempty"`
	Roles     []string `json:"roles"` // that it may have towards this one, or this one's own
	Addresses []string `json:"addresses,omitempty"`
	// Online: a pipe of it is there, or a subflow that it carries or ends.
	Online   bool       `json:"online"`
	Pipes    int        `json:"pipes"`    // to it
	Subflows int        `json:"subflows"` // that it carries or, for a server's device, ends
	RxBytes  unit.Bytes `json:"rx_bytes"` // of these subflows, as in a subflow
	TxBytes  unit.Bytes `json:"tx_bytes"` // the same
	RxRate   unit.Rate  `json:"rx_rate_bps"`
	TxRate   unit.Rate  `json:"tx_rate_bps"`
	// Facts that it has told of itself, and what this one knows of itself.
	Facts *KnownFacts `json:"facts,omitempty"`
	// Radios of its links that carry something, and what they took: of this device
	// all whose kind is known; of a helper, at its primary, that of its link to the
	// Internet, for what it carried for this primary.
	Radios []Radio `json:"radios,omitempty"`
	// LastPipe is when a pipe of a helper last came, at its primary.
	LastPipe time.Time `json:"last_pipe,omitzero"`
	// KeyCopied: two mpbond at once use the key of this device, at a server.
	KeyCopied bool `json:"key_copied,omitempty"`
	// Tier of a helper, at its primary: primary, secondary or backup.
	Tier string `json:"tier,omitempty"`
	// Suspended says why policy lets a helper carry nothing.
	Suspended string `json:"suspended,omitempty"`
	// Refused says why this device and that one do not come together, such as
	// "version 4 here, 5 there: upgrade mpbond on phone".
	Refused string `json:"refused,omitempty"`
}

// Refusal records that a device was refused. It calls again after ever longer waits.
type Refusal struct {
	Device  string    `json:"device,omitempty"`  // at the other end; "" for one that is not known
	Address string    `json:"address,omitempty"` // that it called from, or was called at
	Here    bool      `json:"here"`              // this device refused it; else it refused this one
	Reason  string    `json:"reason"`
	Hint    string    `json:"hint,omitempty"` // what to do, where the reason does not say it
	Since   time.Time `json:"since"`          // the first time, for this reason
	Last    time.Time `json:"last"`
	Count   int       `json:"count"` // since then
}

// Radio is what a radio took since this mpbond began, as estimated from bytes and
// what has been published of such radios: waking, carrying, and staying awake
// afterwards. Nothing else of the device is in it.
type Radio struct {
	Link   string      `json:"link,omitempty"` // network interface
	Kind   string      `json:"kind"`           // as in a subflow: WiFi, cellular or Bluetooth
	Joules unit.Joules `json:"joules"`
}

// Pipe states.
const (
	PipeCarries  = "carries"  // a subflow
	PipeWaits    = "waits"    // ready for one
	PipeRetrying = "retrying" // there is none, and the helper tries to make it
	PipeStarting = "starting" // the first try
	PipeBusy     = "busy"     // at a helper: carries the only subflow that it can
)

// Pipe is one local link between a primary and a helper, as one of them sees it.
type Pipe struct {
	Device  string  `json:"device"`            // at the other end
	Address string  `json:"address"`           // of the other end: with Device it names the pipe
	Via     string  `json:"via,omitempty"`     // the local link: an interface, or a kind of carrier
	State   string  `json:"state"`             // carries, waits, retrying, starting or busy
	Bond    string  `json:"bond,omitempty"`    // of the subflow that it carries
	Subflow uint32  `json:"subflow,omitempty"` // that subflow
	RTTms   float64 `json:"rtt_ms,omitempty"`  // of its handshake
	Error   string  `json:"error,omitempty"`   // why there is none
	Hint    string  `json:"hint,omitempty"`    // what may help
	// Trouble is Error in parts; of a pipe that is there, at a helper, what keeps the
	// primary from using it.
	Trouble *Trouble `json:"trouble,omitempty"`
}

// BondSubflow is one subflow with the bond that it belongs to. At a helper it is one
// that is relayed, of which only the bytes are known.
type BondSubflow struct {
	Bond string `json:"bond"` // "" at a helper
	Peer string `json:"peer"` // name of the device at the other end of the bond; at a helper, of the primary
	Subflow
}

// SubflowMove is the body of PATCH /v2/subflows/BOND/NUMBER at a primary, by which a
// helped subflow goes on over another pipe. The answer is 204. When another one is
// better, or this one breaks, it moves by itself.
type SubflowMove struct {
	Pipe string `json:"pipe" maxLength:"128"` // the address of a pipe of that helper that waits
}

// BondStream is one stream with the bond that it belongs to.
type BondStream struct {
	Bond string `json:"bond"`
	Peer string `json:"peer"` // name of the device at the other end of the bond
	Stream
}

// BondStreams is the list of a bond's streams; never nil.
func BondStreams(bond, peer string, list []Stream) []BondStream {
	all := make([]BondStream, 0, len(list))
	for _, s := range list {
		all = append(all, BondStream{bond, peer, s})
	}
	return all
}

// BondFlow is one datagram flow with the bond that it belongs to.
type BondFlow struct {
	Bond string `json:"bond"`
	Peer string `json:"peer"` // name of the device at the other end of the bond
	Flow
}

// BondFlows is the list of a bond's flows; never nil.
func BondFlows(bond, peer string, list []Flow) []BondFlow {
	all := make([]BondFlow, 0, len(list))
	for _, f := range list {
		all = append(all, BondFlow{bond, peer, f})
	}
	return all
}

// StreamChange is the body of PATCH /v2/streams/BOND/NUMBER at a primary, by which
// both ends treat a stream otherwise from now on; what is left out stays, and so do the
// devices and pipes that a rule allows. What is on its way is not called back. The
// answer is 204.
type StreamChange struct {
	Mode     *string `json:"mode,omitempty" enum:"bond,single,latency,redundant"`
	Priority *string `json:"priority,omitempty" enum:"high,normal,low"`
	Weight   *int    `json:"weight,omitempty" minimum:"1" maximum:"100"`
}

// Event is one change, as GET /v2/events tells it. Fields that a kind does not
// use are left out.
type Event struct {
	Seq  uint64    `json:"seq"` // counts the changes since this mpbond began, from 1
	T    time.Time `json:"t"`
	Kind string    `json:"kind"` // such as subflow_up; docs/reference/api.md has the list
	Bond string    `json:"bond,omitempty"`
	// Device that came or left, or that carries the subflow.
	Device  string     `json:"device,omitempty"`
	Subflow uint32     `json:"subflow,omitempty"`   // a subflow
	Stream  uint64     `json:"stream,omitempty"`    // a stream
	Flow    uint64     `json:"flow,omitempty"`      // a datagram flow
	Relay   uint64     `json:"relay,omitempty"`     // a subflow that a helper relays
	Bytes   unit.Bytes `json:"bytes,omitempty"`     // subflow_down, subflow_silent: not acknowledged; stream_close: received; relay_down: relayed
	Count   uint64     `json:"datagrams,omitempty"` // flow_close: sent and received
	GapMs   float64    `json:"gap_ms,omitempty"`    // pipe_moved: without a pipe before
	Reason  string     `json:"reason,omitempty"`    // in words that stay the same
	Text    string     `json:"text,omitempty"`      // stream_open: the destination; pipe_up, pipe_down and pipe_moved: the address
}

// Position tells a reader of events where it stands: at the beginning, when it
// was too slow, and every now and then while nothing happens.
type Position struct {
	Seq uint64 `json:"seq"` // what comes next follows this one
	// MissedEvents were not kept until this reader could take them.
	MissedEvents uint64 `json:"missed_events,omitempty"`
	// Restarted: the position that was asked for is of another run of mpbond.
	Restarted bool `json:"restarted,omitempty"`
}
