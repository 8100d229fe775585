// Package sched decides which subflow carries the next bytes. It stands
// between the numbers of package estimate and the segments of package bond,
// sees plain values and keeps no time: the same scheduler runs live, in
// virtual time, and offline on a recorded trace.
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
	// Idle tells that the subflow can take a segment now: its socket is
	// writable and nothing is being written to it.
	Idle bool
	// Doubtful tells that its TCP has had no acknowledgement for half as long as
	// makes it silent.
	Doubtful bool
	PAD      time.Duration // predicted delivery time of a byte given to it now
	// PastPAD is PAD with what was last measured of the helper's buffer instead of
	// what is predicted; of a direct subflow it is PAD.
	PastPAD time.Duration
	// Tail is that of the newest of its bytes in flight that no other subflow
	// carries as well; set for Recall only.
	Tail    time.Duration
	FarWait time.Duration // the part of PAD that is spent in the far hop's queue
	SRTT    time.Duration // of the sender's own hop
	// MinRTT is the round trip end to end without what waits in queues, as far as
	// it is known.
	MinRTT time.Duration
	Th     unit.Rate // end to end

	Helped bool
	// Confirm is how long it takes until it is known whether a byte given to a helped
	// subflow now arrives in time. Late reports that bytes on it have not. Acked is what
	// has ever arrived by it.
	Confirm time.Duration
	Late    bool
	Acked   unit.Bytes

	RTTVar   time.Duration // mean deviation of SRTT
	MSS      unit.Bytes    // of the sender's own hop
	Given    unit.Bytes    // stream bytes given to it so far
	InFlight unit.Bytes    // sent and not known to be at the far end, all hops
	// Cwnd is the congestion window of the sender's own hop, Flight what is in
	// use of it; FarCwnd and FarFlight are those of a helped subflow's far hop,
	// reckoned. A window that is not known is 0.
	Cwnd, Flight       unit.Bytes
	FarCwnd, FarFlight unit.Bytes
}

// Window is what the stream that is served next may send, and has.
type Window struct {
	Size    unit.Bytes // what may be in flight by all subflows together
	Blocked uint64     // how often the windows of this bond's streams kept it from sending
	// NoMoreData tells that the stream's source is not ahead of it, so that nothing
	// follows what remains as far as can be seen, and that nothing urgent is
	// under way beside it.
	NoMoreData bool
}

// WindowAware schedulers are told about the stream that is served next before
// each Pick.
type WindowAware interface {
	ObserveWindow(w Window, now time.Time)
}

// Reason says why a decision was taken. String explains it to people.
type Reason uint8

// Reasons.
const (
	NoIdleSubflow  Reason = iota // every subflow is busy: nothing to decide
	OnlySubflow                  // there is one subflow
	LeastPAD                     // the target has the least PAD of all
	LeastIdlePAD                 // a busy subflow is quicker, but cannot take all the rest meanwhile
	FasterIsSoon                 // wait: quicker busy subflows deliver the rest before the target would
	LeastRTT                     // least round-trip time of the idle ones
	NextInTurn                   // round robin
	BudgetSpent                  // wait: the idle subflows have enough waiting
	WindowFull                   // wait: no idle subflow has room in all its windows
	BehindShare                  // furthest behind its share of the bytes
	NotItsTurn                   // wait: the one furthest behind its share is busy
	WouldBlock                   // wait: a slower subflow's bytes would fill the send window
	OnEverySubflow               // each subflow carries every byte; this one is first
	reasonCount                  // not a reason: keeps the texts complete
)

var reasonTexts = [reasonCount]string{
	NoIdleSubflow:  "every subflow is busy",
	OnlySubflow:    "the only subflow",
	LeastPAD:       "least PAD",
	LeastIdlePAD:   "least PAD of the idle; the quicker ones cannot take all the rest",
	FasterIsSoon:   "waits: quicker subflows deliver the rest sooner",
	LeastRTT:       "least RTT of the idle",
	NextInTurn:     "next in turn",
	BudgetSpent:    "waits: the idle subflows have enough queued",
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

// Decision is a choice and why it was taken. Path is meaningful unless Wait.
type Decision struct {
	Wait    bool
	Subflow wire.SubflowID
	Reason  Reason
	// Diff is what quicker busy subflows can take before the target would
	// deliver, for PAMS.
	Diff unit.Bytes
	// Copy asks for a copy of the segment on each other subflow.
	Copy bool
}

// Scheduler picks a subflow for the next segment. Implementations may keep
// state between calls but no reference to paths; they are used by one
// goroutine at a time.
type Scheduler interface {
	// Name is what users choose it by.
	Name() string
	// Pick decides for a bond that has remaining bytes in its meta buffers.
	// paths holds every usable subflow in a stable order.
	Pick(paths []Subflow, remaining unit.Bytes) Decision
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

// Names lists the schedulers that New knows, sorted. ratio may be followed by
// a share, as in ratio:0.6.
func Names() []string {
	names := make([]string, 0, len(constructors))
	for n := range constructors {
		names = append(names, n)
	}
	sort.Strings(names)
	return names
}

// New makes a scheduler by name; an empty name means Default.
func New(name string) (Scheduler, error) {
	if name == "" {
		name = Default
	}
	name = strings.ToLower(name)
	if share, ok := strings.CutPrefix(name, "ratio:"); ok {
		return newRatio(name, share)
	}
	mk, ok := constructors[name]
	if !ok {
		return nil, fmt.Errorf("no scheduler is called %q (there are: %s)", name, strings.Join(Names(), ", "))
	}
	return mk(), nil
}

// leastIdle returns the idle path for which key is least, or nil.
func leastIdle(subflows []Subflow, key func(*Subflow) time.Duration) *Subflow {
	var best *Subflow
	for i := range subflows {
		if p := &subflows[i]; p.Idle && (best == nil || key(p) < key(best)) {
			best = p
		}
	}
	return best
}

func padOf(p *Subflow) time.Duration { return p.PAD }
func rttOf(p *Subflow) time.Duration { return p.SRTT }
