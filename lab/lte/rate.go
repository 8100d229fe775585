package lte

// efficiency is 36.213 table 7.2.3-1: bits per resource element of each CQI.
var efficiency = [16]float64{0, 0.1523, 0.2344, 0.3770, 0.6016, 0.8770, 1.1758, 1.4766, 1.9141, 2.4063, 2.7305, 3.3223, 3.9023, 4.5234, 5.1152, 5.5547}

// thresholds are the SINR in dB from which on a CQI leaves one block of ten wrong
// in additive noise; as simulated by Mehlführer and others, "Simulating the Long
// Term Evolution physical layer", EUSIPCO 2009.
var thresholds = [16]float64{-100, -6.7, -4.7, -2.3, 0.2, 2.4, 4.3, 5.9, 8.1, 10.3, 11.7, 14.1, 16.3, 18.7, 21.0, 22.7}

// elements of a resource block and layer that carry data: 12 subcarriers of 14
// symbols, without two symbols of control and 12 of reference signals
// (36.211 section 6.10.1.2, two ports).
const elements = 12*12 - 12

// CQI is the channel quality that a device reports at a SINR, 0 for out of range.
func CQI(sinr float64) int {
	q := 0
	for q < 15 && sinr >= thresholds[q+1] {
		q++
	}
	return q
}

// SINROf is a SINR at which the CQI is q.
func SINROf(q int) float64 { return thresholds[min(max(q, 0), 15)] + 0.05 }

// SINROfSignal is the SINR at a received power, for a cell limited by noise and
// neighbours at −110 dBm per 180 kHz in all: −85 dBm is 25 dB, −105 dBm is 5.
func SINROfSignal(dBm float64) float64 { return dBm + 110 }

// mcsOf is a modulation and coding scheme that stands for a CQI: each CQI has
// about two of them (36.213 table 7.1.7.1-1).
func mcsOf(cqi int) uint8 { return uint8(min(28, 2*max(cqi-1, 0))) }
