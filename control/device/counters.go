// Package device tells what this device has and how it is used: its network
// interfaces and what they carry. It stands beside the data path; roles ask it,
// and package policy decides on its answers.
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

// Counters are what an interface has carried, all headers of IP included.
type Counters struct {
	Rx, Tx uint64
}

// ReadCounters tells what each interface has carried since it exists, by name.
// It is an error where the system does not tell (other systems than Linux,
// Android from version 10 on).
func ReadCounters() (map[string]Counters, error) {
	// Not /sys/class/net, which may show another network namespace's.
	data, err := os.ReadFile("/proc/self/net/dev")
	if err != nil {
		return nil, err
	}
	return parseCounters(data)
}

// parseCounters reads two lines of headings, then lines of "name: rx bytes,
// seven more, tx bytes, seven more" (proc_pid_net(5)).
func parseCounters(data []byte) (map[string]Counters, error) {
	list := map[string]Counters{}
	s := bufio.NewScanner(bytes.NewReader(data))
	for n := 0; s.Scan(); n++ {
		if n < 2 {
			continue
		}
		at := strings.LastIndexByte(s.Text(), ':') // an alias has one in its name
		if at < 0 {
			return nil, fmt.Errorf("counters of interfaces: %q", s.Text())
		}
		f := strings.Fields(s.Text()[at+1:])
		if len(f) < 9 {
			return nil, fmt.Errorf("counters of interfaces: %q", s.Text())
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

// InterfaceOf is the name of the interface that has a connection's local
// address, "" if none has.
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

// LocalAddresses are those that this device's interfaces have now, without zones.
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

// ConnBytes is a connection of mpbond's own, with what it has moved so far: bytes
// that TCP has received in order, and that it has sent at least once.
type ConnBytes struct {
	Local  net.Addr
	Rx, Tx uint64
}
