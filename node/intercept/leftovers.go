// SPDX-License-Identifier: Apache-2.0

//go:build linux

package intercept

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// RemoveLeftovers removes what killed processes of `mpbond run` have left in this network
// namespace: ip rules with their routes, and control groups without processes. It returns
// descriptions of what it removed. It requires the same rights as Redirect.
func RemoveLeftovers() (removed []string, err error) {
	numbers, err := removeStaleDiversions()
	for _, n := range numbers {
		removed = append(removed, fmt.Sprintf("routing rule and routes of a killed mpbond run (process %d)",
			n&0xffffff))
	}
	mnt, cerr := mountCgroups()
	if cerr != nil {
		return removed, errors.Join(err, cerr)
	}
	defer unix.Close(mnt)
	groups, cerr := removeStaleCgroups(mnt)
	for _, path := range groups {
		removed = append(removed, "control group "+path)
	}
	return removed, errors.Join(err, cerr)
}
