package lte

import "mpbond/pbe/cell"

// aggregationLevels are the aggregation levels, how many CCE one DCI takes, the largest
// first.
var aggregationLevels = [4]int{8, 4, 2, 1}

// commonSpaceCCEs is where the common search space ends (36.213 section 9.1.1: the
// four and two candidates of levels 4 and 8 from the first CCE on).
const commonSpaceCCEs = 16

// candidateCount is M, how many candidates a user has of each level (36.213 table
// 9.1.1-1).
func candidateCount(level int) int {
	if level <= 2 {
		return 6
	}
	return 2
}

// searchSpaceStart is Y_k of 36.213 section 9.1.1: where in a subframe a user's search
// space begins.
func searchSpaceStart(r cell.RNTI, subframe int) int {
	y := uint32(r)
	for range subframe + 1 {
		y = y * 39827 % 65537
	}
	return int(y)
}

// candidateCCE is the first CCE of candidate m of level among cces.
func candidateCCE(y, m, level, cces int) int { return level * ((y + m) % (cces / level)) }

// inUserSpace tells whether a DCI of level at first can be for r by r's own search
// space.
func inUserSpace(r cell.RNTI, subframe, level, first, cces int) bool {
	if cces < level {
		return false
	}
	y := searchSpaceStart(r, subframe)
	for m := range candidateCount(level) {
		if candidateCCE(y, m, level, cces) == first {
			return true
		}
	}
	return false
}

// inCommonSpace tells whether there is a common candidate of level at first.
func inCommonSpace(level, first, cces int) bool {
	return level >= 4 && first%level == 0 && first+level <= min(commonSpaceCCEs, cces)
}
