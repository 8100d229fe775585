package pipe

import (
	"fmt"
	"strconv"
	"strings"

	"mpbond/base/fault"
)

// RFCOMM carries hops over Bluetooth, on Linux. An address is
// "AA:BB:CC:DD:EE:FF/CHANNEL", channels being 1 to 30; to listen on all
// adapters it is the channel alone. Pairing and encryption of the radio link
// are the system's; what mpbond sends is in TLS anyway. Between two devices there
// is one connection for each channel.
//
// The kernel tells of RFCOMM only how much it still holds, and a connection
// cannot be ended in one direction: CloseWrite fails with errors.ErrUnsupported,
// and nothing on a pipe needs it.
type RFCOMM struct{}

// Name implements Carrier.
func (RFCOMM) Name() string { return "rfcomm" }

// rfcommAddr is an address; it is little-endian, as the kernel has it.
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

// parseRFCOMM reads an address with or without "rfcomm://". Any is whether the
// device may be left out.
func parseRFCOMM(s string, any bool) (a rfcommAddr, err error) {
	bad := fault.New(fault.Config, fmt.Errorf("address %q of Bluetooth", s), "write it as AA:BB:CC:DD:EE:FF/CHANNEL, with a channel from 1 to 30; `bluetoothctl list` shows a device's own")
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
