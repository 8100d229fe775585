// Package doctor finds out what works and what limits the rate: it measures each
// link and hop between this device, its helpers and its server, and names the
// bottleneck. It stands beside the data path and uses it as a device of its own
// would: with a bond of its own for the direct lanes, and, if a primary runs here,
// through that one's proxy for the helped ones, since the helpers call there.
//
//	doctor.go   what is measured (Facts), and what is said of it (Report)
//	judge.go    from Facts to findings, without I/O
//	sentence.go what a failure is called: device, hop, port, what to do, without I/O
//	roles.go    the same of what only one role has
//	verdict.go  which finding is the bottleneck, and advice, without I/O
//	gather.go   the measurements, one after another
//	reports.go  what helpers have left at the server
//	host.go     of this device: kernel, buffers, names
//	lane.go     of a lane: who answers, rates
//	portal.go   whether something else answers in the server's place
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

// Facts is all that was measured. Nothing in it is judged.
type Facts struct {
	// Setup is what is wrong with files, nil if nothing: then nothing else could be
	// measured.
	Setup    *Problem
	Role     identity.Role // as which this device was looked at
	Name     string        // of this device, "" if it is not known
	Host     Host
	Server   Server    // of a primary; of a helper the addresses of all its primaries' servers
	Subflows []Subflow // of a primary
	Pipes    []Pipe    // pipes, of a primary or helper
	Ports    []Port    // of a primary that does not run
	// Primaries are those that a server knows as primaries.
	Primaries []Primary
	// Calls are connections that have reached the running role's own port; nil if it has
	// none, or does not run. CallsAt is where that is.
	Calls   *Calls
	CallsAt string
	// Refused are the devices that one end of a connection refuses.
	Refused []Refused
	Running bool   // that role runs here
	Version string // of this program
	// RunningVersion is that of the running one.
	RunningVersion string
	RatesMeasured  bool // rates were to be measured
}

// Calls counts connections to a port.
type Calls struct {
	Count uint64
	Since time.Duration // the role has run for so long
	Last  time.Duration // since the last one, if there was any
}

// Pipe is a pipe, as one of its ends sees it.
type Pipe struct {
	Device, Address, Via string
	Ready                bool // it carries a subflow, or waits for one
	Carries              bool
	RTT                  time.Duration // 0: not known
	Problem              *Problem      // why there is none
	// Unused is why the primary does not use it, as that one says; nil if it does not.
	Unused *Problem
}

// Port is one that a primary opens.
type Port struct {
	What, At string
	Problem  *Problem // it cannot be opened
}

// Primary is a primary, as its server sees it.
type Primary struct {
	Name             string
	Subflows, Silent int
	Copied           bool // two mpbond at once use its key
}

// Refused is a device that this one refuses, or that refuses it.
type Refused struct {
	Device, Address string // Device is "" for a stranger
	Here            bool   // this device refuses
	Reason, Hint    string
}

// Problem is an error in parts.
type Problem struct {
	Kind  fault.Kind
	Cause fault.Cause
	By    string // device that reported it, "" for this one
	At    string // address that it called
	Text  string
	Hint  string
}

// newProblem is nil for nil.
func newProblem(err error) *Problem {
	if err == nil {
		return nil
	}
	return &Problem{Kind: fault.KindOf(err), Cause: tcp.CauseOf(err), Text: err.Error(), Hint: fault.HintOf(err)}
}

// newProblemAt is problem for what met a call to peer. Of two that speak different versions it
// says which one to upgrade.
func newProblemAt(peer string, err error) *Problem {
	p := newProblem(err)
	var r wire.Refuse
	var v wire.VersionMismatch
	if errors.As(err, &r) && r.Code == wire.CodeVersion || errors.As(err, &v) {
		reason, hint := refusal.Explain(err, peer)
		p.Text, p.Hint = "refused: "+reason, hint
	}
	return p
}

// Host is this device.
type Host struct {
	Uplinks       []string // interfaces with a default route
	UnusedUplinks []string // of them, those that the primary does not use
	IPv6          bool     // there is a way out by it
	Public        bool     // an interface has an address that others on the Internet can call
	// Names is why this device's resolver does not answer, nil if it does, or was
	// not asked; NoResolver tells that there is none.
	Names      *Problem
	NoResolver bool
	// BusyCPU is how busy the processors were while rates were measured, Own what this
	// program used of one of them for that, both 0 to 1.
	BusyCPU, OwnCPU float64
	// ReadBuffer and WriteBuffer are the most that the kernel takes for one
	// connection, 0 if it does not tell.
	ReadBuffer, WriteBuffer unit.Bytes
	Congestion              string
	Features                []Feature
}

// Feature is something that only some kernels or users have.
type Feature struct {
	Name    string // "tun" or "run"
	Missing string // why it cannot be used, "" if it can
}

// Server is the far end.
type Server struct {
	Name        string
	Version     string // "" if it did not tell
	Addresses   []Address
	IPv6        bool     // it has a way out by it
	Names       *Problem // why names do not resolve there
	HasAnswered bool     // the fields above were told
	// Copied: another mpbond uses this device's key now.
	Copied bool
	// reports are those that were left there for this device.
	reports []probe.Report
	// ClockAhead is how far its clock is ahead of ours, give or take Error; valid if
	// Known.
	ClockAhead, ClockError time.Duration
}

// Address is one of the server's.
type Address struct {
	At      string // "host:port" as it is written down
	IP      string // what it stands for, "" if it does not resolve
	RTT     time.Duration
	Problem *Problem // it does not answer
	// BlackHole: it answers when packets are short, and else does not.
	BlackHole bool
	// Portal is where something that answers in its place sends browsers to, or
	// what it says; "" if nothing does.
	Portal string
}

// Names of hops.
const (
	HopPSPath = "PS-path"
	HopHSPath = "HS-path"
	HopPipe   = "pipe"
)

// Subflow is a way to the server: by an interface of this device, or a helper.
type Subflow struct {
	Name    string
	Helper  bool
	Metered bool
	Backup  bool // it is used while no other works
	Capped  bool // of a direct one: its link has a cap
	Up      bool
	Silent  bool     // the running primary's subflow makes no progress
	Problem *Problem // why it is not up
	// Of a helper: whether a pipe of it is there, how long ago the last one came (0: none
	// did since the primary began), and what it has left at the server about its calls.
	HasPipe      bool
	LastPipe     time.Duration
	SignedReport *Problem
	// QueueTime is how much longer than at its best a round trip of a direct one takes.
	QueueTime time.Duration
	// UDP tells that the running primary's direct subflow goes over UDP, WhyNotUDP why it does
	// not although that is asked for.
	UDP       bool
	WhyNotUDP string
	// Refuses is why a helper carries nothing by its owner's word, such as a low
	// battery; "" if it does not say so. Rests is why this device lets it carry
	// nothing, by its own policy or since it is paused.
	Refuses   string
	Suspended string
	Local     string // this end's address, of a direct one
	Seen      string // where it comes from as the server sees it
	Hops      []Hop  // from here to the server; none of a lane that is not up
	DownRate  Rate
	UpRate    Rate // the other direction
	// NotMeasured tells why no rates were measured, "" if they were, or none were to be.
	NotMeasured string
}

// Hop is one TCP connection of a lane.
type Hop struct {
	Name                   string
	RTT                    time.Duration // the least; 0: not known
	Packets, Retransmitted uint64        // both ends together, as far as they tell
	MTU                    unit.Bytes    // 0: not known
	RejectedReports        uint64        // of the helper, at the server; of an HS-path
}

// Rate is what a lane carries one way.
type Rate struct {
	Bps   unit.Rate
	Limit string // the hop that was the limit, "" if not known
	Bytes unit.Bytes
	// Problem is why there is no rate. Stalled tells that the lane answered before
	// but no bulk came through.
	Problem *Problem
	Stalled bool
}

// Level says how good something is.
type Level string

// Levels, by rising concern.
const (
	OK   Level = "ok"
	Note Level = "note" // worth knowing, nothing to mend
	Warn Level = "warn" // works, but not as it could
	Bad  Level = "bad"  // does not work
)

// Finding is what one check found.
type Finding struct {
	Check   string `json:"check"`             // a word that stays the same
	Subject string `json:"subject,omitempty"` // a lane, hop, address or feature
	Level   Level  `json:"level"`
	Text    string `json:"text"`
	Hint    string `json:"hint,omitempty"`
}

// HopReport is a hop in a report.
type HopReport struct {
	Name  string     `json:"name"`
	RTTms float64    `json:"rtt_ms"`
	Loss  float64    `json:"loss"` // packets sent again, of all
	MTU   unit.Bytes `json:"mtu_bytes"`
	// DownBps and UpBps are what it carries, or, with AtLeast, what it was seen to
	// carry while another hop was the limit. 0: not measured.
	DownBps     unit.Rate `json:"down_bps"`
	DownAtLeast bool      `json:"down_at_least"`
	UpBps       unit.Rate `json:"up_bps"`
	UpAtLeast   bool      `json:"up_at_least"`
}

// SubflowReport is a lane in a report.
type SubflowReport struct {
	Name    string      `json:"name"`
	Kind    string      `json:"kind"` // direct or helped
	Up      bool        `json:"up"`
	DownBps unit.Rate   `json:"down_bps"` // 0: not measured
	UpBps   unit.Rate   `json:"up_bps"`
	NAT     bool        `json:"nat"` // the server sees it under another address
	Seen    string      `json:"seen,omitempty"`
	Hops    []HopReport `json:"hops"` // never null
}

// Verdict names what limits most.
type Verdict struct {
	// What is a word that stays the same: see docs/howto/doctor.md.
	What    string `json:"what"`
	Subject string `json:"subject,omitempty"`
	Level   Level  `json:"level"`
	Text    string `json:"text"`
	Advice  string `json:"advice,omitempty"`
}

// Report is what is told.
type Report struct {
	Bottleneck Verdict         `json:"bottleneck"`
	Findings   []Finding       `json:"findings"` // never null
	Subflows   []SubflowReport `json:"subflows"` // never null
	// Kind is what a failure is of, as in errors; "" if nothing is bad.
	Kind fault.Kind `json:"kind,omitempty"`
}
