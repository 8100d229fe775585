// SPDX-License-Identifier: Apache-2.0

package sched

import "mpbond/base/unit"

// minRTTWindows is minRTT that uses a helped subflow only while both of its windows have room, that
// of the sending hop and that of the pipe. It is a strawman of MPBond (MobiSys 2020, section 4).
// The helper never holds more than the pipe's window, so the pipe runs dry whenever the HS-path
// falters. It exists for comparison.
type minRTTWindows struct{ view []Subflow }

func (*minRTTWindows) Name() string { return "minrtt-windows" }

func (m *minRTTWindows) Pick(subflows []Subflow, _ unit.Bytes) Decision {
	m.view = append(m.view[:0], subflows...)
	full := false
	for i := range m.view {
		p := &m.view[i]
		if p.Idle && (isWindowFull(p.Flight, p.Cwnd) || p.Helped && isWindowFull(p.FarFlight, p.FarCwnd)) {
			p.Idle, full = false, true
		}
	}
	t := leastIdleSubflow(m.view, srttOf)
	switch {
	case t != nil:
		return Decision{Subflow: t.ID, Reason: LeastRTT}
	case full:
		return Decision{Wait: true, Reason: WindowFull}
	}
	return Decision{Wait: true, Reason: NoIdleSubflow}
}

// isWindowFull reports whether a known window has no room.
func isWindowFull(flight, window unit.Bytes) bool { return window > 0 && flight >= window }
