// SPDX-License-Identifier: Apache-2.0

package cell

import "math"

// Specification.
const (
	// Overhead is γ of section 4.2.2: headers of PDCP, RLC and MAC, and control channels, as a part
	// of the physical rate.
	Overhead = 0.068
	// DefaultErrorRate is p until retransmissions are seen: the probability that one bit is wrong
	// after decoding. The paper has 1e-6 to 5e-6, depending on the signal.
	DefaultErrorRate = 2e-6
)

// tableStep and tableMax bound the table: 1 kbit per subframe is 1 Mbit/s; one cell of 20 MHz with
// four layers carries less than 400 kbit per subframe.
const (
	tableStep = 1000.0
	tableMax  = 400
)

// CapacityTable converts physical capacity into the rate that a transport can have, both in bits
// per subframe of one cell:
//
//	C_p = C_t + C_t·(1 − (1−p)^C_t) + γ·C_p
//
// (section 4.2.2; a transport block of a subframe holds C_t bits, so L = C_t.) There is no
// closed-form solution, so the table interpolates linearly.
type CapacityTable struct {
	p         float64
	transport [tableMax + 1]float64
}

// NewCapacityTable returns the table for bit error rate p. Above 1e-4, where hardly any block is
// right, it uses 1e-4.
func NewCapacityTable(p float64) *CapacityTable {
	t := &CapacityTable{p: min(max(p, 0), 1e-4)}
	for i := range t.transport {
		t.transport[i] = solveTransport(t.p, float64(i)*tableStep)
	}
	return t
}

// ErrorRate returns the p of the table.
func (t *CapacityTable) ErrorRate() float64 { return t.p }

// Transport returns C_t for a given C_p.
func (t *CapacityTable) Transport(physical float64) float64 {
	if !(physical > 0) {
		return 0
	}
	x := physical / tableStep
	i := int(x)
	if i >= tableMax {
		return t.transport[tableMax] * x / tableMax
	}
	return t.transport[i] + (t.transport[i+1]-t.transport[i])*(x-float64(i))
}

// solveTransport finds C_t as the fixed point of x = C_p·(1−γ) / (2 − (1−p)^x). Each step leaves
// less than a quarter of the error for every p, so sixteen suffice.
func solveTransport(p, physical float64) float64 {
	have := physical * (1 - Overhead)
	x := have
	for range 16 {
		x = have / (2 - successProbability(p, x))
	}
	return x
}

// successProbability returns (1−p)^bits, the probability that a block of that many bits has no
// error.
func successProbability(p, bits float64) float64 { return math.Exp(bits * math.Log1p(-p)) }

// bitErrorRate returns the p at which the part wrong of all blocks with the given bits must be
// retransmitted.
func bitErrorRate(wrong, bits float64) float64 {
	if bits <= 0 || wrong <= 0 {
		return 0
	}
	return -math.Expm1(math.Log1p(-min(wrong, 0.99)) / bits)
}
