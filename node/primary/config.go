// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"mpbond/base/config"
	"mpbond/base/fault"
	"mpbond/base/pace"
	"mpbond/control/device"
	"mpbond/control/fleet"
	"mpbond/control/policy"
	"mpbond/core/sched"
	"mpbond/link/pipe"
	"mpbond/link/tcp"
	"mpbond/node/dial"
)

// Config is the primary's configuration. The toml tags are the keys of the file.
type Config struct {
	// Name is the name of this device for subflows, in status output and events; empty is
	// "primary".
	Name string `toml:"name"`
	// Server is the name of the server in the trust file, or that of a fleet; empty is the only one there.
	Server string `toml:"server"`
	// LoadFleet reads the fleet that this device has joined, nil if there is none; it may be nil.
	LoadFleet func() (*fleet.Joined, error) `toml:"-"`
	// Proxy is the address of the SOCKS5 and HTTP proxy for apps, "host:port"; empty is none.
	Proxy string `toml:"proxy"`
	// Direct connects without the bond where the server must not or cannot reach a destination.
	// Left out, it applies only while the proxy is on loopback: otherwise clients of the proxy
	// could reach this device's networks.
	Direct *bool `toml:"direct"`
	// Transparent is the loopback port that `mpbond run` redirects to; 0 is none.
	Transparent uint16 `toml:"transparent"`
	// Pipe is the address where helpers connect, "host:port"; commas separate several, and
	// "rfcomm://CHANNEL" is Bluetooth. Empty is none.
	Pipe string `toml:"pipe"`
	// Interfaces are the interfaces with direct subflows. ["auto"], the default, uses each
	// interface that has a default route and is no tunnel, as they come and go. With only one such
	// interface, or if the server is reached by another route, one subflow follows the system's
	// routes. An empty list always does that.
	Interfaces []string `toml:"interfaces"`
	// UDP are the interfaces with direct subflows over UDP instead of TCP, where it gets through
	// and the server offers it (docs/explanation/pbe.md); "any" is all.
	UDP []string `toml:"udp"`
	// Cell are the sources of control messages of mobile cells, for interfaces that use UDP: a table
	// for each, like [cell.wwan0].
	Cell map[string]device.Cell `toml:"cell"` // for the caller, which starts the listeners
	// Metered are interfaces and helpers with data that costs money: they carry nothing while
	// another one works.
	Metered []string `toml:"metered"`
	// Subflows is the number of direct subflows of each interface, at most 32.
	Subflows int `toml:"subflows"`
	// Scheduler is the scheduler for bytes to the server; see docs/explanation/schedulers.md.
	Scheduler string `toml:"scheduler"`
	// Latency and Redundant are rules for connections that need low latency, or that use every
	// subflow: "port:N", "port:N-M", "host:PATTERN", or "dscp:N" of the first packet (of datagrams
	// only with --tun). See docs/explanation/latency.md.
	Latency   []string `toml:"latency"`
	Redundant []string `toml:"redundant"`
	// Policy is the file with rules for apps and destinations (docs/reference/policy.md); empty is
	// policy.toml beside this file.
	Policy string `toml:"policy"` // for the caller, which calls PolicyFile.Use
	// Congestion is the congestion control of direct subflows and pipes; "pbe" applies to those
	// over UDP only. Empty lets the losses of each hop choose between CUBIC and BBR
	// (docs/explanation/congestion.md).
	Congestion string `toml:"congestion"`
	// Reinject is the threshold η of reinjection (docs/explanation/schedulers.md); a negative value
	// switches it off. It must not be 0.
	Reinject float64 `toml:"reinject"`
	// Resume is how long a helped subflow waits for another pipe after its pipe broke, at most 60s.
	Resume config.Duration `toml:"resume"`
	// GiveUp is how long streams wait without any subflow. It must be positive.
	GiveUp config.Duration `toml:"give_up"`
	// TUN carries the whole machine, apps of all users. It needs root (docs/howto/install.md).
	TUN bool `toml:"tun"` // the caller makes the device; our own sockets bypass it with tcp.OwnMark
	// API is the loopback address for HTTP requests (docs/reference/api.md) and the web console
	// (docs/howto/console.md), "host:port"; empty is none.
	API string `toml:"api"`
	// Clock paces periodic work; nil: it never idles. Usage must wake it.
	Clock *pace.Clock `toml:"-"`
	// Usage counts the bytes of direct subflows and pipes; nil: no counting.
	Usage *device.Usage `toml:"-"`
	// DialUDP connects over UDP; nil: unsupported.
	DialUDP dial.DialUDP `toml:"-"`
	// Allowed returns what a local link or a helper may still carry; nil: no caps.
	Allowed func(of device.CapTarget) policy.Allowance `toml:"-"`
}

// socketMark returns the firewall mark of all sockets, 0 for none.
func (c Config) socketMark() int {
	if c.TUN {
		return tcp.OwnMark
	}
	return 0
}

// Default is the default configuration.
var Default = Config{
	Proxy:       "127.0.0.1:1080",
	Transparent: 7601,
	Pipe:        ":7602",
	Interfaces:  []string{autoInterfaces},
	Subflows:    1,
	Scheduler:   sched.Default,
	Latency:     []string{"dscp:46"},
	Reinject:    0.2,
	Resume:      config.Duration(pipe.DefaultResumeTimeout),
	GiveUp:      config.Duration(60 * time.Second),
}

// Limits of values.
const (
	// maxSubflows is the server's default limit for a bond.
	maxSubflows = 32
	// minDuration rejects numbers without a unit, which would count nanoseconds.
	minDuration = config.Duration(time.Millisecond)
)

// Validate returns the first problem of the configuration.
func (c Config) Validate() error {
	if _, err := sched.New(c.Scheduler); err != nil {
		return fault.New(fault.Config, err, "set `scheduler` to one of these")
	}
	switch {
	case c.Subflows < 0 || c.Subflows > maxSubflows:
		return fault.New(
			fault.Config,
			fmt.Errorf("%d subflows for each interface", c.Subflows),
			fmt.Sprintf("set `subflows` to 1 to %d", maxSubflows),
		)
	case c.Reinject == 0, math.IsNaN(c.Reinject): // package bond would use its default
		return fault.New(
			fault.Config,
			fmt.Errorf("the reinjection threshold is %v", c.Reinject),
			"set `reinject` to a positive value, like 0.2, or to a negative one to switch it off",
		)
	case c.Resume < 0 || c.Resume > config.Duration(time.Minute) || c.Resume > 0 && c.Resume < minDuration:
		return fault.New(
			fault.Config,
			fmt.Errorf("subflows would wait %v for a pipe", time.Duration(c.Resume)),
			"set `resume` to a time from 0 to \"60s\"; \"10s\" is usual",
		)
	case slices.Contains(c.Interfaces, autoInterfaces) && len(c.Interfaces) > 1:
		return fault.New(
			fault.Config,
			fmt.Errorf("invalid interfaces %q", c.Interfaces),
			"write either names, or \"auto\" alone",
		)
	case c.GiveUp < minDuration:
		return fault.New(
			fault.Config,
			fmt.Errorf("streams would give up after %v", time.Duration(c.GiveUp)),
			"set `give_up` to a time, like \"60s\"",
		)
	}
	for _, name := range c.UDP {
		switch {
		case name != dial.Any && !slices.Contains(c.Interfaces, name) && !slices.Contains(c.Interfaces, autoInterfaces):
			return fault.New(
				fault.Config,
				fmt.Errorf("udp lists %q, which interfaces does not", name),
				"add it to `interfaces`, or write \"any\"",
			)
		case c.DialUDP == nil:
			return fault.New(
				fault.Unsupported,
				errors.New("subflows over UDP are not supported here"),
				"leave `udp` out",
			)
		}
	}
	_, err := c.compileSettings()
	return cmp.Or(dial.CheckCells(c.Cell, c.UDP), tcp.CheckCongestion(c.Congestion, len(c.UDP) > 0), err)
}

// compileSettings returns the rules in Latency and Redundant.
func (c Config) compileSettings() (*policy.Rules, error) {
	rules, err := policy.CompileSettings(c.Latency, c.Redundant)
	return rules, fault.New(fault.Config, err, "correct `latency` or `redundant`")
}
