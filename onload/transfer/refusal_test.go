// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"errors"
	"io"
	"net/url"
	"strings"
	"testing"

	"mpbond/base/fault"
)

// TestNone checks the error of an action that no device can do.
func TestNone(t *testing.T) {
	refused := errors.New("connection refused")
	over := func(device string) error {
		return &url.Error{Op: "Get", URL: "http://h/", Err: errors.New("over " + device + ": " + refused.Error())}
	}
	gone := fault.New(fault.NotFound, errors.New("404"), "look")
	late := fault.New(fault.Timeout, errors.New("late"), "wait")
	for name, c := range map[string]struct {
		devices    int
		list       []DeviceError
		text, hint string
		kind       fault.Kind
	}{
		"one": {1, []DeviceError{{"a", gone}}, "404", "look", fault.NotFound},
		"the same": {2, []DeviceError{{"a", refused}, {"b", over("b")}},
			"failed over all 2 devices: connection refused", "", fault.Other},
		"others": {2, []DeviceError{{"a", gone}, {"b", over("b")}},
			"failed over all 2 devices: a: 404; b: connection refused", "look", fault.NotFound},
		"one is quiet": {3, []DeviceError{{"a", gone}, {"b", gone}},
			"failed over all 3 devices: a: 404; b: 404", "look", fault.NotFound},
		"all late": {2, []DeviceError{{"a", late}, {"b", late}}, "failed over all 2 devices: late",
			"the server is up", fault.Timeout},
		"offline": {2, []DeviceError{{"a", late}, {"b", io.EOF}}, "failed over all 2 devices: a: late; b: EOF",
			"the server is up", fault.Unreachable},
	} {
		err := NoDeviceError(c.devices, c.list)
		if err.Error() != c.text || fault.KindOf(err) != c.kind || !strings.Contains(fault.HintOf(err), c.hint) ||
			!errors.Is(err, c.list[0].Err) {
			t.Errorf("%s: %v, %v, %q", name, err, fault.KindOf(err), fault.HintOf(err))
		}
	}
	if NoDeviceError(2, nil) != nil {
		t.Error("an error without reasons")
	}
}
