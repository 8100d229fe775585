// SPDX-License-Identifier: Apache-2.0

// Package probe measures a subflow of a bond. It uses a stream to a reserved name, which the server
// answers itself. Both ends bind its bytes to one subflow. So it measures what apps get,
// including TLS, frames and a helper's relaying. It stands beside the data path: a primary or
// `mpbond doctor` asks, a server answers.
//
//	probe.go    the reserved names, requests and answers
//	bulk.go     transfer in one direction, and its rate
//	serve.go    the server's side
//	measure.go  the client's side
//	busy.go     processor load
//
// On the stream each line is one JSON object:
//
//	client                        server
//	  | -- Request, a line ----------> |
//	  | <--------------- About, a line |
//	  |  down: blocks <---------------|    up: blocks from the client
//	  |  an octet 01 for each block ->|    and octets 01 from the server
//	  | <-------------- Result, a line |
//
// A block is its length in 2 octets, big endian, and that many octets of any value. Length 0 ends
// the transfer.
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

// nameSuffix ends the reserved names. They never resolve (RFC 6761 section 6.4), so a server that
// does not know them reports an unknown name.
const nameSuffix = ".measure.mpbond.invalid"

// Dest returns the destination that measures a subflow.
func Dest(subflow uint32) string {
	return net.JoinHostPort(strconv.FormatUint(uint64(subflow), 10)+nameSuffix, "1")
}

// SubflowOf returns the subflow that a destination measures. ok reports whether dest is a result of
// Dest.
func SubflowOf(dest string) (subflow uint32, ok bool) {
	number, rest, _ := strings.Cut(dest, ".")
	n, err := strconv.ParseUint(number, 10, 32)
	return uint32(n), err == nil && n > 0 && "."+rest == nameSuffix+":1"
}

// Limits of one measurement. The server reduces requests that exceed them.
const (
	MaxBytes = 64 * unit.MB
	MaxTime  = 10 * time.Second
	maxLine  = 4 << 10
	maxBlock = 16 << 10
	// answerTimeout bounds everything except the transfer.
	answerTimeout = 5 * time.Second
)

// Directions of the transfer.
const (
	None = ""     // only About
	Down = "down" // towards the client
	Up   = "up"
)

// Request describes a measurement.
type Request struct {
	Direction string     `json:"direction,omitempty"`
	Bytes     unit.Bytes `json:"bytes,omitempty"` // maximum
	Ms        int64      `json:"ms,omitempty"`    // maximum
	// Resolve asks for further facts of the server: whether names resolve there, which may take
	// time, and reports left for the client.
	Resolve bool `json:"resolve,omitempty"`
}

func (a Request) clampedToLimits() Request {
	a.Bytes = min(max(a.Bytes, 0), MaxBytes)
	a.Ms = min(max(a.Ms, 0), MaxTime.Milliseconds())
	return a
}

// About is the server's information about itself and the subflow.
type About struct {
	Version string    `json:"version"` // version of mpbond
	Time    time.Time `json:"time"`
	// Seen is the address from which the subflow's TCP comes, as the server sees it: the primary,
	// the helper, or a NAT in front of it.
	Seen string `json:"seen"`
	IPv6 bool   `json:"ipv6"` // the server can reach IPv6 destinations
	// Names is why the server's resolver does not answer, if requested; "" if it answers.
	Names string `json:"names,omitempty"`
	// Copied reports that two instances of mpbond use the client's key at once. Reports were left
	// for the client. The server does not verify them.
	Copied  bool     `json:"copied,omitempty"`
	Reports []Report `json:"reports,omitempty"`
}

// Report is a report left at the server for the client.
type Report struct {
	Frame []byte  `json:"frame"` // payload of a wire.Report
	AgeS  float64 `json:"age_s"`
}

// DoctorDevice is the device name of subflows that `mpbond doctor` opens.
const DoctorDevice = "doctor"

// Result is the server's information after the transfer.
type Result struct {
	Bytes   unit.Bytes `json:"bytes"`    // received or sent
	RateBps unit.Rate  `json:"rate_bps"` // steady rate at which the server received
	Hop     *api.Hop   `json:"hop,omitempty"`
	// FarShare is the part of the time, from 0 to 1, in which bytes waited at a helper. If it is
	// large, the hop behind the helper, here the pipe, was the limit. With Down only.
	FarShare float64 `json:"far_share"`
	Busy     float64 `json:"busy"` // share of its processors' time, from 0 to 1
}

// FarWaitThreshold is how long bytes must wait at a helper for its far hop to count as the limit:
// longer than the turn of a segment, shorter than schedulers permit.
const FarWaitThreshold = 40 * time.Millisecond

func writeJSONLine(c net.Conn, v any) error {
	b, err := json.Marshal(v)
	if err == nil {
		_, err = c.Write(append(b, '\n'))
	}
	return err
}

// readJSONLine reads a line of JSON, of at most maxLine bytes, into a value.
func readJSONLine(r *bufio.Reader, into any) error {
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
