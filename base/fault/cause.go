package fault

// Cause says why a network address was not reached, where that is known. Causes
// appear in JSON: the list is append-only.
type Cause string

// Causes.
const (
	CauseUnknown  Cause = ""
	CauseRefused  Cause = "refused"   // the device answers, and nothing listens at the port
	CauseNoAnswer Cause = "no_answer" // nothing came back
	CauseNoRoute  Cause = "no_route"  // this device has no way there, or its router says so
	CauseNoName   Cause = "no_name"   // the name does not resolve
)
