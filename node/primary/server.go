package primary

import (
	"errors"
	"fmt"

	"mpbond/base/fault"
	"mpbond/base/identity"
)

// findServer is the server of that name, or the only one that is trusted.
func findServer(name string, trust *identity.Trust) (identity.Peer, error) {
	const hint = "pair this device with a server that shows a code, `mpbond pair CODE`, or add it with `mpbond trust add NAME --role server --key KEY --addr HOST:PORT`"
	list := trust.ByRole(identity.RoleServer)
	for _, s := range list {
		if (name == "" && len(list) == 1) || s.Name == name {
			if len(s.Addresses) == 0 {
				return s, fault.New(fault.Config, fmt.Errorf("no address is known of server %s", s.Name), hint)
			}
			return s, nil
		}
	}
	if name == "" && len(list) > 1 {
		return identity.Peer{}, fault.New(fault.Config, fmt.Errorf("%d servers are trusted", len(list)), "name one with `server = \"NAME\"` or --server")
	}
	if name == "" {
		return identity.Peer{}, fault.New(fault.Config, errors.New("no server is trusted"), hint)
	}
	return identity.Peer{}, fault.New(fault.Config, fmt.Errorf("no server called %q is trusted", name), hint)
}
