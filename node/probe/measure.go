// Package probe is how a lane of a bond is measured: over a stream to a
// reserved name, which the server answers itself instead of connecting it, and
// whose bytes both ends bind to one subflow. So what is measured is what apps
// get, TLS, frames and a helper's relay included. It stands beside the data path:
// a primary, or `mpbond doctor`, asks, a server answers.
//
//	measure.go  the name, what is asked and what is answered
//	bulk.go     bytes one way, and their rate
//	serve.go    the server's side
//	ask.go      the other
//
// On the stream, with every line one JSON object:
//
//	asker                          server
//	  | -- Ask, a line -------------> |
//	  | <--------------- About, a line |
//	  |  down: blocks <---------------|    up: blocks from the asker
//	  |  an octet 01 for each block ->|    and octets 01 from the server
//	  | <-------------- Result, a line |
//
// A block is its length in 2 octets, big endian, and so many octets of anything;
// length 0 is the last one.
package probe

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"mpbond/api"
	"mpbond/base/unit"
)

// nameSuffix of the reserved names. None ever resolves (RFC 6761 section 6.4), so that
// a server which does not know of them says that there is no such name.
const nameSuffix = ".measure.mpbond.invalid"

// Dest is the destination that measures a subflow.
func Dest(path uint32) string {
	return net.JoinHostPort(strconv.FormatUint(uint64(path), 10)+nameSuffix, "1")
}

// SubflowOf is the subflow that a destination measures; ok tells whether it is one of
// Dest.
func SubflowOf(dest string) (path uint32, ok bool) {
	number, rest, _ := strings.Cut(dest, ".")
	n, err := strconv.ParseUint(number, 10, 32)
	return uint32(n), err == nil && n > 0 && "."+rest == nameSuffix+":1"
}

// Limits of one measurement. The server cuts what asks for more.
const (
	MaxBytes = 64 * unit.MB
	MaxTime  = 10 * time.Second
	maxLine  = 4 << 10
	maxBlock = 16 << 10
	// answerTimeout is what everything but the bulk may take.
	answerTimeout = 5 * time.Second
)

// Directions of bytes.
const (
	None = ""     // only what About tells
	Down = "down" // to the asker
	Up   = "up"
)

// Request is what is asked.
type Request struct {
	Direction string     `json:"direction,omitempty"`
	Bytes     unit.Bytes `json:"bytes,omitempty"` // at most
	Ms        int64      `json:"ms,omitempty"`    // at most
	// Resolve asks for what the server knows besides: whether names resolve there, which
	// may take time, and what was left for the asker.
	Resolve bool `json:"resolve,omitempty"`
}

func (a Request) clamped() Request {
	a.Bytes = min(max(a.Bytes, 0), MaxBytes)
	a.Ms = min(max(a.Ms, 0), MaxTime.Milliseconds())
	return a
}

// About is what the server tells of itself and of the subflow.
type About struct {
	Version string    `json:"version"` // of mpbond
	Time    time.Time `json:"time"`
	// Seen is where the subflow's TCP comes from, as the server sees it: the
	// primary, or the helper, or a NAT before it.
	Seen string `json:"seen"`
	IPv6 bool   `json:"ipv6"` // it has a way to IPv6 destinations
	// Names tells, if it was asked, whether the server's resolver answers: "" if
	// so.
	Names string `json:"names,omitempty"`
	// Copied tells that two mpbond at once use the asker's key. Reports are those that
	// were left for the asker; the server does not vouch for them.
	Copied  bool     `json:"copied,omitempty"`
	Reports []Report `json:"reports,omitempty"`
}

// Report is what somebody has left at the server for the asker.
type Report struct {
	Frame []byte  `json:"frame"` // payload of a wire.Report
	AgeS  float64 `json:"age_s"`
}

// DoctorDevice is the device name of subflows of `mpbond doctor` itself.
const DoctorDevice = "doctor"

// Result is what the server tells at the end.
type Result struct {
	Bytes   unit.Bytes `json:"bytes"`    // that it received or sent
	RateBps unit.Rate  `json:"rate_bps"` // that it received at, once it was steady
	Hop     *api.Hop   `json:"hop,omitempty"`
	// FarShare is the part of the time, 0 to 1, in which bytes waited at a helper:
	// then the hop behind it, here the pipe, was the limit. Of Down only.
	FarShare float64 `json:"far_share"`
	Busy     float64 `json:"busy"` // part of its processors' time, 0 to 1
}

// FarWaitThreshold is how long bytes must wait at a helper for its far hop to count as the
// limit: more than a segment's turn, less than what a scheduler lets wait.
const FarWaitThreshold = 40 * time.Millisecond

func writeLine(c net.Conn, v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		_, err = c.Write(append(b, '\n'))
	}
	return err
}

func readLine(r *bufio.Reader, into any) error {
	var line []byte
	for len(line) < maxLine {
		b, err := r.ReadByte()
		if err != nil {
			return err
		}
		if b == '\n' {
			return json.Unmarshal(line, into)
		}
		line = append(line, b)
	}
	return fmt.Errorf("a line of over %d bytes", maxLine)
}
