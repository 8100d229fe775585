// SPDX-License-Identifier: Apache-2.0

package fault

// Cause is why a network address could not be reached, if known. Causes appear in JSON: the list is
// append-only.
type Cause string

// Causes.
const (
	CauseUnknown  Cause = ""
	CauseRefused  Cause = "refused"   // the device answers, but nothing listens at the port
	CauseNoAnswer Cause = "no_answer" // no answer
	CauseNoRoute  Cause = "no_route"  // this device or its router has no route
	CauseNoName   Cause = "no_name"   // the name does not resolve
)
