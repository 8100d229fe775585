package lte

// reg is a resource element group (36.211 section 6.2.4): four elements of
// control channels, in symbol l from subcarrier k on. Where the symbol has
// reference signals the group has six subcarriers, two of them for these.
type reg struct{ k, l int }

// elements are the subcarriers of r that carry data. Those of the second port
// are left out even if there is one port only.
func (c Cell) elements(r reg) [4]int {
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

// width is the number of subcarriers of a group in symbol l, of cells with up to
// two ports.
func width(l int) int {
	if l == 0 {
		return 6
	}
	return 4
}

// symbols is how many symbols the control channels take. Narrow cells have one
// more (36.211 table 6.7-1).
func (c Cell) symbols(cfi int) int {
	if c.PRB <= 10 {
		return cfi + 1
	}
	return cfi
}

// pcfich are the groups of the PCFICH (36.211 section 6.7.4).
func (c Cell) pcfich() (r [4]reg) {
	start := perPRB / 2 * (c.ID % (2 * c.PRB))
	for i := range r {
		r[i] = reg{(start + i*c.PRB/2*perPRB/2) % c.subcarriers(), 0}
	}
	return r
}

// phichGroups is how many groups of PHICHs there are (section 6.9).
func (c Cell) phichGroups() int { return (c.Sixths*c.PRB + 47) / 48 }

// phich are the groups of elements that the PHICHs take (section 6.9.3), three
// for each of theirs.
func (c Cell) phich() []reg {
	taken := c.pcfich()
	var free [3][]reg
	for l := range free {
		for k := 0; k < c.subcarriers(); k += width(l) {
			if r := (reg{k, l}); l > 0 || r != taken[0] && r != taken[1] && r != taken[2] && r != taken[3] {
				free[l] = append(free[l], r)
			}
		}
	}
	var out []reg
	for m := range c.phichGroups() {
		for i := range 3 {
			l := 0
			if c.Extended {
				l = i
			}
			n := len(free[l])
			out = append(out, free[l][(c.ID*n/len(free[0])+m+i*n/3)%n])
		}
	}
	return out
}

// pdcch are the groups of the PDCCH in the order of the CCE's quadruplets, nine
// each (section 6.8.5). What is left over at the end belongs to no CCE.
func (c Cell) pdcch(cfi int) []reg {
	used := map[reg]bool{}
	for _, r := range c.pcfich() {
		used[r] = true
	}
	for _, r := range c.phich() {
		used[r] = true
	}
	var all []reg
	for k := range c.subcarriers() {
		for l := range c.symbols(cfi) {
			if r := (reg{k, l}); k%width(l) == 0 && !used[r] {
				all = append(all, r)
			}
		}
	}
	order := interleave(len(all))
	out := make([]reg, len(all))
	for i, r := range all {
		out[order[(i+c.ID)%len(all)]] = r
	}
	return out[:len(all)/cceREGs*cceREGs]
}
