package sched

import (
	"time"

	"mpbond/base/unit"
	"mpbond/link/wire"
)

// Recall is bytes in flight that shall be given to other subflows as well.
type Recall struct {
	From  wire.SubflowID // 0: none
	Bytes unit.Bytes     // the newest ones in flight on it
	// Budgeted ones count in the ledger.
	Budgeted bool
}

// Recaller is a scheduler with a rule of its own for reinjection at the end of
// a transfer. The others have PaperRecall.
type Recaller interface {
	Recall(paths []Subflow, eta float64, so Ledger) Recall
}

// Ledger is what a bond has sent so far.
type Ledger struct {
	Given  unit.Bytes // stream bytes, by all subflows
	Copied unit.Bytes // by recalls that were Budgeted
}

// PaperRecall is the reinjection of the MPBond paper (MobiSys 2020, section
// 4.4). It is asked when nothing is left to schedule. When the greatest PAD, of
// bytes in flight, exceeds the least one by more than the share eta of it, the
// newest r = (maxPAD − minPAD)·Th bytes in flight on the slowest subflow, Th
// being its throughput, are recalled.
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

// fastestAndSlowest are the subflow of least PAD and that of greatest Tail among those
// with bytes in flight.
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

// Recall is auto's rule: the paper's, but what is recalled for a small gap, as
// stable links have at the end of each transfer, stays within an allowance: it
// saves a little time each time and costs bytes each time. Small is what does
// not last a round trip of the quickest subflow over empty queues: with those that
// a download builds it would be a tenth of a short one's time. What a helper has not
// delivered in time is no small gap: the estimates were wrong.
//
// Of r bytes the quickest subflow carries its share by throughput: it sends the newest
// ones while the slow one delivers the others, and both end together.
func (*auto) Recall(subflows []Subflow, eta float64, so Ledger) Recall {
	r := PaperRecall(subflows, eta, so)
	if r.From == 0 {
		return r
	}
	fast, slow := fastestAndSlowest(subflows)
	r.Bytes = throughputShare(r.Bytes, fast.Th, slow.Th)
	small := fast.MinRTT
	if so.Given < shortTransfer {
		small = max(small, earlyEstimateError)
	}
	if slow.Late || slow.Tail-fast.PAD > small {
		return r
	}
	r.Bytes, r.Budgeted = min(r.Bytes, so.copyAllowance()-so.Copied), true
	if r.Bytes < slow.MSS {
		return Recall{}
	}
	return r
}

// throughputShare returns a subflow's part of n bytes that it carries together with another one.
func throughputShare(n unit.Bytes, own, other unit.Rate) unit.Bytes {
	if other <= 0 {
		return n
	}
	return unit.Bytes(float64(n) * float64(own) / (float64(own) + float64(other)))
}

// copyAllowance is how much may be copied for small gaps.
func (l Ledger) copyAllowance() unit.Bytes {
	if l.Given < shortTransfer {
		return 0
	}
	return max(l.Given/copyDivisor, minCopyAllowance)
}

// Tuning of auto's end of a transfer.
const (
	// One byte in copyDivisor, or minCopyAllowance, may be copied. Of what is shorter
	// than tiny nothing: there a packet is more than that share.
	copyDivisor      = 100
	minCopyAllowance = 16 * unit.KB
	shortTransfer    = 128 * unit.KB
	// Estimates are this far off while that little was sent.
	earlyEstimateError = 200 * time.Millisecond
)
