package lte

import "mpbond/pbe/lte/tbs"

// cqiThresholds are the SINR in dB from which on a CQI leaves one block of ten wrong
// in additive noise; as simulated by Mehlführer and others, "Simulating the Long
// Term Evolution physical layer", EUSIPCO 2009.
var cqiThresholds = [16]float64{-100, -6.7, -4.7, -2.3, 0.2, 2.4, 4.3, 5.9, 8.1, 10.3, 11.7, 14.1, 16.3, 18.7, 21.0, 22.7}

// cqiMCS is the MCS that a cell uses at a CQI: the highest whose block of 50 PRB
// is of no more bits than the CQI's efficiency lets through (36.213 table
// 7.2.3-1), or 0. Elements that carry data are 132 of a PRB and layer: 12
// subcarriers of 14 symbols, without two symbols of control and 12 of reference
// signals (36.211 section 6.10.1.2, two ports).
var cqiMCS = [16]uint8{0, 0, 0, 2, 4, 6, 8, 11, 13, 16, 18, 21, 23, 25, 27, 28}

// CQI is the channel quality that a device reports at a SINR, 0 for out of range.
func CQI(sinr float64) int {
	q := 0
	for q < 15 && sinr >= cqiThresholds[q+1] {
		q++
	}
	return q
}

// SINROfSignal is the SINR at a received power, for a cell limited by noise and
// neighbours at −110 dBm per 180 kHz in all: −85 dBm is 25 dB, −105 dBm is 5.
func SINROfSignal(dBm float64) float64 { return dBm + 110 }

// blockBits is what one block of prb carries at a CQI, in bits, 0 if that is out of
// range.
func blockBits(cqi, prb int) int {
	if cqi == 0 {
		return 0
	}
	return tbs.Size(tbs.Downlink(int(cqiMCS[cqi])).Index, prb)
}

// Bits is what all of the width of a cell carries in one subframe at a SINR, with
// headers.
func (c CellConfig) Bits(sinr float64) float64 {
	return float64(c.Layers * blockBits(CQI(sinr), c.PRB))
}

// retransmissionMCS is the MCS of a block that comes again without its size: 29 to 31 tell
// only its modulation (36.213 table 7.1.7.1-1).
func retransmissionMCS(mcs uint8) uint8 {
	return uint8(tbs.SizedMCS + tbs.Downlink(int(mcs)).Order/2 - 1)
}
