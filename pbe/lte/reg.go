// SPDX-License-Identifier: Apache-2.0

package lte

// reg is a resource element group (36.211 section 6.2.4): four elements of control channels, in
// symbol l from subcarrier k on. Where the symbol has reference signals, the group has six
// subcarriers, two of them for these.
type reg struct{ k, l int }

// dataSubcarriers returns the subcarriers of r that carry data. Those of the second port are left
// out even if there is only one port.
func (c Cell) dataSubcarriers(r reg) [4]int {
	if r.l > 0 {
		return [4]int{r.k, r.k + 1, r.k + 2, r.k + 3}
	}
	var e [4]int
	n := 0
	for k := r.k; k < r.k+6; k++ {
		if k%3 != c.ID%3 {
			e[n] = k
			n++
		}
	}
	return e
}

// regSubcarrierCount returns the number of subcarriers of a group in symbol l, in cells with up to
// two ports.
func regSubcarrierCount(l int) int {
	if l == 0 {
		return 6
	}
	return 4
}

// controlSymbols returns the number of symbols of the control channels. Narrow cells have one more
// (36.211 table 6.7-1).
func (c Cell) controlSymbols(cfi int) int {
	if c.PRB <= 10 {
		return cfi + 1
	}
	return cfi
}

// pcfichREGs returns the groups of the PCFICH (36.211 section 6.7.4).
func (c Cell) pcfichREGs() (r [4]reg) {
	start := subcarriersPerPRB / 2 * (c.ID % (2 * c.PRB))
	for i := range r {
		r[i] = reg{(start + i*c.PRB/2*subcarriersPerPRB/2) % c.subcarrierCount(), 0}
	}
	return r
}

// phichGroupCount returns the number of PHICH groups (section 6.9).
func (c Cell) phichGroupCount() int { return (c.PHICHSixths*c.PRB + 47) / 48 }

// phichREGs returns the element groups of the PHICHs (section 6.9.3), three for each PHICH group.
func (c Cell) phichREGs() []reg {
	taken := c.pcfichREGs()
	var free [3][]reg
	for l := range free {
		for k := 0; k < c.subcarrierCount(); k += regSubcarrierCount(l) {
			if r := (reg{k, l}); l > 0 || r != taken[0] && r != taken[1] && r != taken[2] && r != taken[3] {
				free[l] = append(free[l], r)
			}
		}
	}
	var out []reg
	for m := range c.phichGroupCount() {
		for i := range 3 {
			l := 0
			if c.ExtendedPHICH {
				l = i
			}
			n := len(free[l])
			out = append(out, free[l][(c.ID*n/len(free[0])+m+i*n/3)%n])
		}
	}
	return out
}

// pdcchREGs returns the groups of the PDCCH in the order of the CCEs' quadruplets, nine each
// (section 6.8.5). The remainder at the end belongs to no CCE.
func (c Cell) pdcchREGs(cfi int) []reg {
	used := map[reg]bool{}
	for _, r := range c.pcfichREGs() {
		used[r] = true
	}
	for _, r := range c.phichREGs() {
		used[r] = true
	}
	var all []reg
	for k := range c.subcarrierCount() {
		for l := range c.controlSymbols(cfi) {
			if r := (reg{k, l}); k%regSubcarrierCount(l) == 0 && !used[r] {
				all = append(all, r)
			}
		}
	}
	order := interleaveOrder(len(all))
	out := make([]reg, len(all))
	for i, r := range all {
		out[order[(i+c.ID)%len(all)]] = r
	}
	return out[:len(all)/regsPerCCE*regsPerCCE]
}
