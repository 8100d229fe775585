package primary

import (
	"cmp"
	"slices"

	"mpbond/base/identity"
)

// deviceNames are the names by which rules and status mean this device. They do not change,
// but which of them count depends on the trust file.
type deviceNames struct {
	configured string // "" for none
	host       string // "" if it has none
	trust      *identity.Trust
}

// displayName returns what subflows, status and events call this device.
func (n deviceNames) displayName() string { return cmp.Or(n.configured, "primary") }

// policyNames returns the names by which policy means this device, the first before others:
// what it is called, what its host is called and, if only that has a name,
// "primary". What is a helper's name too means the helper, unless this device was
// called so.
func (n deviceNames) policyNames() (names []string) {
	for _, name := range []string{n.configured, n.host, n.displayName()} {
		peer, ok := n.trust.LookupName(name)
		if name != "" && (name == n.configured || !ok || !peer.HasRole(identity.RoleHelper)) && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}
