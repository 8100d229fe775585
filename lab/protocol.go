// SPDX-License-Identifier: Apache-2.0

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

// The daemon listens on a unix socket in the lab's runtime directory. Each connection carries
// requests and responses in turn, in gob encoding. Both ends are the same binary.

// daemonSpec is the first line on the daemon's standard input.
type daemonSpec struct {
	Name         string    `json:"name"`
	Dir          string    `json:"dir"` // runtime directory, exists
	Pcap         string    `json:"pcap,omitempty"`
	PcapBytes    int       `json:"pcap_bytes,omitempty"`
	EndWithInput bool      `json:"tied,omitempty"` // end at the end of standard input
	Topology     *Topology `json:"topology"`
}

// request is a request to the daemon.
type request struct {
	Op    string // hello, set, start, rewind, stats, traffic, down
	Link  string
	Dir   string
	Props []string // PROPERTY=VALUE
	Reset bool
	Into  time.Duration // for start
}

// response is the daemon's answer to a request.
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
	NS       map[string]int // node → the daemon's descriptor of its namespace
	Topology *Topology
	Warnings []string
}

// Stats are the counters of a lab. Counters of links begin when the lab comes up. Lateness,
// silence and delays begin at the last request with a reset.
type Stats struct {
	Links    []LinkStats `json:"links"`
	Lateness Lateness    `json:"lateness"`
	// Silence is the longest time between two packets on any shaped link, in the same period.
	Silence  time.Duration `json:"silence_ns"`
	Realtime bool          `json:"realtime"` // the emulator has real-time priority
	Playing  bool          `json:"playing"`  // schedules have been started
	// LTE are the mobile networks, by name.
	LTE []LTEStats `json:"lte,omitempty"`
	// PcapLost counts packets that are missing in the capture.
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

// LinkStats are the statistics of one link. Of a veth link only the counters Sent and Delivered are
// known, as its devices count them, with Ethernet headers.
type LinkStats struct {
	Name   string       `json:"link"`
	Ends   [2]string    `json:"ends"`
	Shaped bool         `json:"shaped"`
	Lines  [2]LineStats `json:"lines"` // up, down
}

// LineStats are the statistics of one direction of a link.
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

// LTEStats are the statistics of one network, as of its last subframe.
type LTEStats struct {
	Name string `json:"network"`
	// Messages and Truth are Unix stream sockets. A connection to Messages gets control messages
	// from then on, as a recording of package cell. A connection to Truth gets TruthLines as JSON.
	Messages  string `json:"messages"`
	Truth     string `json:"truth"`
	Number    int64  `json:"number"`              // of the next subframe
	Listeners int    `json:"listeners,omitempty"` // connected to both
	Dropped   int64  `json:"dropped,omitempty"`   // listeners that did not read
	// Missed counts subframes that listeners did not get because the machine was too busy.
	Missed int64          `json:"missed,omitempty"`
	Users  []LTEUserStats `json:"users"`
	// Samples are the samples of each carrier, if the topology asks for them.
	Samples []SamplesStats `json:"samples,omitempty"`
}

// SamplesStats are the statistics of the samples of one carrier.
type SamplesStats struct {
	// Socket is a Unix stream socket. A connection gets the carrier's samples from then on, as
	// pairs of 16-bit numbers.
	Socket string `json:"socket"`
	Rate   int    `json:"rate"`             // samples a second
	Silent int64  `json:"silent,omitempty"` // silent subframes because the machine was too busy
}

// LTEUserStats are the statistics of a link or User.
type LTEUserStats struct {
	Name string    `json:"user"`
	Link bool      `json:"link"`
	RNTI cell.RNTI `json:"rnti"`
	SINR float64   `json:"sinr_db"`
	// Recorded is the recorded rate of now, in place of SINR.
	Recorded *unit.Rate `json:"recorded_bps,omitempty"`
	// The rest is as in TruthLine.
	Physical unit.Rate  `json:"physical_bps"`
	Fair     unit.Rate  `json:"fair_bps"`
	Waiting  unit.Bytes `json:"waiting"`
	// Delivered excludes headers of the network, like the other counters.
	Delivered unit.Bytes `json:"delivered"`
	Carriers  int        `json:"carriers"`
}

// TruthLine is the ground truth about one user in one subframe (lte.Truth), to compare estimates
// with.
type TruthLine struct {
	Number   int64      `json:"number"`
	User     string     `json:"user"`
	RNTI     cell.RNTI  `json:"rnti"`
	Physical unit.Rate  `json:"physical_bps"`
	Fair     unit.Rate  `json:"fair_bps"`
	Waiting  unit.Bytes `json:"waiting"` // in its queue and on the air
	// Delivered counts bytes since the lab came up.
	Delivered unit.Bytes `json:"delivered"`
	Carriers  int        `json:"carriers"`
}

// newLineStats returns the statistics of a line, without delays.
func newLineStats(l *shaper.Line) (s LineStats) {
	set := l.Setting()
	s = LineStats{Rate: set.Rate, Delay: set.Delay, Jitter: set.Jitter, Loss: set.Loss, Reorder: set.Reorder,
		Queue: set.Queue, Outage: set.Outage, Count: l.Counters}
	if set.Rate == shaper.Unlimited {
		s.Rate = -1
	}
	s.Queued, s.InFlight = l.Pending()
	return s
}

// daemonClient is a connection to a daemon.
type daemonClient struct {
	conn net.Conn
	enc  *gob.Encoder
	dec  *gob.Decoder
}

// dialDaemon connects to the daemon at a socket.
func dialDaemon(socket string) (*daemonClient, error) {
	conn, err := net.DialTimeout("unix", socket, time.Second)
	if err != nil {
		return nil, err
	}
	return &daemonClient{conn, gob.NewEncoder(conn), gob.NewDecoder(conn)}, nil
}

// requestTimeout is how long a daemon may take to answer.
const requestTimeout = 30 * time.Second

// exchangeWithDaemon sends a request and returns the response.
func (c *daemonClient) exchangeWithDaemon(r request) (a response, err error) {
	_ = c.conn.SetDeadline(time.Now().Add(requestTimeout)) // cannot fail for an open socket
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
