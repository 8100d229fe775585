// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"sync/atomic"
	"testing"

	"mpbond/api"
	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/internal/cli"
)

// TestNotFound checks that the hint names each helper that is not paused and says what to do if
// multicast is blocked.
func TestNotFound(t *testing.T) {
	phone, tablet, paused := identity.Peer{Name: "phone"}, identity.Peer{Name: "tablet"}, identity.Peer{Name: "old",
		Paused: true}
	for _, c := range []struct {
		helpers []identity.Peer
		text    string
	}{
		{nil, ""},
		{[]identity.Peer{paused}, ""},
		{[]identity.Peer{phone}, "no address of phone is known"},
		{[]identity.Peer{phone, paused, tablet}, "no address of phone, tablet is known"},
	} {
		err := helpersNotFound(c.helpers)
		if c.text == "" {
			if err != nil {
				t.Errorf("%v: %v", c.helpers, err)
			}
			continue
		}
		hint := fault.HintOf(err)
		if !fault.Is(err, fault.NotFound) || !strings.HasPrefix(err.Error(), c.text+",") {
			t.Errorf("%v: %v", c.helpers, err)
		}
		for _, want := range []string{"mpbond helper --onload", "mpbond pair CODE@ADDRESS"} {
			if !strings.Contains(hint, want) {
				t.Errorf("no %q in the hint %q", want, hint)
			}
		}
	}
}

// TestAwaitApplied checks that `pause`, `resume` and `revoke` wait until the running role shows the
// change, and report if it does not.
func TestAwaitApplied(t *testing.T) {
	for _, c := range []struct {
		command       string
		before, after []api.Device // of the running role
		never         bool
	}{
		{"pause phone", []api.Device{{Subflows: 1}}, []api.Device{{Paused: true}}, false},
		{"pause phone", []api.Device{{Paused: true, Subflows: 1}}, []api.Device{{Paused: true}}, false},
		{"resume phone", []api.Device{{Paused: true}}, []api.Device{{Subflows: 1}}, false},
		{"revoke phone", []api.Device{{}}, nil, false},
		// the role does not know the phone
		{"pause phone", []api.Device{{Self: true, Paused: true}}, []api.Device{{Self: true}}, false},
		{"revoke phone", []api.Device{{}}, []api.Device{{}}, true},
	} {
		t.Run(c.command, func(t *testing.T) {
			newHome(t)
			key, err := identity.Generate()
			if err != nil {
				t.Fatal(err)
			}
			if code, _, errs := runProgram(t, "trust", "add", "phone", "--role", "helper", "--key",
				key.Public().String()); code != cli.ExitOK {
				t.Fatal(errs)
			}
			const late = 3
			var asked atomic.Int32
			serveStatus(t, func(bool) api.Status {
				list := c.before
				if asked.Add(1) > late {
					list = c.after
				}
				s := api.Status{Role: "primary"}
				for _, d := range list {
					d.ID = key.ID().String()
					s.Devices = append(s.Devices, d)
				}
				return s
			})
			code, _, errs := runProgram(t, strings.Fields(c.command)...)
			if code != cli.ExitOK || c.never != strings.Contains(errs, "has not applied it") {
				t.Errorf("code %d: %s", code, errs)
			}
			unknown := len(c.before) > 0 && c.before[0].Self
			if n := asked.Load(); !unknown && n <= late || unknown && n != 1 {
				t.Errorf("it was asked %d times", n)
			}
		})
	}
}
