// SPDX-License-Identifier: Apache-2.0

package device

import (
	"testing"

	"mpbond/link/wire"
)

func TestRadioOf(t *testing.T) {
	for name, want := range map[string]wire.Radio{"wlan0": wire.RadioWiFi, "wlp3s0": wire.RadioWiFi,
		"wwan0": wire.RadioCellular, "rmnet_data0": wire.RadioCellular,
		"bnep0": wire.RadioBluetooth, "eth0": wire.RadioNone, "lo": wire.RadioNone, "": wire.RadioNone,
		"../../x": wire.RadioNone, "not-there": wire.RadioNone} {
		if got := RadioOf(name); got != want {
			t.Errorf("%q: %v, want %v", name, got, want)
		}
	}
}
