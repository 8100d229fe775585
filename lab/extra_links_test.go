// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"os"
	"slices"
	"testing"

	"mpbond/base/unit"
)

// With two direct links, mptcp:own uses both and other schemes the first one.
func TestOwnLinks(t *testing.T) {
	t.Parallel()
	needPrograms(t, "curl", "nginx", "ip", "mptcpize")
	if _, err := os.Stat("/proc/sys/net/mptcp/enabled"); err != nil {
		t.Skip("needs a kernel with MPTCP")
	}
	p := RunSpec{Topology: twoOwnLinks(t), Schemes: []string{"mptcp:own", "single"}, Size: 1500 * unit.KB, Reps: 1,
		KeepDisturbed: true}
	carries := map[string][]string{"mptcp:own": {"wlan0", "wwan0"}, "single": {"wlan0"}}
	made := 0
	err := Run(t.Context(), p, func(r Result) {
		made++
		if r.Error != "" || !r.SHA {
			t.Errorf("%s: %s", r.Scheme, r.Error)
			return
		}
		for _, link := range []string{"wlan0", "wwan0"} {
			got, want := r.Links[link] > r.Bytes/4, slices.Contains(carries[r.Scheme], link)
			if got != want || !want && r.Links[link] > 20*unit.KB {
				t.Errorf("%s: %v by %s of %v", r.Scheme, r.Links[link], link, r.Bytes)
			}
		}
	})
	if err != nil || made != len(p.Schemes) {
		t.Errorf("%d of %d transfers: %v", made, len(p.Schemes), err)
	}
	for _, bad := range []string{"mpbond:if=", "mpbond:if=a+", "mptcp:own:x"} {
		if _, err := newSchemeByName(bad); err == nil {
			t.Errorf("scheme %q was taken", bad)
		}
	}
}
