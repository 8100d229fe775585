// SPDX-License-Identifier: Apache-2.0

package sched

import (
	"time"

	"mpbond/base/unit"
)

// pams is the pipe-aware multipath scheduler (MPBond, MobiSys 2020, section 4.3). It uses the idle
// subflow of least PAD, unless the faster busy subflows together deliver all remaining bytes before
// it would.
type pams struct{}

func (pams) Name() string { return "pams" }

func (pams) Pick(subflows []Subflow, remaining unit.Bytes) Decision {
	return pickUnlessFaster(subflows, remaining, padOf, func(p *Subflow, by time.Duration) unit.Bytes {
		return p.Th.Bytes(by - p.PAD)
	})
}

// pickUnlessFaster uses the idle subflow that delivers earliest, unless busy ones deliver all
// remaining bytes before it does. delivers returns how long a subflow takes to deliver a byte given
// to it now, and carried how many bytes it carries within a time.
func pickUnlessFaster(subflows []Subflow, remaining unit.Bytes, delivers func(*Subflow) time.Duration,
	carried func(*Subflow, time.Duration) unit.Bytes) Decision {
	t := leastIdleSubflow(subflows, delivers)
	if t == nil {
		return Decision{Wait: true, Reason: NoIdleSubflow}
	}
	if len(subflows) == 1 {
		return Decision{Subflow: t.ID, Reason: OnlySubflow}
	}
	var diff unit.Bytes
	faster := false
	for i := range subflows {
		p := &subflows[i]
		if p.Idle {
			continue
		}
		if delivers(p) < delivers(t) {
			faster = true
			diff += carried(p, delivers(t))
		}
	}
	switch {
	case !faster:
		return Decision{Subflow: t.ID, Reason: Fastest}
	case diff > remaining:
		return Decision{Wait: true, Reason: FasterIsSoon, Diff: diff}
	}
	return Decision{Subflow: t.ID, Reason: FastestIdle, Diff: diff}
}
