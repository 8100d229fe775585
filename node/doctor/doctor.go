// SPDX-License-Identifier: Apache-2.0

// Package doctor finds out what works and what limits the rate. It measures each link and hop
// between this device, its helpers and its server, and names the bottleneck. It stands beside the
// data path and uses it like any client: it measures direct subflows with a bond of its own, and
// helped ones through the proxy of the running primary, which the helpers call.
//
//	doctor.go   what is measured (Facts), and the result (Report)
//	evaluate.go from Facts to findings, without I/O
//	sentence.go texts about failures: device, hop, port, remedy; without I/O
//	roles.go    findings of single roles, without I/O
//	refused.go  devices that were refused, without I/O
//	verdict.go  choice of the bottleneck, and advice, without I/O
//	gather.go   the measurements, one after another
//	reports.go  reports that helpers have left at the server
//	host.go     this device: kernel, buffers, names
//	subflow.go  one subflow: addresses, rates
//	portal.go   captive portals
package doctor

import (
	"errors"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/unit"
	"mpbond/link/tcp"
	"mpbond/link/wire"
	"mpbond/node/probe"
	"mpbond/node/refusal"
)

// Facts holds all measurements, without evaluation.
type Facts struct {
	// Setup is a problem with files, nil if there is none. It prevents all measurements.
	Setup    *Problem
	Role     identity.Role // the role in which this device was examined
	Name     string        // of this device, "" if unknown
	Host     Host
	Server   Server    // of a primary; at a helper with the addresses of all its primaries' servers
	Subflows []Subflow // at a primary
	Pipes    []Pipe    // at a primary or helper
	Ports    []Port    // at a primary that does not run
	// Primaries are the primaries that a server knows.
	Primaries []Primary
	// Calls counts the connections to the running role's port; nil if the role has no port or does
	// not run. CallsAt is that port's address.
	Calls   *Calls
	CallsAt string
	// Refused lists devices that were refused by one of the two ends.
	Refused []Refused
	// Cells are the monitored mobile cells whose messages are not used.
	Cells   []Cells
	Running bool   // the role runs here
	Version string // of this program
	// RunningVersion is the version of the running role.
	RunningVersion string
	RatesMeasured  bool // rates were requested
}

// Calls counts connections to a port.
type Calls struct {
	Count uint64
	Since time.Duration // time since the role started
	Last  time.Duration // time since the last one, if any
}

// Pipe is a pipe as seen by one of its ends.
type Pipe struct {
	Device, Address, Via string
	Ready                bool // it carries a subflow or waits for one
	Carries              bool
	RTT                  time.Duration // 0: unknown
	Problem              *Problem      // why there is no pipe
	// Unused is the primary's reason for not using the pipe; nil if there is none.
	Unused *Problem
}

// Port is a port that a primary opens.
type Port struct {
	What, At string
	Problem  *Problem // why it cannot be opened
}

// Primary is a primary as seen by its server.
type Primary struct {
	Name             string
	Subflows, Silent int
	Copied           bool // two instances of mpbond use its key
}

// Refused is a device that this one refuses, or that refuses this one.
type Refused struct {
	Device, Address string // Device is "" for an unknown device
	Here            bool   // this device refuses
	Reason, Hint    string
}

// Cells are the mobile cells of a local interface, and why senders get no feedback from them.
type Cells struct {
	Interface, Reason string
	HasRNTI           bool // the RNTI of this device is known
}

// Problem is an error split into its parts.
type Problem struct {
	Kind  fault.Kind
	Cause fault.Cause
	By    string // device that reported it, "" for this one
	At    string // address that it called
	Text  string
	Hint  string
}

// convertProblem converts err; nil becomes nil.
func convertProblem(err error) *Problem {
	if err == nil {
		return nil
	}
	return &Problem{Kind: fault.KindOf(err), Cause: tcp.CauseOf(err), Text: err.Error(), Hint: fault.HintOf(err)}
}

// newProblemAt converts an error of a call to peer. For a version mismatch the text says which
// device to upgrade.
func newProblemAt(peer string, err error) *Problem {
	p := convertProblem(err)
	var r wire.Refuse
	var v wire.VersionMismatch
	if errors.As(err, &r) && r.Code == wire.CodeVersion || errors.As(err, &v) {
		reason, hint := refusal.Explain(err, peer)
		p.Text, p.Hint = "refused: "+reason, hint
	}
	return p
}

// Host describes this device.
type Host struct {
	Uplinks       []string // interfaces with a default route
	UnusedUplinks []string // those that the primary does not use
	IPv6          bool     // IPv6 destinations can be reached
	Public        bool     // an interface has a public address
	// Names is why this device's resolver does not answer; nil if it does or was not asked.
	// NoResolver reports that none is configured.
	Names      *Problem
	NoResolver bool
	// BusyCPU is how busy all processors were while rates were measured. OwnCPU is how much of one
	// processor this program used. Both are from 0 to 1.
	BusyCPU, OwnCPU float64
	// ReadBuffer and WriteBuffer are the kernel's maxima for one connection; 0 if unknown.
	ReadBuffer, WriteBuffer unit.Bytes
	Congestion              string
	// RestartsIdle reports that TCP begins with a small window again after a pause.
	RestartsIdle bool
	Features     []Feature
}

// Feature is a function that not every kernel or user supports.
type Feature struct {
	Name    string // "tun" or "run"
	Missing string // why it cannot be used, "" if it can
}

// Server describes the far end.
type Server struct {
	Name        string
	Version     string // "" if unknown
	Addresses   []Address
	IPv6        bool     // it can reach IPv6 destinations
	Names       *Problem // why names do not resolve there
	HasAnswered bool     // the fields above are valid
	// Copied: another mpbond uses this device's key now.
	Copied bool
	// reports were left there for this device.
	reports []probe.Report
	// ClockAhead is how far the server's clock is ahead of ours, with an error of up to ClockError.
	// Valid if HasAnswered.
	ClockAhead, ClockError time.Duration
}

// Address is an address of the server.
type Address struct {
	At      string // "host:port" as configured
	IP      string // resolved address, "" if it does not resolve
	RTT     time.Duration
	Problem *Problem // why it does not answer
	// BlackHole: it answers short packets only.
	BlackHole bool
	// Portal is where a captive portal sends browsers, or what it answers; "" if there is none.
	Portal string
}

// Names of hops.
const (
	HopPSPath = "PS-path"
	HopHSPath = "HS-path"
	HopPipe   = "pipe"
)

// Subflow is a path to the server: by an interface of this device, or by a helper.
type Subflow struct {
	Name    string
	Helper  bool
	Metered bool
	Backup  bool // it is used only when no other path works
	Capped  bool // its link has a cap; direct only
	Up      bool
	Silent  bool     // the running primary's subflow makes no progress
	Problem *Problem // why it is not up
	// For a helper: whether it has a pipe, how long ago its last pipe came (0: none since the
	// primary started), and its signed report at the server about failed calls.
	HasPipe      bool
	LastPipe     time.Duration
	SignedReport *Problem
	// QueueTime is the current excess of a direct subflow's round trip over its minimum.
	QueueTime time.Duration
	// UDP reports that the running primary's direct subflow uses UDP. WhyNotUDP is why it does not,
	// although UDP is configured.
	UDP       bool
	WhyNotUDP string
	// Refuses is why a helper carries nothing by its own settings, such as a low battery; "" if it
	// does not refuse. Suspended is why this device does not use the helper, by its policy or
	// because it is paused.
	Refuses   string
	Suspended string
	Local     string // our address; direct only
	Seen      string // its source address as the server sees it
	Hops      []Hop  // from here to the server; empty if it is not up
	DownRate  Rate
	UpRate    Rate // towards the server
	// NotMeasured is why no rates were measured; "" if they were, or were not requested.
	NotMeasured string
}

// Hop is one TCP connection of a subflow.
type Hop struct {
	Name                   string
	RTT                    time.Duration // minimum; 0: unknown
	Packets, Retransmitted uint64        // counted by both ends, as far as known
	MTU                    unit.Bytes    // 0: unknown
	RejectedReports        uint64        // of the helper, counted at the server; HS-path only
}

// Rate is the rate of a subflow in one direction.
type Rate struct {
	Bps   unit.Rate
	Limit string // the hop that was the limit, "" if unknown
	Bytes unit.Bytes
	// Problem is why there is no rate. Stalled reports that the subflow answered before, but no
	// bulk data came through.
	Problem *Problem
	Stalled bool
}

// Level is the severity of a finding.
type Level string

// Levels, in order of severity.
const (
	OK   Level = "ok"
	Note Level = "note" // for information
	Warn Level = "warn" // works, but could be better
	Bad  Level = "bad"  // does not work
)

// Finding is the result of one check.
type Finding struct {
	Check   string `json:"check"`             // stable name of the check
	Subject string `json:"subject,omitempty"` // a subflow, hop, address or feature
	Level   Level  `json:"level"`
	Text    string `json:"text"`
	Hint    string `json:"hint,omitempty"`
}

// HopReport is a hop in a report.
type HopReport struct {
	Name  string     `json:"name"`
	RTTms float64    `json:"rtt_ms"`
	Loss  float64    `json:"loss"` // share of packets sent again
	MTU   unit.Bytes `json:"mtu_bytes"`
	// DownBps and UpBps are the rates of the hop. With AtLeast they are lower bounds, because
	// another hop was the limit. 0: not measured.
	DownBps     unit.Rate `json:"down_bps"`
	DownAtLeast bool      `json:"down_at_least"`
	UpBps       unit.Rate `json:"up_bps"`
	UpAtLeast   bool      `json:"up_at_least"`
}

// SubflowReport is a subflow in a report.
type SubflowReport struct {
	Name    string      `json:"name"`
	Kind    string      `json:"kind"` // direct or helped
	Up      bool        `json:"up"`
	DownBps unit.Rate   `json:"down_bps"` // 0: not measured
	UpBps   unit.Rate   `json:"up_bps"`
	NAT     bool        `json:"nat"` // the server sees another source address
	Seen    string      `json:"seen,omitempty"`
	Hops    []HopReport `json:"hops"` // never null
}

// Verdict names the bottleneck.
type Verdict struct {
	// What is a stable name; docs/howto/doctor.md lists them.
	What    string `json:"what"`
	Subject string `json:"subject,omitempty"`
	Level   Level  `json:"level"`
	Text    string `json:"text"`
	Advice  string `json:"advice,omitempty"`
}

// Report is the result of the doctor.
type Report struct {
	Bottleneck Verdict         `json:"bottleneck"`
	Findings   []Finding       `json:"findings"` // never null
	Subflows   []SubflowReport `json:"subflows"` // never null
	// Kind is the kind of failure, as in errors; "" if nothing has failed.
	Kind fault.Kind `json:"kind,omitempty"`
}
