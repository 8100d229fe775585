// SPDX-License-Identifier: Apache-2.0

package doctor

import "cmp"

// checkRefused reports devices with a connection that either end refused.
func (j *evaluator) checkRefused() {
	for _, r := range j.facts.Refused {
		switch {
		case r.Here && r.Device == "":
			j.addFinding(topic{"refused", r.Address}, Note, r.Hint,
				"an unknown device connects and is refused: %s", r.Reason)
		case r.Here:
			j.addFinding(topic{"refused", r.Device}, Bad, cmp.Or(r.Hint, "it retries within minutes"),
				"it connects and is refused: %s", r.Reason)
		default:
			j.addFinding(topic{"refused", r.Device}, Bad, cmp.Or(r.Hint, "this device retries within minutes"),
				"it refuses this device: %s", r.Reason)
		}
	}
}
