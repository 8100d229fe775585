// SPDX-License-Identifier: Apache-2.0

package estimate

import "math"

// lossMeter measures the share of packets that TCP sends again, from its counters. Later packets
// count more: after lossMemory of them, earlier ones count less than two fifths.
//
// The zero value is ready. Not safe for concurrent use.
type lossMeter struct {
	packets, retransmitted uint64 // counters at the last sample
	share                  float64
}

// lossMemory is in packets. Before as many were sent, the share is too low rather than too high:
// one lost packet says little.
const lossMemory = 500

// addLossSample adds a sample. Counters begin again when a pipe continues over another connection.
func (m *lossMeter) addLossSample(h Hop) {
	if h.Packets < m.packets || h.Retransmitted < m.retransmitted {
		m.packets, m.retransmitted = 0, 0
	}
	packets, again := float64(h.Packets-m.packets), float64(h.Retransmitted-m.retransmitted)
	m.packets, m.retransmitted = h.Packets, h.Retransmitted
	if packets > 0 {
		m.share += (min(again/packets, 1) - m.share) * -math.Expm1(-packets/lossMemory)
	}
}
