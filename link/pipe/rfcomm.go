// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"fmt"
	"strconv"
	"strings"

	"mpbond/base/fault"
)

// RFCOMM carries hops over Bluetooth, on Linux. An address is "AA:BB:CC:DD:EE:FF/CHANNEL" with a
// channel from 1 to 30. The channel alone listens on all adapters. The system pairs the devices and
// encrypts the radio link; mpbond also uses TLS. Two devices have at most one connection for each
// channel.
//
// The kernel reports only how much data it still holds. Half-close does not exist: CloseWrite fails
// with errors.ErrUnsupported, and pipes do not need it.
type RFCOMM struct{}

// Name implements Carrier.
func (RFCOMM) Name() string { return "rfcomm" }

// rfcommAddr is an address, little-endian as in the kernel.
type rfcommAddr struct {
	device  [6]byte
	channel uint8
}

// Network implements net.Addr.
func (rfcommAddr) Network() string { return "rfcomm" }

func (a rfcommAddr) String() string {
	d := a.device
	if d == [6]byte{} {
		return fmt.Sprintf("rfcomm://%d", a.channel)
	}
	return fmt.Sprintf("rfcomm://%02X:%02X:%02X:%02X:%02X:%02X/%d", d[5], d[4], d[3], d[2], d[1], d[0], a.channel)
}

// parseRFCOMM parses an address with or without "rfcomm://". If any is true the device may be left
// out.
func parseRFCOMM(s string, any bool) (a rfcommAddr, err error) {
	bad := fault.New(fault.Config, fmt.Errorf("invalid Bluetooth address %q", s),
		"write it as AA:BB:CC:DD:EE:FF/CHANNEL, with a channel from 1 to 30; `bluetoothctl list` shows the "+
			"addresses of this device")
	device, channel, ok := strings.Cut(strings.TrimPrefix(s, "rfcomm://"), "/")
	if !ok {
		if !any {
			return a, bad
		}
		device, channel = "", device
	}
	n, err := strconv.ParseUint(channel, 10, 8)
	if err != nil || n < 1 || n > 30 {
		return a, bad
	}
	a.channel = uint8(n)
	if device == "" && any {
		return a, nil
	}
	parts := strings.Split(device, ":")
	if len(parts) != 6 {
		return a, bad
	}
	for i, p := range parts {
		b, err := strconv.ParseUint(p, 16, 8)
		if err != nil || len(p) != 2 {
			return a, bad
		}
		a.device[5-i] = byte(b)
	}
	return a, nil
}
