// SPDX-License-Identifier: Apache-2.0

// Package tcpinfo turns what a kernel reports about a TCP connection into the sample that
// estimators use, and derives settings from it. Package tcp fills Info from TCP_INFO; the virtual
// networks of the lab fill it from a model of TCP. So schedulers see the same figures in both. It
// is pure.
package tcpinfo

import (
	"math"
	"time"

	"mpbond/base/unit"
	"mpbond/link/estimate"
)

// NoMinRTT is the kernel's value of MinRTT before the first measurement.
const NoMinRTT = math.MaxUint32

// Info has the fields of struct tcp_info (linux/tcp.h) that estimates use, in its units: times in
// microseconds, DeliveryRate in bytes per second, windows and counts in packets.
type Info struct {
	RTT, RTTVar, MinRTT     uint32
	DeliveryRate            uint64
	DeliveryRateAppLimited  bool
	CongestionWindow        uint32
	SlowStartThreshold      uint32
	MSS                     uint32
	Sacked                  uint32
	InFlight                uint32 // packets (tcp_packets_in_flight)
	Unsent                  uint32 // bytes that were never sent
	Queue                   uint32 // bytes that are not acknowledged in order: SIOCOUTQ
	BytesAcked              uint64
	BytesReceived           uint64
	PathMTU                 uint32
	Packets, Retransmission uint32 // data packets sent, and those of them sent again
}

// Hop returns the sample. Acked includes what the kernel counts in BytesAcked, also a SYN.
func (i *Info) Hop() estimate.Hop {
	unsent := min(i.Unsent, i.Queue)
	// Data beyond a gap has arrived, though TCP does not count it as acknowledged. Without it a
	// single loss would look like a stall.
	sacked := min(unit.Bytes(i.Sacked)*unit.Bytes(i.MSS), unit.Bytes(i.Queue-unsent))
	h := estimate.Hop{
		SRTT:          time.Duration(i.RTT) * time.Microsecond,
		RTTVar:        time.Duration(i.RTTVar) * time.Microsecond,
		Rate:          unit.Rate(min(i.DeliveryRate, math.MaxInt64/8) * 8),
		AppLimited:    i.DeliveryRateAppLimited,
		Cwnd:          unit.Bytes(i.CongestionWindow) * unit.Bytes(i.MSS),
		SlowStart:     i.CongestionWindow < i.SlowStartThreshold,
		MSS:           unit.Bytes(i.MSS),
		Queue:         unit.Bytes(i.Queue),
		Unsent:        unit.Bytes(unsent),
		InFlight:      uint64(i.InFlight),
		Acked:         i.BytesAcked + uint64(max(sacked, 0)),
		Received:      i.BytesReceived,
		PathMTU:       unit.Bytes(i.PathMTU),
		Packets:       uint64(i.Packets),
		Retransmitted: uint64(i.Retransmission),
	}
	if i.MinRTT != NoMinRTT {
		h.MinRTT = time.Duration(i.MinRTT) * time.Microsecond
	}
	return h
}

// Bounds of the low-water mark of unsent bytes, and the time that it covers.
const (
	lowatTime          = 2 * time.Millisecond
	minLowat, maxLowat = 16 * unit.KB, 512 * unit.KB
)

// AdaptLowat returns the low-water mark of unsent bytes for a connection of a delivery rate: about
// two milliseconds of it. So the writer wakes in time on a fast link, and on a slow one each
// segment is decided as late as possible. changed is false while the present mark is near enough.
func AdaptLowat(present unit.Bytes, rate unit.Rate) (mark unit.Bytes, changed bool) {
	if rate <= 0 {
		return present, false
	}
	want := min(max(rate.Bytes(lowatTime), minLowat), maxLowat)
	if want > 2*present || want < present/4 {
		return want, true
	}
	return present, false
}
