// Package trace is the one stream of typed events that feeds tests, console
// and reports, as JSON lines. It stands beside the data path: the roles and the
// bond tell it what they did, and it never makes them wait.
//
//	trace.go     the event
//	recorder.go  events into a file, off the data path
//	read.go      files back into events, and several files into one
//	ring.go      the last few of anything
package trace

import (
	"time"

	"mpbond/base/unit"
)

// Kind says what happened. The list is closed and append-only: traces are kept
// and compared over years.
type Kind string

// Kinds, with the fields that each sets besides t, who, kind and bond.
const (
	StreamOpen         Kind = "stream_open"          // stream, text: the destination
	StreamClassChanged Kind = "stream_class_changed" // stream, text: its mode from now on
	StreamClose        Kind = "stream_close"         // stream, off: bytes of the direction delivered, reason
	SubflowUp          Kind = "subflow_up"           // path, device, reason (direct or helped): a subflow joined the bond
	SubflowDown        Kind = "subflow_down"         // path, device, reason, len: its unacknowledged bytes
	SubflowSilent      Kind = "subflow_silent"       // path, device, len: data outstanding and no progress; not given up yet
	Segment            Kind = "segment"              // path, stream, off, len: given to a subflow, count: bytes given to it so far, frame headers included; reason: copy, if another one carries it too
	Ack                Kind = "ack"                  // path the news is about, off: bytes of that subflow received, frame headers included
	Deliver            Kind = "deliver"              // stream, off, len: handed in order to the app or the Internet server
	Decision           Kind = "decision"             // path unless it waits, len: bytes still to schedule, pad, diff, reason
	SubflowState       Kind = "subflow_state"        // path, device; the estimates rate, pad, srtt, backlog, backlog2; of the hop nearest the sender cwnd, len: bytes in its TCP, count: bytes acknowledged; each 10 to 20 ms while sending
	Reinject           Kind = "reinject"             // path they are taken from, stream, off, len, reason
	Duplicate          Kind = "duplicate"            // path, stream, off, len: received a second time and dropped
	PipeState          Kind = "pipe_state"           // path, rate and srtt of the far hop, off: bytes of the subflow that the helper has received, backlog: those of them that it holds, reason: app-limited or none
	PipeUp             Kind = "pipe_up"              // device, text: the carrier and address
	PipeDown           Kind = "pipe_down"            // device, reason
	PipeMoved          Kind = "pipe_moved"           // path, device, text: the address it goes on over, reason: "break" or "change", gap: without a pipe before
	RelayUp            Kind = "relay_up"             // at a helper. count: the relay's number, device: the primary, text: the server's address
	RelayDown          Kind = "relay_down"           // at a helper. count, device, len: bytes relayed, both ways, reason
	HopReport          Kind = "hop_report"           // at a helper, one has left. count, rate, srtt, backlog; reason: over which hop; text: about which
	Stall              Kind = "stall"                // stream, off: delivery stopped here
	Resume             Kind = "resume"               // stream, off, gap: delivery goes on after that long
	Error              Kind = "error"                // reason, text
	Dropped            Kind = "dropped"              // count: events lost before this one, the disk being slower than the data path
	FlowOpen           Kind = "flow_open"            // flow: of datagrams
	FlowMove           Kind = "flow_move"            // flow, path it is pinned to from now on, reason: none for the first
	FlowClose          Kind = "flow_close"           // flow, count: datagrams sent and received, reason
	Mark               Kind = "mark"                 // text: set by a tool, such as a change of a link in the lab
	DeviceUp           Kind = "device_up"            // device: its first pipe at a primary, its first bond at a server
	DeviceDown         Kind = "device_down"          // device: nothing of it is left
	DeviceAdded        Kind = "device_added"         // device, text: its roles; it is trusted now
	DeviceRenamed      Kind = "device_renamed"       // device: its name from now on, text: the one before
	DeviceRemoved      Kind = "device_removed"       // device: it is trusted no longer
	DevicePaused       Kind = "device_paused"        // device: its owner here wants it not to be used
	DeviceResumed      Kind = "device_resumed"       // device: it may be again
	DeviceSuspended    Kind = "device_suspended"     // device: a helper or an own interface, reason: policy lets it carry nothing
	DeviceUnsuspended  Kind = "device_unsuspended"   // device: it may carry again, reason: why it rested
	PolicyChanged      Kind = "policy_changed"       // text: the file; reason: it is gone
	PolicyRefused      Kind = "policy_refused"       // text: why the file as it is now is not in force
	CapWarning         Kind = "cap_warning"          // device: the link or device that has the cap, reason: daily or monthly, text: how much is used
	CapReached         Kind = "cap_reached"          // the same: nothing more is carried
	CapCleared         Kind = "cap_cleared"          // the same: it may be again
	CellReceived       Kind = "cell_received"        // device: an own interface whose mobile cells are heard now
	CellLost           Kind = "cell_lost"            // the same: they are not heard (any more), reason: why
)

// IsChange reports whether events of this kind tell that something came, went or
// moved, and not how bytes travel. They are few, and made even when no trace is
// written.
func (k Kind) IsChange() bool {
	switch k {
	case StreamOpen, StreamClassChanged, StreamClose, SubflowUp, SubflowDown, SubflowSilent, PipeUp, PipeDown, PipeMoved, RelayUp, RelayDown, Error,
		FlowOpen, FlowMove, FlowClose, DeviceUp, DeviceDown, DeviceAdded, DeviceRenamed, DeviceRemoved, DevicePaused, DeviceResumed, DeviceSuspended, DeviceUnsuspended, PolicyChanged, PolicyRefused, CapWarning, CapReached, CapCleared, CellReceived, CellLost:
		return true
	}
	return false
}

// Kinds lists all kinds.
func Kinds() []Kind {
	return []Kind{StreamOpen, StreamClassChanged, StreamClose, SubflowUp, SubflowDown, SubflowSilent, Segment, Ack, Deliver, Decision, SubflowState,
		Reinject, Duplicate, PipeState, PipeUp, PipeDown, PipeMoved, RelayUp, RelayDown, HopReport, Stall, Resume, Error, Dropped, FlowOpen, FlowMove, FlowClose, Mark,
		DeviceUp, DeviceDown, DeviceAdded, DeviceRenamed, DeviceRemoved, DevicePaused, DeviceResumed, DeviceSuspended, DeviceUnsuspended, PolicyChanged, PolicyRefused, CapWarning, CapReached, CapCleared, CellReceived, CellLost}
}

// Event is one line of a trace. A field that a kind does not use is zero and
// left out. Names and units never change; fields may be added.
type Event struct {
	// T is the time of the event in ns since 1970 UTC, by the writer's clock.
	T int64 `json:"t"`
	// Who writes: the name of the process, such as "primary" or "helper1".
	Who  string `json:"who"`
	Kind Kind   `json:"kind"`
	// Bond is the bond's short ID.
	Bond string `json:"bond,omitempty"`
	// Subflow is the ID of a subflow within its bond; IDs start at 1.
	Subflow uint32 `json:"subflow,omitempty"`
	// Device is the name of the device that carries the path.
	Device string `json:"device,omitempty"`
	// Stream is the ID of a stream within its bond.
	Stream uint64 `json:"stream,omitempty"`
	// Flow is the ID of a datagram flow within its bond.
	Flow uint64 `json:"flow,omitempty"`
	// Offset of the first byte within the stream's direction.
	Offset uint64 `json:"off,omitempty"`
	// Length in bytes.
	Length unit.Bytes `json:"len,omitempty"`
	// Backlog is the bytes waiting before the hop nearest the sender.
	Backlog unit.Bytes `json:"backlog,omitempty"`
	// Backlog2 is the bytes waiting before the far hop of a helped path.
	Backlog2 unit.Bytes `json:"backlog2,omitempty"`
	// Rate in bits per second.
	Rate unit.Rate `json:"rate,omitempty"`
	// PAD, the predicted delivery time, in ns.
	PAD time.Duration `json:"pad,omitempty"`
	// SRTT, the smoothed round-trip time of the sender's hop, in ns.
	SRTT time.Duration `json:"srtt,omitempty"`
	// Cwnd is the congestion window of the sender's hop, in bytes.
	Cwnd unit.Bytes `json:"cwnd,omitempty"`
	// Gap without delivery, in ns.
	Gap time.Duration `json:"gap,omitempty"`
	// Diff is what quicker busy subflows could take meanwhile, in bytes (PAMS).
	Diff unit.Bytes `json:"diff,omitempty"`
	// Count of things, as the kind says.
	Count uint64 `json:"count,omitempty"`
	// Reason in words that stay the same, for programs and people.
	Reason string `json:"reason,omitempty"`
	// Text for people. Never a secret.
	Text string `json:"text,omitempty"`
}

// Time is T as a time.
func (e Event) Time() time.Time { return time.Unix(0, e.T) }
