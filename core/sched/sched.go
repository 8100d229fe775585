// SPDX-License-Identifier: Apache-2.0

// Package sched decides which subflow carries the next bytes. Its inputs come from package
// estimate; package bond turns its decisions into segments. It uses plain values and holds no
// clock, so the same scheduler runs live, in virtual time, and offline on a recorded trace.
package sched

import (
	"fmt"
	"sort"
	"strings"
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// Subflow is a subflow as a scheduler sees it.
type Subflow struct {
	ID wire.SubflowID
	// Idle reports whether the subflow can take a segment now: its socket is writable and no
	// segment is being written.
	Idle bool
	// Doubtful reports that its TCP has had no acknowledgement for half of the time after which the
	// subflow counts as silent.
	Doubtful bool
	PAD      time.Duration // predicted delivery time of a byte given to it now
	// Forecast is the time until a packet given to it now has arrived, predicted segment by
	// segment. Unlike PAD it knows that a window in slow start grows. HalfArrives is the time until
	// half of the bytes in flight have arrived.
	Forecast, HalfArrives time.Duration
	// PastPAD is PAD with the last measured delay of the helper's buffer instead of the predicted
	// one. For a direct subflow it equals PAD.
	PastPAD time.Duration
	// Tail is the predicted delivery time of its newest byte in flight that no other subflow
	// carries. LateBy is how late the acknowledgement of the oldest byte of a direct subflow is, which
	// PAD and Tail do not include. Both are set for Recall only.
	Tail, LateBy time.Duration
	FarQueueTime time.Duration // how long a byte given to it now will wait at the helper
	// FallenQueueTime is how long a byte given to it now will wait before a local hop that has lately
	// become less than half as fast; 0 if it has not.
	FallenQueueTime time.Duration
	// ExpectedStall is by how much a stall that is forecast, as in a handoff of its link, delays a byte
	// given to it now, on average: the probability of the stall times its usual length.
	ExpectedStall time.Duration
	SRTT          time.Duration // of the local hop, not end to end
	// MinRTT is the end-to-end round trip without queues at the sender. The part of a far hop is
	// what the helper reports.
	MinRTT time.Duration
	Th     unit.Rate // end to end
	// DoublingTime is the round trip in which Th may still double; 0 once it was seen at its limit.
	// Ceiling bounds this growth; 0 is no bound.
	DoublingTime time.Duration
	Ceiling      unit.Rate
	Helped       bool
	// TimeToAck is the time until the sender knows whether a byte given to a helped subflow now has
	// arrived in time. IsAckLate reports that bytes on it did not. Acked counts the bytes ever
	// acknowledged on it.
	TimeToAck time.Duration
	IsAckLate bool
	Acked     unit.Bytes

	RTTVar   time.Duration // mean deviation of SRTT
	MSS      unit.Bytes    // of the local hop
	Given    unit.Bytes    // stream bytes given to it so far
	InFlight unit.Bytes    // sent and not known to have arrived, over all hops
	// Cwnd is the congestion window of the local hop and Flight its bytes in flight. For a helped
	// subflow, FarCwnd estimates the window of the far hop, and FarFlight the bytes that have left
	// the local hop and have not arrived, those in the helper's buffer included. An unknown window
	// is 0.
	Cwnd, Flight       unit.Bytes
	FarCwnd, FarFlight unit.Bytes
}

// Window describes the send window of the stream that is scheduled next.
type Window struct {
	Size unit.Bytes // bound on bytes in flight over all subflows
	// Room is how many bytes of the window are still to be sent, times the number of streams that
	// take turns. It may exceed Size.
	Room    unit.Bytes
	Blocked uint64 // how often windows of this bond's streams blocked sending
	// SourceIsLimit reports that more bytes may wait at a helper: the source has ended, or is
	// slower than the subflows and leaves a quarter of the meta buffer empty, and no subflow
	// carries low-latency data.
	SourceIsLimit bool
	// BusyFor is how long the stream has had bytes to send, short pauses included.
	BusyFor time.Duration
}

// WindowAware is a scheduler that uses the send window of the stream that is scheduled next. The
// bond passes it before each Pick.
type WindowAware interface {
	ObserveWindow(w Window, now time.Time)
}

// Reason says why a decision was taken. String explains it in words.
type Reason uint8

// Reasons.
const (
	NoIdleSubflow  Reason = iota // every subflow is busy
	OnlySubflow                  // no other subflow may carry it
	Fastest                      // the target delivers before all others
	FastestIdle                  // the target delivers before the other idle ones; a faster one is busy
	FasterIsSoon                 // wait: faster busy subflows carry the rest, or what the window permits, sooner
	LeastRTT                     // least round-trip time of the idle ones
	NextInTurn                   // round robin
	BudgetSpent                  // wait: the idle subflows may hold no more now
	NotTrusted                   // wait: helpers of the idle subflows are not trusted with more now
	WindowFull                   // wait: no idle subflow has room in all its windows
	BehindShare                  // furthest behind its share of the bytes
	NotItsTurn                   // wait: the subflow furthest behind its share is busy
	WouldBlock                   // wait: a slower subflow's bytes would fill the send window
	OnEverySubflow               // each subflow carries every byte; this one is first
	reasonCount                  // number of reasons
)

var reasonTexts = [reasonCount]string{
	NoIdleSubflow:  "every subflow is busy",
	OnlySubflow:    "the only one that may carry it now",
	Fastest:        "delivers first",
	FastestIdle:    "delivers first of the idle ones; a faster one is busy",
	FasterIsSoon:   "waits: faster subflows carry the rest, or fill the window, sooner",
	LeastRTT:       "least RTT of the idle ones",
	NextInTurn:     "next in turn",
	BudgetSpent:    "waits: the idle subflows may hold no more now",
	NotTrusted:     "waits: the idle helpers are not trusted with more now",
	WindowFull:     "waits: no idle subflow has room in all its windows",
	BehindShare:    "furthest behind its share",
	NotItsTurn:     "waits: the one furthest behind its share is busy",
	WouldBlock:     "waits: a slower subflow would block the send window",
	OnEverySubflow: "goes over every subflow, this one first",
}

func (r Reason) String() string {
	if int(r) < len(reasonTexts) {
		return reasonTexts[r]
	}
	return fmt.Sprintf("reason %d", uint8(r))
}

// Decision is a choice and its reason. Subflow is valid unless Wait is set.
type Decision struct {
	Wait    bool
	Subflow wire.SubflowID
	Reason  Reason
	// Diff is how many bytes faster busy subflows can take before the target would deliver (PAMS).
	Diff unit.Bytes
	// Copy asks to send a copy of the segment over each other subflow.
	Copy bool
}

// Scheduler picks a subflow for the next segment. Implementations may keep state between calls, but
// no reference to subflows. They need not be safe for concurrent use.
type Scheduler interface {
	// Name returns the name that New knows the scheduler by.
	Name() string
	// Pick decides for the stream whose turn is next. remaining is how many bytes are sent in all
	// until the last byte of that stream. subflows holds those that the stream may use now, in a
	// stable order.
	Pick(subflows []Subflow, remaining unit.Bytes) Decision
}

var constructors = map[string]func() Scheduler{
	"auto":           func() Scheduler { return &auto{} },
	"blest":          func() Scheduler { return &blest{} },
	"ecf":            func() Scheduler { return &ecf{} },
	"minpad":         func() Scheduler { return minPAD{} },
	"minrtt":         func() Scheduler { return minRTT{} },
	"minrtt-windows": func() Scheduler { return &minRTTWindows{} },
	"pams":           func() Scheduler { return pams{} },
	"pams-measured":  func() Scheduler { return &measuredPAMS{} },
	"ratio":          func() Scheduler { return &ratio{name: "ratio", p: 0.5} },
	"redundant":      func() Scheduler { return Redundant },
	"roundrobin":     func() Scheduler { return &roundRobin{} },
}

// Default is the scheduler used when none is named.
const Default = "auto"

// Names returns the names that New knows, sorted. A share may follow "ratio", as in "ratio:0.6".
func Names() []string {
	names := make([]string, 0, len(constructors))
	for n := range constructors {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// New returns the scheduler of that name. An empty name means Default.
func New(name string) (Scheduler, error) {
	if name == "" {
		name = Default
	}
	name = strings.ToLower(name)
	if share, ok := strings.CutPrefix(name, "ratio:"); ok {
		return newRatioScheduler(name, share)
	}
	construct, ok := constructors[name]
	if !ok {
		return nil, fmt.Errorf("unknown scheduler %q: use one of %s", name, strings.Join(Names(), ", "))
	}
	return construct(), nil
}

// leastIdleSubflow returns the idle subflow of least key, or nil.
func leastIdleSubflow(subflows []Subflow, key func(*Subflow) time.Duration) *Subflow {
	var best *Subflow
	for i := range subflows {
		if p := &subflows[i]; p.Idle && (best == nil || key(p) < key(best)) {
			best = p
		}
	}
	return best
}

func padOf(p *Subflow) time.Duration      { return p.PAD }
func forecastOf(p *Subflow) time.Duration { return p.Forecast }
func srttOf(p *Subflow) time.Duration     { return p.SRTT }
