// SPDX-License-Identifier: Apache-2.0

package device

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"

	"mpbond/link/wire"
)

// RadioOf returns the kind of radio of a network interface, by its name on Linux and Android, else
// by the driver's DEVTYPE in sysfs. It returns RadioNone if neither tells: for a cable, or a phone
// behind a cable.
func RadioOf(name string) wire.Radio {
	for _, n := range []struct {
		prefix string
		radio  wire.Radio
	}{
		{"wl", wire.RadioWiFi}, {"ww", wire.RadioCellular}, // systemd.net-naming-scheme(7), and wlan0 and wwan0
		// modems of phones and sticks
		{"rmnet", wire.RadioCellular}, {"ccmni", wire.RadioCellular}, {"ppp", wire.RadioCellular},
		{"bnep", wire.RadioBluetooth}, {"bt-pan", wire.RadioBluetooth},
	} {
		if strings.HasPrefix(name, n.prefix) {
			return n.radio
		}
	}
	if name == "" || strings.ContainsAny(name, "/.") {
		return wire.RadioNone
	}
	f, err := os.Open(filepath.Join("/sys/class/net", name, "uevent"))
	if err != nil {
		return wire.RadioNone
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		switch s.Text() {
		case "DEVTYPE=wlan":
			return wire.RadioWiFi
		case "DEVTYPE=wwan":
			return wire.RadioCellular
		case "DEVTYPE=bluetooth":
			return wire.RadioBluetooth
		}
	}
	return wire.RadioNone
}

// IsTunnel reports whether a network interface is a tunnel, such as that of a VPN: TUN, TAP,
// WireGuard, or a kernel tunnel (ARPHRD_TUNNEL and others in if_arp.h). It returns false if sysfs
// does not tell.
func IsTunnel(name string) bool {
	if name == "" || strings.ContainsAny(name, "/.") {
		return false
	}
	dir := filepath.Join("/sys/class/net", name)
	if _, err := os.Stat(filepath.Join(dir, "tun_flags")); err == nil {
		return true
	}
	if b, err := os.ReadFile(filepath.Join(dir, "uevent")); err == nil &&
		strings.Contains(string(b), "DEVTYPE=wireguard\n") {
		return true
	}
	b, _ := os.ReadFile(filepath.Join(dir, "type"))
	switch strings.TrimSpace(string(b)) {
	case "768", "769", "776", "778", "823":
		return true
	}
	return false
}
