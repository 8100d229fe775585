// SPDX-License-Identifier: Apache-2.0

// Package device reports which network interfaces this device has, what they carry, and which
// programs use them. It stands beside the data path. Package policy decides by its data.
package device

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// Counters count the bytes that an interface has carried, IP headers included.
type Counters struct {
	Rx, Tx uint64
}

// ReadCounters returns the counters of each interface since it exists, by name. It fails on systems
// without them (other systems than Linux, Android from version 10 on).
func ReadCounters() (map[string]Counters, error) {
	// /sys/class/net may show another network namespace.
	data, err := os.ReadFile("/proc/self/net/dev")
	if err != nil {
		return nil, err
	}
	return parseCounters(data)
}

// parseCounters skips two lines of headings, then parses lines of "name: rx bytes, seven more, tx
// bytes, seven more" (proc_pid_net(5)).
func parseCounters(data []byte) (map[string]Counters, error) {
	list := map[string]Counters{}
	s := bufio.NewScanner(bytes.NewReader(data))
	for n := 0; s.Scan(); n++ {
		if n < 2 {
			continue
		}
		at := strings.LastIndexByte(s.Text(), ':') // the name of an alias contains a colon
		if at < 0 {
			return nil, fmt.Errorf("parse interface counters: malformed line %q", s.Text())
		}
		f := strings.Fields(s.Text()[at+1:])
		if len(f) < 9 {
			return nil, fmt.Errorf("parse interface counters: malformed line %q", s.Text())
		}
		rx, err := strconv.ParseUint(f[0], 10, 64)
		if err != nil {
			return nil, err
		}
		tx, err := strconv.ParseUint(f[8], 10, 64)
		if err != nil {
			return nil, err
		}
		list[strings.TrimSpace(s.Text()[:at])] = Counters{rx, tx}
	}
	return list, s.Err()
}

// InterfaceOf returns the name of the interface with a connection's local address, "" if there is
// none.
func InterfaceOf(local net.Addr) string {
	ap, err := netip.ParseAddrPort(local.String())
	if err != nil {
		return ""
	}
	want := ap.Addr().Unmap().WithZone("")
	all, err := net.Interfaces()
	if err != nil {
		return ""
	}
	for _, i := range all {
		addrs, err := i.Addrs()
		if err != nil {
			continue
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Unmap().WithZone("") == want {
				return i.Name
			}
		}
	}
	return ""
}

// LocalAddresses returns the current addresses of this device's interfaces, without zones.
func LocalAddresses() (map[netip.Addr]bool, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	present := make(map[netip.Addr]bool, len(list))
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			present[p.Addr().Unmap().WithZone("")] = true
		}
	}
	return present, nil
}

// ConnBytes counts the bytes of one of our connections: received in order by TCP, and sent at least
// once.
type ConnBytes struct {
	Local  net.Addr
	Rx, Tx uint64
}
