// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"mpbond/base/identity"
)

// newTrustWith returns a trust file with helpers of these names, and their keys.
func newTrustWith(t *testing.T, helpers ...string) (*identity.Trust, []identity.PublicKey) {
	t.Helper()
	trust, err := identity.OpenTrust(filepath.Join(t.TempDir(), "trust.toml"))
	var keys []identity.PublicKey
	for _, name := range helpers {
		key := newKey(t).Public()
		if err == nil {
			err = trust.Add(identity.Peer{Name: name, Roles: []identity.Role{identity.RoleHelper}, Key: key})
		}
		keys = append(keys, key)
	}
	if err != nil {
		t.Fatal(err)
	}
	return trust, keys
}

// TestDeviceNames: policy refers to this device by its configured name, its host name and, without
// a configured name, by "primary"; a helper's name refers to the helper. Device tables do the same.
func TestDeviceNames(t *testing.T) {
	for _, c := range []struct {
		name, helper, want string
	}{
		{"", "phone", "laptop primary"},
		{"", "laptop", "primary"},
		{"", "primary", "laptop"},
		{"desk", "phone", "desk laptop"},
		{"desk", "laptop", "desk"},
		{"desk", "desk", "desk laptop"},
		{"laptop", "phone", "laptop"},
	} {
		trust, keys := newTrustWith(t, c.helper)
		n := deviceNames{c.name, "laptop", trust}
		own := strings.Fields(c.want)
		if got := n.policyNames(); !slices.Equal(got, own) {
			t.Errorf("%+v: rules may say %q", c, got)
		}
		for _, name := range []string{"", "laptop", "desk", "primary", "phone"} {
			s := newTestStates(t, "[device.'"+name+"']\nbattery_floor = 30\n", n)
			means := slices.Contains(own, name)
			if limited := s.limitsOfDevice(deviceRef{iface: "wlan0"}).BatteryFloor == 30; limited != means {
				t.Errorf("%+v: %q means this device: %v, its limits hold: %v", c, name, means, limited)
			}
			s.byDevice[deviceRef{helper: keys[0]}] = &deviceState{name: name}
			if s.limitsOfDevice(deviceRef{helper: keys[0]}).BatteryFloor != 30 {
				t.Errorf("%+v: %q at a helper", c, name)
			}
			s.byDevice[deviceRef{helper: keys[0]}].name = "other"
			if s.limitsOfDevice(deviceRef{helper: keys[0]}).BatteryFloor != 0 {
				t.Errorf("%+v: limits of %q at another helper", c, name)
			}
		}
	}
}
