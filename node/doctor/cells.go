// SPDX-License-Identifier: Apache-2.0

package doctor

import "mpbond/api"

// cellsFromStatus returns the monitored cells whose messages are not used.
func cellsFromStatus(st api.Status) (list []Cells) {
	for _, c := range st.Cells {
		if !c.Receiving {
			list = append(list, Cells{c.Interface, c.Reason, c.RNTI != 0})
		}
	}
	return list
}

// checkCells reports cells whose messages are configured but not used.
func (j *evaluator) checkCells() {
	for _, c := range j.facts.Cells {
		level := Warn
		if !c.HasRNTI { // it is found with the first data
			level = Note
		}
		j.addFinding(topic{"cells", c.Interface}, level, "run `cellwatch capacity` with the same source",
			"senders do not know the capacity of the cells of %s, and measure by themselves: %s", c.Interface, c.Reason)
	}
}
