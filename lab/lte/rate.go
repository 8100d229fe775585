// SPDX-License-Identifier: Apache-2.0

package lte

import (
	"mpbond/base/unit"
	"mpbond/pbe/lte/tbs"
)

// cqiThresholds are the minimum SINR in dB at which a CQI has one wrong block in ten in additive
// noise. Simulated by Mehlführer and others, "Simulating the Long Term Evolution physical layer",
// EUSIPCO 2009.
var cqiThresholds = [16]float64{
	-100, -6.7, -4.7, -2.3, 0.2, 2.4, 4.3, 5.9, 8.1, 10.3, 11.7, 14.1, 16.3, 18.7, 21.0, 22.7,
}

// cqiMCS is the MCS that a cell uses at a CQI: the highest one whose block of 50 PRB has no more
// bits than the CQI's efficiency allows (36.213 table 7.2.3-1), or 0. A PRB and layer has 132 data
// elements: 12 subcarriers of 14 symbols, without two symbols of control and 12 reference signals
// (36.211 section 6.10.1.2, two ports).
var cqiMCS = [16]uint8{0, 0, 0, 2, 4, 6, 8, 11, 13, 16, 18, 21, 23, 25, 27, 28}

// CQI returns the channel quality that a device reports at a SINR, 0 for out of range.
func CQI(sinr float64) int {
	q := 0
	for q < 15 && sinr >= cqiThresholds[q+1] {
		q++
	}
	return q
}

// SINROfSignal returns the SINR at a received power. Noise and neighbors are −110 dBm per 180 kHz:
// −85 dBm is 25 dB, −105 dBm is 5 dB.
func SINROfSignal(dBm float64) float64 { return dBm + 110 }

// transportBlockBits returns the bits of one block of prb at a CQI, 0 if that is out of range.
func transportBlockBits(cqi, prb int) int {
	if cqi == 0 {
		return 0
	}
	return tbs.Size(tbs.Downlink(int(cqiMCS[cqi])).Index, prb)
}

// Bits returns the bits, with headers, that a cell of full width carries in one subframe at a SINR.
func (c CellConfig) Bits(sinr float64) float64 {
	return float64(c.Layers * transportBlockBits(CQI(sinr), c.PRB))
}

// minRate is the least of UserConfig.Rate that carries anything: some bits in each block of a subframe.
const minRate = 100 * unit.Kbps

// followRate makes the blocks of a user with Rate in this subframe. Their MCS is that of a block of the table that has
// at least as many bits, if there is one.
func (n *Network) followRate(u *user) {
	u.cqi, u.recordedBits = 0, 0
	rate := u.Rate(n.number)
	if rate < minRate {
		return
	}
	c := n.cells[u.Cells[0]].CellConfig
	u.recordedBits = float64(rate) / 1000 / (1 - n.cfg.Overhead) / float64(c.Layers)
	for u.cqi = 1; u.cqi < 15 && float64(transportBlockBits(u.cqi, c.PRB)) < u.recordedBits; u.cqi++ {
	}
}

// retransmissionMCS returns the MCS of a retransmission without its size: 29 to 31 encode only the
// modulation (36.213 table 7.1.7.1-1).
func retransmissionMCS(mcs uint8) uint8 {
	return uint8(tbs.SizedMCS + tbs.Downlink(int(mcs)).Order/2 - 1)
}
