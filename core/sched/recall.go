// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// Recall names bytes in flight to be sent over other subflows too.
type Recall struct {
	From   wire.SubflowID // 0: none
	Bytes  unit.Bytes     // the newest ones in flight on From
	Budget RecallBudget
}

// RecallBudget says what bounds recalled bytes, each by an allowance of the bond.
type RecallBudget uint8

// Budgets. A helper that is late may hold all that it got: its bytes are recalled without a bound.
const (
	Unlimited  RecallBudget = iota
	SmallGaps               // gaps below one round trip
	LateDirect              // direct subflows whose acknowledgements are late
)

// Recaller is a scheduler with its own rule for reinjection at the end of a transfer. Other
// schedulers use PaperRecall.
type Recaller interface {
	Recall(subflows []Subflow, eta float64, sent Ledger) Recall
}

// MessageCopier is a scheduler that wants messages of one packet, such as requests and short
// answers, to go over a second subflow too, within a budget of the bond.
type MessageCopier interface {
	// CopiesMessages only marks the scheduler.
	CopiesMessages()
}

// Ledger counts the stream bytes that a bond has sent so far.
type Ledger struct {
	Given unit.Bytes // over all subflows
	// SmallGapRecalls were recalled for gaps below one round trip, LateRecalls from direct subflows
	// whose acknowledgements are late. Both have an allowance.
	SmallGapRecalls, LateRecalls unit.Bytes
}

// CountRecalled counts n bytes that were recalled within a budget.
func (l *Ledger) CountRecalled(b RecallBudget, n unit.Bytes) {
	switch b {
	case SmallGaps:
		l.SmallGapRecalls += n
	case LateDirect:
		l.LateRecalls += n
	}
}

// PaperRecall is the reinjection rule of the MPBond paper (MobiSys 2020, section 4.4). The caller
// asks it when no bytes can be scheduled. If the greatest PAD of bytes in flight exceeds the
// least PAD by more than the share eta of the latter, it recalls the newest r = (maxPAD −
// minPAD)·Th bytes in flight on the slowest subflow, where Th is the throughput of that subflow.
func PaperRecall(subflows []Subflow, eta float64, _ Ledger) Recall {
	fast, slow := fastestAndSlowest(subflows)
	if slow == nil || fast == slow {
		return Recall{}
	}
	gap := slow.Tail - fast.PAD
	if float64(gap) <= eta*float64(fast.PAD) {
		return Recall{}
	}
	return Recall{From: slow.ID, Bytes: slow.Th.Bytes(gap)}
}

// fastestAndSlowest returns the subflow of least PAD and, among those with bytes in flight, the one
// of greatest Tail.
func fastestAndSlowest(subflows []Subflow) (fast, slow *Subflow) {
	for i := range subflows {
		p := &subflows[i]
		if fast == nil || p.PAD < fast.PAD {
			fast = p
		}
		if p.InFlight > 0 && (slow == nil || p.Tail > slow.Tail) {
			slow = p
		}
	}
	return fast, slow
}

// Recall is auto's rule. It is the paper's rule with a limit: bytes recalled for a small gap stay
// within an allowance. Stable links have such a gap at the end of each transfer, where a recall
// saves little time and costs bytes each time. A gap is small if it is at most one round trip of
// the fastest subflow over empty queues. With the queues of a download the round trip would be a
// tenth of the duration of a short one. A subflow that is late is no small gap: the estimates were
// wrong. Of a direct one the other end may delay acknowledgements as it likes, so an allowance bounds
// what is recalled for that too.
//
// Of r bytes the fastest subflow gets its share by throughput. It sends the newest bytes while the
// slow one delivers the others, and both finish together.
func (a *auto) Recall(subflows []Subflow, eta float64, sent Ledger) Recall {
	a.view = append(a.view[:0], subflows...)
	for i := range a.view {
		p := &a.view[i]
		p.PAD += p.LateBy
		p.Tail = max(p.Tail, p.LateBy)
	}
	r := PaperRecall(a.view, eta, sent)
	if r.From == 0 {
		return r
	}
	fast, slow := fastestAndSlowest(a.view)
	r.Bytes = throughputShare(r.Bytes, fast.Th, slow.Th)
	small := fast.MinRTT
	if sent.Given < shortTransfer {
		small = max(small, earlyEstimateError)
	}
	switch gap := slow.Tail - fast.PAD; {
	case slow.IsAckLate || gap-slow.LateBy > small:
		return r
	case slow.LateBy > 0:
		r.Budget = LateDirect
	default:
		r.Budget = SmallGaps
	}
	if r.Bytes = min(r.Bytes, sent.allowance(r.Budget)); r.Bytes < slow.MSS {
		return Recall{}
	}
	return r
}

// throughputShare returns the part of n bytes for a subflow of throughput own that shares them with
// one of throughput other.
func throughputShare(n unit.Bytes, own, other unit.Rate) unit.Bytes {
	if other <= 0 {
		return n
	}
	return unit.Bytes(float64(n) * float64(own) / (float64(own) + float64(other)))
}

// allowance returns how many more bytes may be recalled within a budget.
func (l Ledger) allowance(b RecallBudget) unit.Bytes {
	if b == LateDirect {
		return l.Given/lateDivisor + shortTransfer - l.LateRecalls
	}
	return l.Given/wasteDivisor - l.SmallGapRecalls
}

// CopiesMessages implements MessageCopier.
func (*auto) CopiesMessages() {}

// Estimates may be wrong by earlyEstimateError until shortTransfer bytes were sent.
const (
	shortTransfer      = 128 * unit.KB
	earlyEstimateError = 200 * time.Millisecond
)
