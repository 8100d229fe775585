// SPDX-License-Identifier: Apache-2.0

package api

import (
	"time"

	"mpbond/base/unit"
)

// Status is the answer to GET /v2/status: the state of a running mpbond at one moment.
type Status struct {
	Role    string `json:"role"` // "server", "helper", "primary", or "dual", which is primary and helper
	Name    string `json:"name"` // of this device
	ID      string `json:"id"`   // of its key
	Version string `json:"version"`

	UptimeSeconds float64    `json:"uptime_seconds"`
	MemoryBytes   unit.Bytes `json:"memory_bytes"` // taken from the system

	// Addresses where it listens; empty if it does not.
	Listen      string `json:"listen,omitempty"`      // for devices
	SOCKS       string `json:"socks,omitempty"`       // SOCKS5 proxy
	HTTP        string `json:"http,omitempty"`        // HTTP proxy
	Transparent string `json:"transparent,omitempty"` // for `mpbond run`
	API         string `json:"api,omitempty"`         // for this API over TCP

	// Calls counts connections to Listen: of helpers at a primary, of devices at a server.
	Calls *Calls `json:"calls,omitempty"`
	// Unsaved lists revoked devices that are not yet saved as such: a restart would trust them
	// again.
	Unsaved []string `json:"unsaved,omitempty"`

	Devices []Device `json:"devices"` // this one first, then the trusted ones; never null
	Pipes   []Pipe   `json:"pipes"`   // at primary, helper and dual; never null
	// Refused are devices that were lately refused at one end, until they connect. Unknown devices
	// have no name.
	Refused []Refusal `json:"refused,omitempty"`

	Bonds  []Bond        `json:"bonds"`            // at primary and server; never null
	Fleet  *Fleet        `json:"fleet,omitempty"`  // at a server or primary that belongs to one
	Helper *HelperStatus `json:"helper,omitempty"` // at helper and dual
	Onload *OnloadStatus `json:"onload,omitempty"` // of a helper that accepts connections for onloading

	// Caps are the configured caps of this device's links and of other devices; at primary, helper
	// and dual.
	Caps []Cap `json:"caps,omitempty"`
	// Cells are the monitored mobile cells, by interface; at primary, helper and dual.
	Cells  []Cells       `json:"cells,omitempty"`
	Policy *PolicyStatus `json:"policy,omitempty"` // of a primary or helper with a policy file
}

// Bond is one bond, as seen from one end.
type Bond struct {
	// ID is unique in this mpbond: the beginning of the bond's ID, with a number at a server if two
	// devices have chosen the same.
	ID           string     `json:"id"`
	Peer         string     `json:"peer"` // name of the device at the other end
	Scheduler    string     `json:"scheduler"`
	Streams      int        `json:"streams"`       // open now
	StreamsTotal int64      `json:"streams_total"` // since the start of the bond
	MetaBytes    unit.Bytes `json:"meta_bytes"`    // in the meta buffers
	ReorderBytes unit.Bytes `json:"reorder_bytes"` // received, waiting for earlier bytes
	Flows        int        `json:"flows"`         // datagram flows that are open now
	FlowsTotal   int64      `json:"flows_total"`   // since the start of the bond
	// DatagramsDropped counts datagrams that waited too long or found no room, at this end.
	DatagramsDropped int64 `json:"datagrams_dropped"`
	// WastedBytes counts bytes sent or received more than once, by cause.
	WastedBytes map[string]unit.Bytes `json:"wasted_bytes,omitempty"`
	Subflows    []Subflow             `json:"subflows"` // never null
	// Decisions are the last decisions, oldest first, on request.
	Decisions []Decision `json:"decisions,omitempty"`
	// StreamList holds the newest streams, newest first, on request.
	StreamList []Stream `json:"stream_list,omitempty"`
	// FlowList holds the most recently used flows, most recent first, on request.
	FlowList []Flow `json:"flow_list,omitempty"`
}

// AppInfo is the app of a stream or flow. The primary finds it soon after the start and omits what
// is unknown; a server does not know it.
type AppInfo struct {
	// App is the name of the app: the label, else the program's name, else "user NAME" for a
	// program that the primary cannot see, "from ADDRESS" for another device, "mpbond" for its own,
	// or "unknown". Omitted until it is found.
	App     string `json:"app,omitempty"`
	Program string `json:"program,omitempty"` // path of its executable
	Label   string `json:"label,omitempty"`   // of `mpbond run --label`
	User    string `json:"user,omitempty"`    // it runs as this user: a name, or a number without one
}

// AppUnknown is the App of a stream or flow if its app cannot be found.
const AppUnknown = "unknown"

// Stream is one connection of an app. Down is towards the primary.
type Stream struct {
	ID   uint64 `json:"id"`
	Dest string `json:"dest"`
	AppInfo
	// bond, latency or redundant; mode single is shown as bond with one subflow
	Mode      string       `json:"mode"`
	Priority  string       `json:"priority"` // high, normal or low
	Weight    int          `json:"weight"`   // among streams of one priority
	DownBytes unit.Bytes   `json:"down_bytes"`
	UpBytes   unit.Bytes   `json:"up_bytes"`
	Down      StreamChoice `json:"down"`
	Up        StreamChoice `json:"up"`
}

// StreamChoice lists the subflows that one direction of a stream may use now, and why. It is empty
// if nothing had to be weighed: no subflow costs energy or money, or the mode decides.
type StreamChoice struct {
	Subflows []uint32 `json:"subflows,omitempty"`
	Reason   string   `json:"reason,omitempty"`
	// Forecast is the expected time and energy, and those of the best other set of subflows with the
	// reason why it is not used. It is of the moment of the choice.
	Forecast string `json:"forecast,omitempty"`
}

// Flow is one datagram flow: a UDP socket of an app. It counts datagrams at this end.
type Flow struct {
	ID uint64 `json:"id"`
	AppInfo
	Subflow       uint32 `json:"subflow"`                  // the pinned subflow, for sending; 0: none yet
	SecondSubflow uint32 `json:"second_subflow,omitempty"` // of a redundant flow
	Sent          int64  `json:"sent"`
	Received      int64  `json:"received"`
	Dropped       int64  `json:"dropped"`   // at this end
	Duplicate     int64  `json:"duplicate"` // received a second time
	Moves         int64  `json:"moves"`     // changes of the pinned subflow
	// Bytes of datagrams received and sent, each datagram once. Down is towards the primary.
	DownBytes unit.Bytes `json:"down_bytes"`
	UpBytes   unit.Bytes `json:"up_bytes"`
	LastUsed  time.Time  `json:"last_used"`
}

// Kinds of subflows.
const (
	Direct = "direct" // over the PS-path
	Helped = "helped" // over a pipe and an HS-path
)

// States of subflows.
const (
	Up      = "up"
	Joining = "joining" // in the handshake
	Silent  = "silent"  // data in flight without progress
	Down    = "down"
)

// Subflow is one subflow. Rx is towards this end, Tx away from it.
type Subflow struct {
	ID            uint32     `json:"id"`
	Device        string     `json:"device"` // that carries it; the primary for a direct subflow
	Kind          string     `json:"kind"`   // Direct or Helped
	State         string     `json:"state"`  // Up, Joining, Silent or Down
	RxBytes       unit.Bytes `json:"rx_bytes"`
	TxBytes       unit.Bytes `json:"tx_bytes"`
	RxRate        unit.Rate  `json:"rx_rate_bps"` // over the last second
	TxRate        unit.Rate  `json:"tx_rate_bps"` // over the last second
	SRTTms        float64    `json:"srtt_ms"`
	PADms         float64    `json:"pad_ms"`          // predicted delivery time of a byte sent now
	ThroughputBps unit.Rate  `json:"throughput_bps"`  // estimated sending rate from this end
	BacklogBytes  unit.Bytes `json:"backlog_bytes"`   // sent and not yet at the far end
	Radio         string     `json:"radio,omitempty"` // of its link to the server; "" for a cable, or if unknown
	Metered       bool       `json:"metered,omitempty"`
	Tier          string     `json:"tier,omitempty"` // "secondary" or "backup"; "" is primary
	// Transport is the transport of the hop at this end or, at the helper of a helped subflow, of
	// the hop to the server: "tcp", "udp" or "rfcomm". Fallback is why it is TCP although UDP is
	// configured.
	Transport string `json:"transport,omitempty"`
	Fallback  string `json:"fallback,omitempty"`
	// Of a helped subflow: the address of its pipe, how often it resumed on another pipe after a
	// break and moved before one, and the number of waiting pipes. A direct subflow over UDP counts
	// moves to another address in Migrated.
	Pipe     string `json:"pipe,omitempty"`
	Resumed  int    `json:"resumed,omitempty"`
	Migrated int    `json:"migrated,omitempty"`
	Waiting  int    `json:"pipes_waiting,omitempty"`
	// ExpectedStallMs is by how much a handoff that is forecast delays what is sent now, on average.
	ExpectedStallMs float64 `json:"expected_stall_ms,omitempty"`
	// LastData is when the last new stream byte arrived.
	LastData  time.Time `json:"last_data,omitzero"`
	LastError string    `json:"last_error,omitempty"`
	Trouble   *Trouble  `json:"trouble,omitempty"` // LastError in parts
	Hop       *Hop      `json:"hop,omitempty"`     // while there is a connection
}

// Hop is the hop of a subflow that begins at this end, as its TCP sees it: all of a direct subflow,
// the pipe or HS-path of a helped one. Rates are estimated sending rates.
type Hop struct {
	RTTms         float64    `json:"rtt_ms"`
	MinRTTms      float64    `json:"min_rtt_ms"`
	MTU           unit.Bytes `json:"mtu_bytes"`     // largest packet known to pass
	Packets       uint64     `json:"packets"`       // with data, sent from here
	Retransmitted uint64     `json:"retransmitted"` // packets sent again
	RateBps       unit.Rate  `json:"rate_bps"`
	// Of a helped subflow: the helper's report about the next hop. FarRateBps is 0 until that hop
	// was the bottleneck; FarWaitMs is how long a byte sent now would wait at the helper.
	FarRateBps unit.Rate `json:"far_rate_bps,omitempty"`
	FarWaitMs  float64   `json:"far_wait_ms,omitempty"`
	// RejectedReports counts, at the server, reports in the helper's name that had no effect, since
	// they were altered or repeated on the HS-path.
	RejectedReports uint64 `json:"rejected_reports,omitempty"`
	// Congestion is the congestion control over TCP, if the hop's losses choose it.
	Congestion *Congestion `json:"congestion,omitempty"`
	// PBE is the other end's feedback about its mobile cells; omitted if there was none.
	PBE *PBE `json:"pbe,omitempty"`
}

// Congestion is the congestion control that a hop's losses, or its window and round trip, have led to.
type Congestion struct {
	Name string `json:"name"` // cubic or bbr
	// Reason is "losses without a queue" or "slow start ended too early" for bbr. For cubic it is "few
	// losses" at first, later "losses with a queue", "more losses than with cubic" (bbr had), "a
	// comparison" of both, or "no more losses".
	Reason  string `json:"reason"`
	Changes int    `json:"changes"` // since the connection began
}

// PBE is the state of PBE-CC (docs/explanation/pbe.md) at a sender.
type PBE struct {
	State           string    `json:"state"`            // approach, wireless, drain or internet
	CapacityBps     unit.Rate `json:"capacity_bps"`     // last reported by the receiver, for this subflow
	FairBps         unit.Rate `json:"fair_bps"`         // its fair share of the cells, last reported
	FollowsFeedback bool      `json:"follows_feedback"` // the sender uses the feedback; otherwise it sends as BBR does
	Doubted         bool      `json:"doubted"`          // the reported capacity exceeds what arrives
}

// Cells is the reception of the mobile cells of a local interface.
type Cells struct {
	Interface string `json:"interface"`
	Source    string `json:"source"`           // of control messages
	Receiving bool   `json:"receiving"`        // messages of this device are received now; only then senders get feedback
	Reason    string `json:"reason,omitempty"` // why senders get no feedback
	RNTI      uint16 `json:"rnti"`             // this device's identity in the cells, 0 if unknown
	// RNTI was found by comparing what arrives with the grants to each user
	RNTIFound bool `json:"rnti_found,omitempty"`
	// available to this device now (C_t), over all cells; 0 until data blocks were received
	CapacityBps unit.Rate `json:"capacity_bps"`
	FairBps     unit.Rate `json:"fair_bps"` // its fair share of the cells
	// OtherAppsBps is the rate at which other apps of this device receive data over the cells. They fill the same queue
	// of the cell, so they delay the subflows.
	OtherAppsBps unit.Rate `json:"other_apps_bps,omitempty"`
	Subflows     int       `json:"subflows"` // in use, which share this
	Cells        []Cell    `json:"cells,omitempty"`
}

// Cell is one mobile cell, averaged over a round trip.
type Cell struct {
	Number  int     `json:"number"`
	PRB     int     `json:"prb"`      // all resource blocks: its width
	Active  bool    `json:"active"`   // it is received, and serves this device
	Users   int     `json:"users"`    // that share it, including this device
	OwnPRB  float64 `json:"own_prb"`  // granted to this device
	IdlePRB float64 `json:"idle_prb"` // not granted
}

// HelperStatus is what a helper does for one primary.
type HelperStatus struct {
	Primary       string     `json:"primary"` // name of the device, "" while there is none
	Server        string     `json:"server"`  // address of the HS-path's far end
	Subflows      int        `json:"subflows"`
	OverUDP       int        `json:"subflows_over_udp,omitempty"` // of these, over UDP to the server
	Fallback      string     `json:"fallback,omitempty"`          // why others use TCP although UDP is configured
	BufferBytes   unit.Bytes `json:"buffer_bytes"`                // held between HS-path and pipe
	BufferLimit   unit.Bytes `json:"buffer_limit_bytes"`
	RelayedBytes  unit.Bytes `json:"relayed_bytes"`    // both directions
	PipeRateBps   unit.Rate  `json:"pipe_rate_bps"`    // estimate
	HSPathRateBps unit.Rate  `json:"hs_path_rate_bps"` // estimate, of the HS-path
	DownRateBps   unit.Rate  `json:"down_rate_bps"`    // relayed to the primary over the last second
	UpRateBps     unit.Rate  `json:"up_rate_bps"`      // relayed to the server over the last second
	LastError     string     `json:"last_error,omitempty"`
	// LinkShares are the shares of its links that others may use now, for each direction.
	LinkShares []LinkShare `json:"link_shares,omitempty"`
}

// OnloadStatus describes what a helper may carry, and carries, for primaries that onload.
type OnloadStatus struct {
	Listen    string `json:"listen"`
	Allowance string `json:"allowance"` // as its owner configured it
	// Open reports whether connections are accepted; Why gives the reason.
	Open bool   `json:"open"`
	Why  string `json:"why"`
	// Of today, at this device's link, as a provider counts. Only CarriedBytes is set if Bounded is
	// false.
	Bounded      bool       `json:"bounded"`
	DayBytes     unit.Bytes `json:"day_bytes"` // the day's allowance
	LeftBytes    unit.Bytes `json:"left_bytes"`
	CarriedBytes unit.Bytes `json:"carried_bytes"`
	// Tunnels are the current connections, oldest first; never null.
	Tunnels []Tunnel `json:"tunnels"`
	// Page is the helper's page for photos, if it has one.
	Page *OnloadPage `json:"page,omitempty"`
}

// OnloadPage is a helper's page that uploads photos of a browser.
type OnloadPage struct {
	Listen string   `json:"listen"`
	URLs   []string `json:"urls"` // for browsers of the local network; never null
	Code   string   `json:"code"` // admits a browser
	// Files of the list on the page that are not confirmed yet, that the endpoint has confirmed,
	// and that failed.
	Waiting    int        `json:"waiting"`
	Sent       int        `json:"sent"`
	Failed     int        `json:"failed"`
	SpoolBytes unit.Bytes `json:"spool_bytes"` // on the helper's disk
}

// Tunnels sums up the tunnels of one device.
type Tunnels struct {
	Count int
	Bytes unit.Bytes // both directions
}

// ByDevice returns the sum of the tunnels of each device.
func (o OnloadStatus) ByDevice() map[string]Tunnels {
	all := map[string]Tunnels{}
	for _, t := range o.Tunnels {
		n := all[t.Device]
		all[t.Device] = Tunnels{n.Count + 1, n.Bytes + t.UpBytes + t.DownBytes}
	}
	return all
}

// Tunnel is a connection that a helper carries for a primary. Up is from the primary.
type Tunnel struct {
	Device    string     `json:"device"`
	Server    string     `json:"server"`
	Since     time.Time  `json:"since"`
	UpBytes   unit.Bytes `json:"up_bytes"`
	DownBytes unit.Bytes `json:"down_bytes"`
}

// LinkShare is the part of a link that other devices may use, in one direction, after its owner's
// own traffic.
type LinkShare struct {
	Interface   string    `json:"interface"`
	Direction   string    `json:"direction"` // "down" or "up"
	Limited     bool      `json:"limited"`
	LimitBps    unit.Rate `json:"limit_bps"` // for all devices together, while limited
	Reason      string    `json:"reason"`
	OwnerBps    unit.Rate `json:"owner_bps"`    // the owner's traffic
	SharedBps   unit.Rate `json:"shared_bps"`   // the traffic of other devices
	CapacityBps unit.Rate `json:"capacity_bps"` // the most that the link carried lately
}

// Chunk is the body of POST /v2/chunk, by which an app announces the bytes that it waits for on a
// connection. The scheduler completes them as early as possible, before later bytes (the end of a
// chunk in the MPBond paper, section 4.3), and links are chosen for that many. The answer is 204.
// Only a primary accepts it.
type Chunk struct {
	// App is the local address of the app's connection to the proxy, or of the connection that
	// `mpbond run` redirects, "host:port".
	App string `json:"app"`
	// Bytes is the number of further bytes that the app waits to receive or, with Up, to send.
	Bytes unit.Bytes `json:"bytes"`
	Up    bool       `json:"up,omitempty"`
}

// Decision is one decision of the scheduler.
type Decision struct {
	T              time.Time  `json:"t"`
	Subflow        uint32     `json:"subflow,omitempty"` // 0: it waited
	PADms          float64    `json:"pad_ms,omitempty"`
	RemainingBytes unit.Bytes `json:"remaining_bytes,omitempty"` // to schedule at that time
	DiffBytes      unit.Bytes `json:"diff_bytes,omitempty"`      // what faster busy subflows could take meanwhile
	Reason         string     `json:"reason"`
}

// Problem is the body of an error answer (RFC 9457), of media type application/problem+json.
type Problem struct {
	Type   string `json:"type"` // always "about:blank": see Kind
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	Kind   string `json:"kind"` // a kind of package fault
	Hint   string `json:"hint,omitempty"`
	// Of an unusable text: the position, from 1, and the name that was probably meant.
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"` // in bytes
	Nearest string `json:"nearest,omitempty"`
}
