// SPDX-License-Identifier: Apache-2.0

// Package trace records what the roles and the bond do, as typed events in JSON lines. Tests, the
// console and reports read them. It stands beside the data path and never makes it wait.
//
//	trace.go     the event
//	recorder.go  writes events to a file, off the data path
//	read.go      reads files of events and merges them
//	ring.go      keeps the last few values of any type
package trace

import (
	"time"

	"mpbond/base/unit"
)

// Kind says what happened. Kinds are only ever added, so that recorded traces stay comparable.
type Kind string

// Kinds. The comments list the fields that each kind sets besides t, who, kind and bond.
const (
	StreamOpen         Kind = "stream_open"          // stream, text: the destination
	StreamClassChanged Kind = "stream_class_changed" // stream, text: its new mode
	StreamClose        Kind = "stream_close"         // stream, off: bytes delivered in this direction, reason
	SubflowUp          Kind = "subflow_up"           // subflow, device, reason (direct or helped): it joined the bond
	SubflowDown        Kind = "subflow_down"         // subflow, device, reason, len: its unacknowledged bytes
	SubflowSilent      Kind = "subflow_silent"       // subflow, device, len: unacknowledged bytes that make no progress
	// Segment: subflow, stream, off, len; count: bytes given to the subflow so far, frame headers
	// included; reason: "copy" if another subflow carries it too.
	Segment  Kind = "segment"
	Ack      Kind = "ack"      // subflow it is about, off: bytes received on it, frame headers included
	Deliver  Kind = "deliver"  // stream, off, len: passed in order to the app or the Internet server
	Decision Kind = "decision" // subflow unless it waits, len: bytes still to schedule, pad, diff, reason
	// SubflowState: subflow, device; estimates rate, pad, srtt, local_backlog, far_backlog; of the
	// local hop cwnd, len: bytes in its TCP, count: bytes acknowledged. One each 10 to 20 ms while
	// sending.
	SubflowState Kind = "subflow_state"
	Reinject     Kind = "reinject"  // subflow that had them, stream, off, len, reason
	Duplicate    Kind = "duplicate" // subflow, stream, off, len: received again and dropped
	// PipeState: subflow; rate and srtt of the far hop; off: bytes of the subflow that the helper
	// has received; far_backlog: those that it still holds; reason: "app-limited" or none. It is a
	// helper's report. At the server the far hop is the pipe, at the primary the HS-path.
	PipeState Kind = "pipe_state"
	PipeUp    Kind = "pipe_up"   // device, text: the carrier and address
	PipeDown  Kind = "pipe_down" // device, reason
	// subflow, device, text: the new address, reason: "break" or "change", gap: time without a pipe
	PipeMoved Kind = "pipe_moved"
	// at a helper; count: the relay's number, device: the primary, text: the server's address
	RelayUp Kind = "relay_up"
	// at a helper; count, device, len: bytes relayed in both directions, reason
	RelayDown Kind = "relay_down"
	// at a helper; count, rate, srtt, far_backlog, reason: hop that carries it, text: hop it
	// describes
	HopReport Kind = "hop_report"
	Stall     Kind = "stall"  // stream, off: delivery stopped here
	Resume    Kind = "resume" // stream, off, gap: delivery continues after that time
	Error     Kind = "error"  // reason, text
	// count: events lost before this one because the disk was slower than the data path
	Dropped   Kind = "dropped"
	FlowOpen  Kind = "flow_open"  // flow
	FlowMove  Kind = "flow_move"  // flow, subflow it is now pinned to, reason: none the first time
	FlowClose Kind = "flow_close" // flow, count: datagrams sent and received, reason
	Mark      Kind = "mark"       // text: set by a tool, such as a link change in the lab
	// device: its first pipe at a primary, or its first bond at a server, is up
	DeviceUp      Kind = "device_up"
	DeviceDown    Kind = "device_down"    // device: its last pipe or bond has ended
	DeviceAdded   Kind = "device_added"   // device, text: its roles; we trust it now
	DeviceRenamed Kind = "device_renamed" // device: its new name, text: its former name
	DeviceRemoved Kind = "device_removed" // device: we no longer trust it
	DevicePaused  Kind = "device_paused"  // device: its use was paused here
	DeviceResumed Kind = "device_resumed" // device: its use was resumed here
	// device: a helper or a local interface, reason: why policy suspends it
	DeviceSuspended   Kind = "device_suspended"
	DeviceUnsuspended Kind = "device_unsuspended" // device, reason: why it was suspended
	PolicyChanged     Kind = "policy_changed"     // text: the file, reason: set if the file is gone
	PolicyRefused     Kind = "policy_refused"     // text: why the file is not in force
	// device: the link or device with the cap, reason: daily or monthly, text: usage
	CapWarning   Kind = "cap_warning"
	CapReached   Kind = "cap_reached"   // as CapWarning; the device carries nothing more
	CapCleared   Kind = "cap_cleared"   // as CapWarning; the device may carry traffic again
	CellReceived Kind = "cell_received" // device: a local interface whose cells' control messages now arrive
	CellLost     Kind = "cell_lost"     // device, reason: why its cells' control messages no longer arrive
	CellRenamed  Kind = "cell_renamed"  // device: a local interface, text: its RNTI, found by what arrives
	// device: a local interface that another mobile cell serves now, text: that cell, reason: how likely
	// that was
	Handoff Kind = "handoff"
)

// IsChange reports whether events of this kind mean that something appeared, ended or moved, rather
// than how bytes travel. They are few, and are reported even when no trace is written.
func (k Kind) IsChange() bool {
	switch k {
	case StreamOpen, StreamClassChanged, StreamClose, SubflowUp, SubflowDown, SubflowSilent, PipeUp, PipeDown, PipeMoved,
		RelayUp, RelayDown, Error,
		FlowOpen, FlowMove, FlowClose, DeviceUp, DeviceDown, DeviceAdded, DeviceRenamed, DeviceRemoved, DevicePaused,
		DeviceResumed, DeviceSuspended, DeviceUnsuspended, PolicyChanged, PolicyRefused, CapWarning, CapReached,
		CapCleared, CellReceived, CellLost, CellRenamed, Handoff:
		return true
	}
	return false
}

// Kinds returns all kinds.
func Kinds() []Kind {
	return []Kind{StreamOpen, StreamClassChanged, StreamClose, SubflowUp, SubflowDown, SubflowSilent, Segment, Ack,
		Deliver, Decision, SubflowState,
		Reinject, Duplicate, PipeState, PipeUp, PipeDown, PipeMoved, RelayUp, RelayDown, HopReport, Stall, Resume, Error,
		Dropped, FlowOpen, FlowMove, FlowClose, Mark,
		DeviceUp, DeviceDown, DeviceAdded, DeviceRenamed, DeviceRemoved, DevicePaused, DeviceResumed, DeviceSuspended,
		DeviceUnsuspended, PolicyChanged, PolicyRefused, CapWarning, CapReached, CapCleared, CellReceived, CellLost,
		CellRenamed, Handoff}
}

// Event is one line of a trace. Fields that a kind does not use are zero and left out. Units never
// change; fields may be added.
type Event struct {
	// T is the time of the event in ns since 1970 UTC, by the writer's clock.
	T int64 `json:"t"`
	// Who is the name of the process that writes, such as "primary" or "helper1".
	Who  string `json:"who"`
	Kind Kind   `json:"kind"`
	// Bond is the bond's short ID.
	Bond string `json:"bond,omitempty"`
	// Subflow is the ID of a subflow within its bond; IDs start at 1.
	Subflow uint32 `json:"subflow,omitempty"`
	// Device is the name of the device that carries the subflow.
	Device string `json:"device,omitempty"`
	// Stream is the ID of a stream within its bond.
	Stream uint64 `json:"stream,omitempty"`
	// Flow is the ID of a datagram flow within its bond.
	Flow uint64 `json:"flow,omitempty"`
	// Offset is the position of the first byte in the stream's direction.
	Offset uint64 `json:"off,omitempty"`
	// Length is in bytes.
	Length unit.Bytes `json:"len,omitempty"`
	// LocalBacklog is the number of bytes waiting before the local hop.
	LocalBacklog unit.Bytes `json:"local_backlog,omitempty"`
	// FarBacklog is the number of bytes waiting before the far hop of a helped subflow.
	FarBacklog unit.Bytes `json:"far_backlog,omitempty"`
	// Rate is in bits per second.
	Rate unit.Rate `json:"rate,omitempty"`
	// PAD is the predicted delivery time, in ns.
	PAD time.Duration `json:"pad,omitempty"`
	// SRTT is the smoothed round-trip time, in ns: over all hops for SubflowState, else of the far
	// hop.
	SRTT time.Duration `json:"srtt,omitempty"`
	// Cwnd is the congestion window of the local hop, in bytes.
	Cwnd unit.Bytes `json:"cwnd,omitempty"`
	// Gap is the time without delivery, in ns.
	Gap time.Duration `json:"gap,omitempty"`
	// Diff is how many bytes faster busy subflows could take meanwhile (PAMS).
	Diff unit.Bytes `json:"diff,omitempty"`
	// Count is the number that the kind names.
	Count uint64 `json:"count,omitempty"`
	// Reason is a stable text, for programs and people.
	Reason string `json:"reason,omitempty"`
	// Text is for people. It never holds a secret.
	Text string `json:"text,omitempty"`
}

// Time returns T as a time.Time.
func (e Event) Time() time.Time { return time.Unix(0, e.T) }
