package doctor

import "cmp"

// checkRefused reports the devices that do not come together with this one since one of
// the two refuses.
func (j *evaluator) checkRefused() {
	for _, r := range j.facts.Refused {
		switch {
		case r.Here && r.Device == "":
			j.addFinding(topic{"refused", r.Address}, Note, r.Hint, "a device that is not known here calls, and is refused: %s", r.Reason)
		case r.Here:
			j.addFinding(topic{"refused", r.Device}, Bad, cmp.Or(r.Hint, "it calls again by itself, within minutes"), "it calls, and is refused: %s", r.Reason)
		default:
			j.addFinding(topic{"refused", r.Device}, Bad, cmp.Or(r.Hint, "this device calls again by itself, within minutes"), "it refuses this device: %s", r.Reason)
		}
	}
}
