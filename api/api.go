package api

import (
	"time"

	"mpbond/base/unit"
)

// Status is the answer to GET /v2/status: one running mpbond at one moment.
type Status struct {
	Role    string `json:"role"` // "server", "helper", "primary", or "dual": the last two at once
	Name    string `json:"name"` // of this device
	ID      string `json:"id"`   // of its key
	Version string `json:"version"`

	UptimeSeconds float64    `json:"uptime_seconds"`
	MemoryBytes   unit.Bytes `json:"memory_bytes"` // taken from the system

	// Addresses it listens on; empty if it does not.
	Listen      string `json:"listen,omitempty"`      // for devices
	SOCKS       string `json:"socks,omitempty"`       // SOCKS5 proxy
	HTTP        string `json:"http,omitempty"`        // HTTP proxy
	Transparent string `json:"transparent,omitempty"` // for `mpbond run`
	API         string `json:"api,omitempty"`         // for this API over TCP

	// Calls reached Listen: at a primary of helpers, at a server of devices.
	Calls *Calls `json:"calls,omitempty"`
	// Unsaved names devices that were revoked, which the disk does not have yet: a
	// restart would trust them again.
	Unsaved []string `json:"unsaved,omitempty"`

	Devices []Device `json:"devices"` // this one first, then those that are trusted; never null
	Pipes   []Pipe   `json:"pipes"`   // primary, helper and dual; never null
	// Refused are devices that one end of a connection refused lately, until the two
	// come together. Strangers are among them, without a name.
	Refused []Refusal `json:"refused,omitempty"`

	Bonds  []Bond        `json:"bonds"`            // primary and server; never null
	Helper *HelperStatus `json:"helper,omitempty"` // helper and dual
	Onload *OnloadStatus `json:"onload,omitempty"` // of a helper, if it takes connections for onloading

	// Caps are those that are set, of this device's links and of other devices; at
	// primary, helper and dual.
	Caps []Cap `json:"caps,omitempty"`
	// Cells are those that are listened to, by interface; at primary, helper and dual.
	Cells  []Cells       `json:"cells,omitempty"`
	Policy *PolicyStatus `json:"policy,omitempty"` // of a primary or helper, if there is a policy file
}

// Bond is one bond, as one of its ends sees it.
type Bond struct {
	// ID tells it from others of this mpbond: the beginning of the bond's, at a
	// server with a number if two devices have chosen the same.
	ID           string     `json:"id"`
	Peer         string     `json:"peer"` // name of the device at the other end
	Scheduler    string     `json:"scheduler"`
	Streams      int        `json:"streams"`       // open now
	StreamsTotal int64      `json:"streams_total"` // since the bond exists
	MetaBytes    unit.Bytes `json:"meta_bytes"`    // in the meta buffers
	ReorderBytes unit.Bytes `json:"reorder_bytes"` // received, waiting for earlier bytes
	Flows        int        `json:"flows"`         // of datagrams, open now
	FlowsTotal   int64      `json:"flows_total"`   // since the bond exists
	// DatagramsDropped waited too long or found no room, at this end.
	DatagramsDropped int64 `json:"datagrams_dropped"`
	// WastedBytes were sent or received more than once, by cause.
	WastedBytes map[string]unit.Bytes `json:"wasted_bytes,omitempty"`
	Subflows    []Subflow             `json:"subflows"` // never null
	// Decisions are the last ones, oldest first, if asked for.
	Decisions []Decision `json:"decisions,omitempty"`
	// StreamList holds the streams opened last, newest first, if asked for.
	StreamList []Stream `json:"stream_list,omitempty"`
	// FlowList holds the flows used last, newest first, if asked for.
	FlowList []Flow `json:"flow_list,omitempty"`
}

// AppInfo is whose a stream or flow is, as the primary finds out soon after it has
// begun: what it does not know is left out, and a server knows nothing of it.
type AppInfo struct {
	// App is what it is counted for: the label, else the program's name, else
	// "user NAME" of a program that may not be seen, "from ADDRESS" of another
	// device, "mpbond" of its own, or "unknown". While it is looked for it is left
	// out.
	App     string `json:"app,omitempty"`
	Program string `json:"program,omitempty"` // path of its executable
	Label   string `json:"label,omitempty"`   // of `mpbond run --label`
	User    string `json:"user,omitempty"`    // that it runs as: a name, or a number that has none
}

// AppUnknown is the App of what nothing could be found out about.
const AppUnknown = "unknown"

// Stream is one connection of an app. Down is towards the primary.
type Stream struct {
	ID   uint64 `json:"id"`
	Dest string `json:"dest"`
	AppInfo
	Mode      string       `json:"mode"`     // bond, latency or redundant; single is bond over one path
	Priority  string       `json:"priority"` // high, normal or low
	Weight    int          `json:"weight"`   // among streams of one priority
	DownBytes unit.Bytes   `json:"down_bytes"`
	UpBytes   unit.Bytes   `json:"up_bytes"`
	Down      StreamChoice `json:"down"`
	Up        StreamChoice `json:"up"`
}

// StreamChoice is which paths one direction of a stream may use now, and why.
// It is empty where nothing had to be weighed, since no path costs energy or
// money, or the mode says it.
type StreamChoice struct {
	Subflows []uint32 `json:"subflows,omitempty"`
	Reason   string   `json:"reason,omitempty"`
}

// Flow is one datagram flow: a UDP socket of an app. Counts are of datagrams, at
// this end.
type Flow struct {
	ID uint64 `json:"id"`
	AppInfo
	Subflow       uint32 `json:"subflow"`                  // it is pinned to for sending; 0: none yet
	SecondSubflow uint32 `json:"second_subflow,omitempty"` // of a flow that sends everything twice
	Sent          int64  `json:"sent"`
	Received      int64  `json:"received"`
	Dropped       int64  `json:"dropped"`   // at this end
	Duplicate     int64  `json:"duplicate"` // came a second time
	Moves         int64  `json:"moves"`     // to another path
	// Bytes in datagrams that were received and sent, each datagram once. Down is
	// towards the primary.
	DownBytes unit.Bytes `json:"down_bytes"`
	UpBytes   unit.Bytes `json:"up_bytes"`
	LastUsed  time.Time  `json:"last_used"`
}

// Path kinds.
const (
	Direct = "direct" // over the PS-path
	Helped = "helped" // over a pipe and an HS-path
)

// Path states.
const (
	Up      = "up"
	Joining = "joining" // shaking hands
	Silent  = "silent"  // data outstanding and no progress
	Down    = "down"
)

// Subflow is one subflow. Rx is towards this end, Tx away from it.
type Subflow struct {
	ID            uint32     `json:"id"`
	Device        string     `json:"device"` // that carries it; the primary for a direct one
	Kind          string     `json:"kind"`   // Direct or Helped
	State         string     `json:"state"`  // Up, Joining, Silent or Down
	RxBytes       unit.Bytes `json:"rx_bytes"`
	TxBytes       unit.Bytes `json:"tx_bytes"`
	RxRate        unit.Rate  `json:"rx_rate_bps"` // over the last second
	TxRate        unit.Rate  `json:"tx_rate_bps"` // over the last second
	SRTTms        float64    `json:"srtt_ms"`
	PADms         float64    `json:"pad_ms"`          // predicted delivery time of a byte sent now
	ThroughputBps unit.Rate  `json:"throughput_bps"`  // estimate of what it can carry away from here
	BacklogBytes  unit.Bytes `json:"backlog_bytes"`   // sent and not yet at the far end
	Radio         string     `json:"radio,omitempty"` // of its link to the server; "" for a cable, or where it is not known
	Metered       bool       `json:"metered,omitempty"`
	Tier          string     `json:"tier,omitempty"` // "secondary" or "backup"; "" is primary
	// Transport carries the hop that begins at this end, a helped path's at its helper
	// the one to the server: "tcp", "udp" or "rfcomm". Fallback is why it is TCP
	// although UDP is asked for.
	Transport string `json:"transport,omitempty"`
	Fallback  string `json:"fallback,omitempty"`
	// Of a helped path: where its pipe ends now, how many times it went on over
	// another one, after a break and before (a direct path over UDP: from another
	// address), and how many pipes wait.
	Pipe     string `json:"pipe,omitempty"`
	Resumed  int    `json:"resumed,omitempty"`
	Migrated int    `json:"migrated,omitempty"`
	Waiting  int    `json:"pipes_waiting,omitempty"`
	// LastData is when the last stream byte came that had not come before.
	LastData  time.Time `json:"last_data,omitzero"`
	LastError string    `json:"last_error,omitempty"`
	Trouble   *Trouble  `json:"trouble,omitempty"` // LastError in parts
	Hop       *Hop      `json:"hop,omitempty"`     // while there is a connection
}

// Hop is the hop of a subflow that begins at this end, as its TCP sees it: the
// whole way of a direct one, the pipe or HS-path of a helped one. Its rate is an
// estimate of what it carries away from here.
type Hop struct {
	RTTms         float64    `json:"rtt_ms"`
	MinRTTms      float64    `json:"min_rtt_ms"`
	MTU           unit.Bytes `json:"mtu_bytes"`     // the longest packet that the way is known to take
	Packets       uint64     `json:"packets"`       // with data, sent from here
	Retransmitted uint64     `json:"retransmitted"` // of these, for another time
	RateBps       unit.Rate  `json:"rate_bps"`
	// Of a helped path: what the helper says of the hop behind it. FarRateBps is 0
	// until that has once been the limit; FarWaitMs is how long it will take for
	// what waits at the helper.
	FarRateBps unit.Rate `json:"far_rate_bps,omitempty"`
	FarWaitMs  float64   `json:"far_wait_ms,omitempty"`
	// RejectedReports counts, at the server, what came in the helper's name and has no
	// effect, since somebody on the HS-path changed or repeated it.
	RejectedReports uint64 `json:"rejected_reports,omitempty"`
	// PBE is what the other end tells of its mobile cells; left out if it never did.
	PBE *PBE `json:"pbe,omitempty"`
}

// PBE is the state of PBE-CC (docs/explanation/pbe.md) at a sender.
type PBE struct {
	State           string    `json:"state"`            // approach, wireless, drain or internet
	CapacityBps     unit.Rate `json:"capacity_bps"`     // that the receiver has told last, for this subflow
	FairBps         unit.Rate `json:"fair_bps"`         // its fair share of the cells, told last
	FollowsFeedback bool      `json:"follows_feedback"` // it is followed; else this end sends as BBR does
	Doubted         bool      `json:"doubted"`          // more was told than gets through
}

// Cells is what is heard of the mobile cells of an own interface.
type Cells struct {
	Interface   string    `json:"interface"`
	Source      string    `json:"source"`           // of control messages
	Receiving   bool      `json:"receiving"`        // now; only then senders are told
	Reason      string    `json:"reason,omitempty"` // they are not heard
	RNTI        uint16    `json:"rnti"`             // that the cells call this device, 0 if it is not known
	CapacityBps unit.Rate `json:"capacity_bps"`     // what this device can have now (C_t), over all cells; 0 until blocks of data were heard
	FairBps     unit.Rate `json:"fair_bps"`         // its fair share of them
	Subflows    int       `json:"subflows"`         // that are in use, and split this
	Cells       []Cell    `json:"cells,omitempty"`
}

// Cell is one of them, as it is averaged over a round trip.
type Cell struct {
	Number  int     `json:"number"`
	PRB     int     `json:"prb"`      // resource blocks in all: its width
	Active  bool    `json:"active"`   // it is heard, and given to this device
	Users   int     `json:"users"`    // who share it, this device among them
	OwnPRB  float64 `json:"own_prb"`  // given to this device
	IdlePRB float64 `json:"idle_prb"` // given to nobody
}

// HelperStatus is what a helper does for one primary.
type HelperStatus struct {
	Primary       string     `json:"primary"` // name of the device, "" while there is none
	Server        string     `json:"server"`  // address that the HS-path goes to
	Subflows      int        `json:"subflows"`
	OverUDP       int        `json:"subflows_over_udp,omitempty"` // of these, to the server
	Fallback      string     `json:"fallback,omitempty"`          // why others are not, although it is asked for
	BufferBytes   unit.Bytes `json:"buffer_bytes"`                // held between HS-path and pipe
	BufferLimit   unit.Bytes `json:"buffer_limit_bytes"`
	RelayedBytes  unit.Bytes `json:"relayed_bytes"`    // both directions
	PipeRateBps   unit.Rate  `json:"pipe_rate_bps"`    // estimate
	HSPathRateBps unit.Rate  `json:"hs_path_rate_bps"` // estimate, of the HS-path
	DownRateBps   unit.Rate  `json:"down_rate_bps"`    // relayed to the primary over the last second
	UpRateBps     unit.Rate  `json:"up_rate_bps"`      // relayed to the server over the last second
	LastError     string     `json:"last_error,omitempty"`
	// LinkShares are the interfaces that are lent now, each direction by itself.
	LinkShares []LinkShare `json:"link_shares,omitempty"`
}

// OnloadStatus is what a helper may carry for primaries that onload, and what it does.
type OnloadStatus struct {
	Listen    string `json:"listen"`
	Allowance string `json:"allowance"` // as its owner wrote it
	// Open tells that connections are taken now; Why says why, or why not.
	Open bool   `json:"open"`
	Why  string `json:"why"`
	// Of today, at this device's line, as a provider counts it. Without Bounded only what
	// was carried is told.
	Bounded      bool       `json:"bounded"`
	DayBytes     unit.Bytes `json:"day_bytes"` // may be carried in all
	LeftBytes    unit.Bytes `json:"left_bytes"`
	CarriedBytes unit.Bytes `json:"carried_bytes"`
	// Tunnels are the connections that are carried now, oldest first; never null.
	Tunnels []Tunnel `json:"tunnels"`
	// Page is the helper's page for photos, if it has one.
	Page *OnloadPage `json:"page,omitempty"`
}

// OnloadPage is a helper's own page, by which photos of a browser go up.
type OnloadPage struct {
	Listen string   `json:"listen"`
	URLs   []string `json:"urls"` // where browsers of the local network find it; never null
	Code   string   `json:"code"` // lets them in
	// Files that are not confirmed yet, that the endpoint has confirmed, and that failed,
	// of the list that the page shows.
	Waiting    int        `json:"waiting"`
	Sent       int        `json:"sent"`
	Failed     int        `json:"failed"`
	SpoolBytes unit.Bytes `json:"spool_bytes"` // on the helper's disk
}

// Tunnels are those of one device.
type Tunnels struct {
	Count int
	Bytes unit.Bytes // both ways
}

// ByDevice sums tunnels up.
func (o OnloadStatus) ByDevice() map[string]Tunnels {
	all := map[string]Tunnels{}
	for _, t := range o.Tunnels {
		n := all[t.Device]
		all[t.Device] = Tunnels{n.Count + 1, n.Bytes + t.UpBytes + t.DownBytes}
	}
	return all
}

// Tunnel is a connection that a helper has made for a primary. Up is from the primary.
type Tunnel struct {
	Device    string     `json:"device"`
	Server    string     `json:"server"`
	Since     time.Time  `json:"since"`
	UpBytes   unit.Bytes `json:"up_bytes"`
	DownBytes unit.Bytes `json:"down_bytes"`
}

// LinkShare is what those who borrow a link may use of it, in one direction, after
// its owner's own traffic.
type LinkShare struct {
	Interface   string    `json:"interface"`
	Direction   string    `json:"direction"` // "down" or "up"
	Limited     bool      `json:"limited"`
	LimitBps    unit.Rate `json:"limit_bps"` // for all together, while limited
	Reason      string    `json:"reason"`
	OwnerBps    unit.Rate `json:"owner_bps"`    // of the owner
	SharedBps   unit.Rate `json:"shared_bps"`   // of those who borrow
	CapacityBps unit.Rate `json:"capacity_bps"` // the most that it carried lately
}

// Chunk is the body of POST /v2/chunk, by which an app tells what it waits for
// on one of its connections at present: what comes after it is scheduled so
// that this is complete as early as possible (the end of a chunk in the MPBond
// paper, section 4.3). The answer is 204. It concerns the primary only.
type Chunk struct {
	// App is the app's own end of its connection to the proxy, or of the
	// connection that `mpbond run` redirects, "host:port".
	App string `json:"app"`
	// Bytes more than the app has received, or with Up sent, so far.
	Bytes unit.Bytes `json:"bytes"`
	Up    bool       `json:"up,omitempty"`
}

// Decision is one choice of the scheduler.
type Decision struct {
	T              time.Time  `json:"t"`
	Subflow        uint32     `json:"subflow,omitempty"` // 0: it waited
	PADms          float64    `json:"pad_ms,omitempty"`
	RemainingBytes unit.Bytes `json:"remaining_bytes,omitempty"` // to schedule at that time
	DiffBytes      unit.Bytes `json:"diff_bytes,omitempty"`      // what quicker busy paths could take meanwhile
	Reason         string     `json:"reason"`
}

// Problem is the body of an answer that is an error (RFC 9457), of media type
// application/problem+json.
type Problem struct {
	Type   string `json:"type"` // always "about:blank": Kind tells more
	Title  string `json:"title"`
	Status int    `json:"status"`
	Detail string `json:"detail,omitempty"`
	Kind   string `json:"kind"` // one of package fault
	Hint   string `json:"hint,omitempty"`
	// Of a text that cannot be used: where, from 1, and the name that was probably
	// meant.
	Line    int    `json:"line,omitempty"`
	Column  int    `json:"column,omitempty"` // in bytes
	Nearest string `json:"nearest,omitempty"`
}
