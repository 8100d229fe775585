package lte

import "mpbond/pbe/cell"

// levels are the aggregation levels, how many CCE one DCI takes, the largest
// first.
var levels = [4]int{8, 4, 2, 1}

// commonCCEs is where the common search space ends (36.213 section 9.1.1: the
// four and two candidates of levels 4 and 8 from the first CCE on).
const commonCCEs = 16

// candidates is M, how many candidates a user has of each level (36.213 table
// 9.1.1-1).
func candidates(level int) int {
	if level <= 2 {
		return 6
	}
	return 2
}

// place is Y_k of 36.213 section 9.1.1: where in a subframe a user's search
// space begins.
func place(r cell.RNTI, subframe int) int {
	y := uint32(r)
	for range subframe + 1 {
		y = y * 39827 % 65537
	}
	return int(y)
}

// candidate is the first CCE of candidate m of level among cces.
func candidate(y, m, level, cces int) int { return level * ((y + m) % (cces / level)) }

// mayBe tells whether a DCI of level at first can be for r by r's own search
// space.
func mayBe(r cell.RNTI, subframe, level, first, cces int) bool {
	if cces < level {
		return false
	}
	y := place(r, subframe)
	for m := range candidates(level) {
		if candidate(y, m, level, cces) == first {
			return true
		}
	}
	return false
}

// mayBeCommon tells whether there is a common candidate of level at first.
func mayBeCommon(level, first, cces int) bool {
	return level >= 4 && first%level == 0 && first+level <= min(commonCCEs, cces)
}
