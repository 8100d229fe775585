// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"cmp"
	"slices"

	"mpbond/base/identity"
)

// deviceNames holds the names by which rules and status refer to this device. The fields do not
// change; which names apply depends on the trust file.
type deviceNames struct {
	configured string // "" for none
	host       string // "" if unknown
	trust      *identity.Trust
}

// displayName returns the name of this device for subflows, status and events.
func (n deviceNames) displayName() string { return cmp.Or(n.configured, "primary") }

// policyNames returns the names by which policy refers to this device, in order of preference: the
// configured name, the host name and, if none is configured, "primary". A name that is also a
// helper's refers to the helper, unless it is configured here.
func (n deviceNames) policyNames() (names []string) {
	for _, name := range []string{n.configured, n.host, n.displayName()} {
		peer, ok := n.trust.LookupName(name)
		if name != "" && (name == n.configured || !ok || !peer.HasRole(identity.RoleHelper)) &&
			!slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
