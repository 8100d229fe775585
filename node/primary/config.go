package primary

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"mpbond/base/fault"
	"mpbond/control/device"
	"mpbond/control/policy"
	"mpbond/core/sched"
	"mpbond/link/pipe"
	"mpbond/link/tcp"
	"mpbond/node/dial"
)

// Config is the primary's configuration; the toml tags are the file's keys.
type Config struct {
	// Name is what this device is called in status output; empty is the host's.
	Name string `toml:"name"`
	// Server names the server in the trust file; it may be left out when there
	// is just one.
	Server string `toml:"server"`
	// Proxy is where apps find the SOCKS5 and HTTP proxy, "host:port"; empty is
	// none.
	Proxy string `toml:"proxy"`
	// Direct connects without the bond where the server may not or cannot reach
	// a destination. Left out, it is so only while the proxy is on loopback:
	// else whoever reaches the proxy would reach this device's networks.
	Direct *bool `toml:"direct"`
	// Transparent is the loopback port that `mpbond run` redirects to; 0 is
	// none.
	Transparent uint16 `toml:"transparent"`
	// Pipe is where helpers connect, "host:port"; several are separated by
	// commas, and "rfcomm://CHANNEL" is Bluetooth. Empty is nowhere.
	Pipe string `toml:"pipe"`
	// Interfaces each carry a direct subflow. ["auto"], which is the default, is each
	// interface that has a default route and is no tunnel, as they come and go;
	// while there is one alone, or none, or the server is reached otherwise, one
	// subflow goes by the system's routes. Empty is always that.
	Interfaces []string `toml:"interfaces"`
	// UDP are interfaces whose direct subflows go over UDP instead of TCP, where it gets
	// through and the server serves it (docs/explanation/pbe.md); "any" is each.
	UDP []string `toml:"udp"`
	// Cell tells, for interfaces of UDP, where the control messages of their mobile cells
	// are heard: a table for each, like [cell.wwan0].
	Cell map[string]device.Cell `toml:"cell"` // for the caller to listen to
	// Metered are interfaces and helpers whose data costs money: they carry
	// nothing while another one works.
	Metered []string `toml:"metered"`
	// Subflows is how many direct subflows each interface carries, 32 at most.
	Subflows int `toml:"subflows"`
	// Scheduler chooses the subflow for bytes to the server; see docs/explanation/schedulers.md.
	Scheduler string `toml:"scheduler"`
	// Latency and Redundant are rules for connections that must not wait, or go
	// over every subflow: "port:N", "port:N-M", "host:PATTERN", or "dscp:N" of the
	// first packet (of datagrams only with TUN). See docs/explanation/datapath.md.
	Latency   []string `toml:"latency"`
	Redundant []string `toml:"redundant"`
	// Policy is a file with rules for apps and destinations (docs/reference/policy.md); empty
	// is policy.toml beside this one.
	Policy string `toml:"policy"` // for the caller to read: PolicyFile.Use
	// Congestion is the congestion control of direct subflows and pipes, "pbe" that of those over UDP alone; empty
	// is the system's default.
	Congestion string `toml:"congestion"`
	// Reinject is the threshold η of reinjection (docs/explanation/datapath.md); negative
	// switches it off. It must not be 0.
	Reinject float64 `toml:"reinject"`
	// Resume is how long a helped subflow waits for another pipe when its own
	// broke, at most 60s.
	Resume Duration `toml:"resume"`
	// GiveUp is how long streams wait while there is no subflow at all. It must
	// be over 0.
	GiveUp Duration `toml:"give_up"`
	// TUN carries the whole machine, apps of all users: it needs rights of root
	// (docs/howto/install.md).
	TUN bool `toml:"tun"` // who starts a primary makes the device; its own sockets have tcp.OwnMark, to go around it
	// API is where requests over TCP and the web console (docs/howto/console.md) are answered, a loopback "host:port"; empty is none.
	API string `toml:"api"`
	// Usage counts what direct subflows and pipes carry; nil: nothing is counted.
	Usage *device.Usage `toml:"-"`
	// DialUDP connects over UDP; nil: it cannot.
	DialUDP dial.DialUDP `toml:"-"`
	// Allowed is what an own link, or a helper, may still carry; nil: there are no caps.
	Allowed func(of device.CapTarget) policy.Allowance `toml:"-"`
}

// Duration is a time.Duration that configuration writes like "60s".
type Duration time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(t []byte) error {
	v, err := time.ParseDuration(string(t))
	if _, number := strconv.ParseFloat(string(t), 64); err != nil && number == nil {
		return fmt.Errorf("%s has no unit (write it like \"%[1]ss\")", t)
	} else if err != nil {
		return fmt.Errorf("%q is no time (write it like \"60s\")", t)
	}
	*d = Duration(v)
	return nil
}

// socketMark is the mark of all sockets, 0 for none.
func (c Config) socketMark() int {
	if c.TUN {
		return tcp.OwnMark
	}
	return 0
}

// Default is the configuration that a file changes.
var Default = Config{Proxy: "127.0.0.1:1080", Transparent: 7601, Pipe: ":7602", Interfaces: []string{autoInterfaces}, Subflows: 1, Scheduler: sched.Default, Latency: []string{"dscp:46"},
	Reinject: 0.2, Resume: Duration(pipe.DefaultWindow), GiveUp: Duration(60 * time.Second)}

// What a file may say.
const (
	// A server takes 32 subflows of a bond, unless told otherwise.
	maxSubflows = 32
	// A number without a unit counts nanoseconds: shorter times are such mistakes.
	minDuration = Duration(time.Millisecond)
)

// validate returns what is wrong with the configuration, but for the rules in Latency and
// Redundant.
func (c Config) validate() error {
	if _, err := sched.New(c.Scheduler); err != nil {
		return fault.New(fault.Config, err, "set `scheduler` to one of them")
	}
	switch {
	case c.Subflows < 0 || c.Subflows > maxSubflows:
		return fault.New(fault.Config, fmt.Errorf("%d subflows for each interface", c.Subflows), fmt.Sprintf("set `subflows` to 1 to %d", maxSubflows))
	case c.Reinject == 0, math.IsNaN(c.Reinject): // 0 would be package bond's default
		return fault.New(fault.Config, fmt.Errorf("the reinjection threshold is %v", c.Reinject), "set `reinject` over 0, like 0.2, or below 0 to switch reinjection off")
	case c.Resume < 0 || c.Resume > Duration(time.Minute) || c.Resume > 0 && c.Resume < minDuration:
		return fault.New(fault.Config, fmt.Errorf("subflows would wait %v for a pipe", time.Duration(c.Resume)), "set `resume` to a time from 0 to \"60s\"; \"10s\" is usual")
	case slices.Contains(c.Interfaces, autoInterfaces) && len(c.Interfaces) > 1:
		return fault.New(fault.Config, fmt.Errorf("interfaces are %q", c.Interfaces), "write either names, or \"auto\" alone")
	case c.GiveUp < minDuration:
		return fault.New(fault.Config, fmt.Errorf("streams would give up after %v", time.Duration(c.GiveUp)), "set `give_up` to a time, like \"60s\"")
	}
	for _, name := range c.UDP {
		switch {
		case name != dial.Any && !slices.Contains(c.Interfaces, name) && !slices.Contains(c.Interfaces, autoInterfaces):
			return fault.New(fault.Config, fmt.Errorf("udp names %q, and interfaces do not", name), "name it in `interfaces` too, or write \"any\"")
		case c.DialUDP == nil:
			return fault.New(fault.Unsupported, errors.New("subflows cannot go over UDP here"), "leave `udp` out")
		}
	}
	return cmp.Or(dial.CheckCells(c.Cell, c.UDP), tcp.CheckCongestion(c.Congestion, len(c.UDP) > 0))
}
