package lab

import (
	"encoding/gob"
	"fmt"
	"net"
	"time"

	"mpbond/base/unit"
	"mpbond/lab/shaper"
	"mpbond/pbe/cell"
)

// The daemon listens on a unix socket in the lab's runtime directory. Each
// connection carries requests and answers in turn, in gob encoding. Both ends
// are the same binary.

// daemonSpec is the first line on the daemon's standard input.
type daemonSpec struct {
	Name         string    `json:"name"`
	Dir          string    `json:"dir"` // runtime directory, exists
	Pcap         string    `json:"pcap,omitempty"`
	EndWithInput bool      `json:"tied,omitempty"` // end when standard input does
	Topology     *Topology `json:"topology"`
}

type request struct {
	Op    string // hello, set, start, rewind, stats, traffic, down
	Link  string
	Dir   string
	Props []string // PROPERTY=VALUE
	Reset bool
	Into  time.Duration // of start
}

type response struct {
	Error string
	Info  *daemonInfo
	Stats *Stats

	Traffic []Traffic
}

// daemonInfo tells a client how to reach the nodes.
type daemonInfo struct {
	PID      int
	User     bool           // inside a user namespace
	NS       map[string]int // node -> the daemon's descriptor of its namespace
	Topology *Topology
	Warnings []string
}

// Stats is what a lab counts. Link counters begin when the lab comes up, the
// lateness and delays begin at the last request that asked for a reset.
type Stats struct {
	Links    []LinkStats `json:"links"`
	Lateness Lateness    `json:"lateness"`
	Realtime bool        `json:"realtime"` // the emulator got real-time priority
	Playing  bool        `json:"playing"`  // schedules have been started
	// LTE are the mobile networks, by name.
	LTE []LTEStats `json:"lte,omitempty"`
	// PcapLost counts packets that were too many for the capture's writer.
	PcapLost int64 `json:"pcap_lost,omitempty"`
}

// Link returns the statistics of a link, or zeros.
func (s Stats) Link(name string) LinkStats {
	for _, l := range s.Links {
		if l.Name == name {
			return l
		}
	}
	return LinkStats{}
}

// LinkStats are one link's. For a veth link only Sent and Delivered of its
// counters are known, as its devices count them (with Ethernet headers).
type LinkStats struct {
	Name   string       `json:"link"`
	Ends   [2]string    `json:"ends"`
	Shaped bool         `json:"shaped"`
	Lines  [2]LineStats `json:"lines"` // up, down
}

// LineStats are one direction's.
type LineStats struct {
	Rate     unit.Rate       `json:"rate_bps"` // -1: unlimited
	Delay    time.Duration   `json:"delay_ns"`
	Jitter   time.Duration   `json:"jitter_ns,omitempty"`
	Loss     float64         `json:"loss,omitempty"`
	Reorder  float64         `json:"reorder,omitempty"`
	Queue    unit.Bytes      `json:"queue_limit"`
	Outage   bool            `json:"outage,omitempty"`
	Queued   unit.Bytes      `json:"queued"`
	InFlight int             `json:"in_flight"`
	Refused  int64           `json:"refused,omitempty"`
	Count    shaper.Counters `json:"count"`
	Delays   Delays          `json:"delays"`
}

// LTEStats are one network's, as of its last subframe.
type LTEStats struct {
	Name string `json:"network"`
	// Messages and Truth are Unix stream sockets. Who connects to the first is sent
	// the control messages from then on, as a recording of package cell, to the
	// second TruthLines, as JSON.
	Messages  string         `json:"messages"`
	Truth     string         `json:"truth"`
	Number    int64          `json:"number"`              // of the next subframe
	Listeners int            `json:"listeners,omitempty"` // connected to both
	Dropped   int64          `json:"dropped,omitempty"`   // hearers that did not read
	Missed    int64          `json:"missed,omitempty"`    // subframes of which hearers were not told, since the machine was too busy
	Users     []LTEUserStats `json:"users"`
	// Samples are those of each carrier, if the topology asks for them.
	Samples []SamplesStats `json:"samples,omitempty"`
}

// SamplesStats are of the samples of one carrier.
type SamplesStats struct {
	// Socket is a Unix stream socket at which who connects is sent the carrier's
	// samples from then on, as pairs of 16-bit numbers.
	Socket string `json:"socket"`
	Rate   int    `json:"rate"`             // samples a second
	Silent int64  `json:"silent,omitempty"` // subframes that were silence, since the machine was too busy
}

// LTEUserStats are those of a link or User.
type LTEUserStats struct {
	Name string    `json:"user"`
	Link bool      `json:"link"`
	RNTI cell.RNTI `json:"rnti"`
	SINR float64   `json:"sinr_db"`
	// The rest is as in TruthLine.
	Physical unit.Rate  `json:"physical_bps"`
	Fair     unit.Rate  `json:"fair_bps"`
	Waiting  unit.Bytes `json:"waiting"`
	// Delivered is without headers of the network, as the others are not.
	Delivered unit.Bytes `json:"delivered"`
	Carriers  int        `json:"carriers"`
}

// TruthLine is what a network knows of one user in one subframe (lte.Truth), to
// compare estimates with.
type TruthLine struct {
	Number   int64      `json:"number"`
	User     string     `json:"user"`
	RNTI     cell.RNTI  `json:"rnti"`
	Physical unit.Rate  `json:"physical_bps"`
	Fair     unit.Rate  `json:"fair_bps"`
	Waiting  unit.Bytes `json:"waiting"` // in its queue and on the air
	// Delivered is what has come over since the lab came up.
	Delivered unit.Bytes `json:"delivered"`
	Carriers  int        `json:"carriers"`
}

func newLineStats(l *shaper.Line) (s LineStats) {
	set := l.Setting()
	s = LineStats{Rate: set.Rate, Delay: set.Delay, Jitter: set.Jitter, Loss: set.Loss, Reorder: set.Reorder, Queue: set.Queue, Outage: set.Outage, Count: l.Counters}
	if set.Rate == shaper.Unlimited {
		s.Rate = -1
	}
	s.Queued, s.InFlight = l.Pending()
	return s
}

// daemonClient speaks to a daemon.
type daemonClient struct {
	conn net.Conn
	enc  *gob.Encoder
	dec  *gob.Decoder
}

func dialDaemon(socket string) (*daemonClient, error) {
	conn, err := net.DialTimeout("unix", socket, time.Second)
	if err != nil {
		return nil, err
	}
	return &daemonClient{conn, gob.NewEncoder(conn), gob.NewDecoder(conn)}, nil
}

// requestTimeout is how long a daemon may take to answer.
const requestTimeout = 30 * time.Second

func (c *daemonClient) sendRequest(r request) (a response, err error) {
	_ = c.conn.SetDeadline(time.Now().Add(requestTimeout)) // fails for no open socket
	if err := c.enc.Encode(r); err != nil {
		return a, fmt.Errorf("the lab's daemon does not answer: %w", err)
	}
	if err := c.dec.Decode(&a); err != nil {
		return a, fmt.Errorf("the lab's daemon does not answer: %w", err)
	}
	if a.Error != "" {
		return a, fmt.Errorf("%s", a.Error)
	}
	return a, nil
}
