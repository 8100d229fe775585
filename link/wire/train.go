// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"time"

	"mpbond/base/unit"
)

// Train, TRAIN, is one frame of a packet train: frames that leave at once, so that the time between
// their arrivals shows the rate of the slowest hop. The receiver answers the last one with RATE.
//
//	left | padding, to the end
type Train struct {
	Left    int // frames of the train that follow, less than MaxTrain
	Padding int // bytes, less than MaxTrainPadding
}

// Limits of a train.
const (
	MaxTrain        = 64
	MaxTrainPadding = 2048
)

// Type implements Frame.
func (Train) Type() Type { return TypeTrain }

// AppendPayload implements Frame.
func (f Train) AppendPayload(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(f.Left))
	return append(b, make([]byte, min(f.Padding, MaxTrainPadding-1))...)
}

// ParseTrain parses the payload of a TRAIN.
func ParseTrain(b []byte) (f Train, err error) {
	p := parser{b: b}
	left := p.readUvarint()
	p.bad = p.bad || left >= MaxTrain || len(p.b) >= MaxTrainPadding
	if !p.bad {
		f.Left, f.Padding, p.b = int(left), len(p.b), nil
	}
	return f, p.checkFrameEnd(TypeTrain)
}

// Rate, RATE, answers a packet train: the rate at which it arrived on a subflow, and the round trip
// of the subflow if its sender knows it.
//
//	subflow | rate in bit/s | round trip in µs, 0: unknown
type Rate struct {
	Subflow SubflowID
	Rate    unit.Rate
	RTT     time.Duration // at most an hour
}

// Type implements Frame.
func (Rate) Type() Type { return TypeRate }

// AppendPayload implements Frame.
func (f Rate) AppendPayload(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(f.Subflow))
	b = binary.AppendUvarint(b, uint64(max(f.Rate, 0)))
	return binary.AppendUvarint(b, uint64(max(f.RTT, 0)/time.Microsecond))
}

// ParseRate parses the payload of a RATE.
func ParseRate(b []byte) (f Rate, err error) {
	p := parser{b: b}
	f.Subflow = p.readSubflowID()
	rate, rtt := p.readUvarint(), p.readUvarint()
	p.bad = p.bad || rate > uint64(1000*unit.Gbps) || rtt > uint64(time.Hour/time.Microsecond)
	f.Rate, f.RTT = unit.Rate(rate), time.Duration(rtt)*time.Microsecond
	return f, p.checkFrameEnd(TypeRate)
}
