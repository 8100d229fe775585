// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"mpbond/api"
	"mpbond/link/pairing"
)

// TestPairSteps checks the text about each code while people wait.
func TestPairSteps(t *testing.T) {
	codes := []pairing.Code{{Addrs: []string{"vps.example.org:7600"}}, {}}
	calling, known := api.PairedDevice{State: api.PairCalling}, api.PairedDevice{State: api.PairKnown, ID: "ABCD"}
	done, failed := api.PairedDevice{State: api.PairDone}, api.PairedDevice{State: api.PairFailed}
	for _, c := range []struct {
		devices []api.PairedDevice
		want    string
	}{
		{[]api.PairedDevice{calling}, "connecting to vps.example.org:7600 …"},
		{[]api.PairedDevice{calling, calling},
			"code 1: connecting to vps.example.org:7600 …, code 2: searching the local network …"},
		{[]api.PairedDevice{known, calling}, "code 1: device ABCD answers …, code 2: searching the local network …"},
		{[]api.PairedDevice{done, known}, "code 2: device ABCD answers …"},
		{[]api.PairedDevice{done, failed}, ""},
	} {
		if got := describePairing(codes[:len(c.devices)], c.devices); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
