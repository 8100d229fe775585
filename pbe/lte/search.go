// SPDX-License-Identifier: Apache-2.0

package lte

import "mpbond/pbe/cell"

// aggregationLevels are the numbers of CCEs that one DCI may take, the largest first.
var aggregationLevels = [4]int{8, 4, 2, 1}

// commonSpaceCCEs is the size of the common search space (36.213 section 9.1.1: the four and two
// candidates of levels 4 and 8 from the first CCE on).
const commonSpaceCCEs = 16

// candidateCount returns M, the number of candidates of each level in a user search space (36.213
// table 9.1.1-1).
func candidateCount(level int) int {
	if level <= 2 {
		return 6
	}
	return 2
}

// searchSpaceStart returns Y_k of 36.213 section 9.1.1, which determines the start of a user's
// search space in a subframe.
func searchSpaceStart(r cell.RNTI, subframe int) int {
	y := uint32(r)
	for range subframe + 1 {
		y = y * 39827 % 65537
	}
	return int(y)
}

// candidateCCE returns the first CCE of candidate m of level, with cces in all.
func candidateCCE(y, m, level, cces int) int { return level * ((y + m) % (cces / level)) }

// inUserSpace reports whether r's own search space has a candidate of level at CCE first.
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

// inCommonSpace reports whether there is a common candidate of level at CCE first.
func inCommonSpace(level, first, cces int) bool {
	return level >= 4 && first%level == 0 && first+level <= min(commonSpaceCCEs, cces)
}
