// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"slices"
	"strings"
	"testing"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
)

// healthyFacts describes a device with a direct and a helped subflow and no problems.
func healthyFacts() Facts {
	hop := func(name string, rtt time.Duration) Hop {
		return Hop{Name: name, RTT: rtt, Packets: 5000, Retransmitted: 10, MTU: 1500}
	}
	rate := func(r unit.Rate, limit string) Rate { return Rate{Bps: r, Limit: limit, Bytes: 2 * unit.MB} }
	return Facts{Version: "1", RunningVersion: "1", Running: true, RatesMeasured: true,
		Host: Host{Uplinks: []string{"wlan0"}, IPv6: true, BusyCPU: 0.2, OwnCPU: 0.1, ReadBuffer: 16 * unit.MB,
			WriteBuffer: 16 * unit.MB,
			Congestion:  "cubic", Features: []Feature{{"run", ""}, {"tun", ""}}},
		Server: Server{Name: "home", Version: "1", HasAnswered: true, IPv6: true,
			ClockAhead: -100 * time.Millisecond, ClockError: 25 * time.Millisecond,
			Addresses: []Address{{At: "home.example:7600", IP: "2001:db8::1", RTT: 50 * time.Millisecond},
				{At: "home.example:7600", IP: "198.51.100.1", RTT: 50 * time.Millisecond}}},
		Subflows: []Subflow{
			{Name: "laptop", Up: true, Local: "192.168.0.2:5000", Seen: "203.0.113.1:5000",
				Hops:     []Hop{hop(HopPSPath, 50*time.Millisecond)},
				DownRate: rate(8*unit.Mbps, HopPSPath), UpRate: rate(8*unit.Mbps, HopPSPath)},
			{Name: "phone", Helper: true, Up: true, Seen: "203.0.113.2:5000",
				Hops:     []Hop{hop(HopPipe, 5*time.Millisecond), hop(HopHSPath, 70*time.Millisecond)},
				DownRate: rate(9*unit.Mbps, HopHSPath), UpRate: rate(9*unit.Mbps, HopHSPath)},
		}}
}

// TestVerdict checks that each problem is named as the bottleneck, before its effects, with advice
// if there is any.
func TestVerdict(t *testing.T) {
	dead := &Problem{Kind: fault.Timeout, Text: "no answer", Hint: "check it"}
	noServer := func(f *Facts) {
		for i := range f.Server.Addresses {
			f.Server.Addresses[i].Problem = dead
		}
		f.Server.HasAnswered = false
		for i := range f.Subflows {
			f.Subflows[i] = Subflow{Name: f.Subflows[i].Name, Helper: f.Subflows[i].Helper, Problem: dead}
		}
	}
	for name, c := range map[string]struct {
		break_        func(*Facts)
		what, subject string
		level         Level
		kind          fault.Kind
		says          string
	}{
		"healthy": {func(*Facts) {}, "ps_path", "PS-path by laptop", Note, "",
			"the PS-path by laptop carries 8 Mbit/s, the lowest rate of all"},
		"not rated": {func(f *Facts) {
			f.RatesMeasured, f.Subflows[0].DownRate, f.Subflows[0].UpRate, f.Subflows[1].DownRate,
				f.Subflows[1].UpRate = false, Rate{}, Rate{}, Rate{}, Rate{}
		}, "none", "", OK, "", "nothing is wrong; rates were not measured"},
		"pipe": {func(f *Facts) { f.Subflows[1].DownRate = Rate{Bps: unit.Mbps, Limit: HopPipe} },
			"pipe", "pipe to phone", Warn, "",
			"the pipe to phone carries 1 Mbit/s, while another path carries 8 Mbit/s"},
		"pipe, upwards": {func(f *Facts) { f.Subflows[1].UpRate = Rate{Bps: unit.Mbps, Limit: HopPipe} },
			"pipe", "pipe to phone", Warn, "", "1 Mbit/s"},
		"pipe, a little": {func(f *Facts) { f.Subflows[1].DownRate = Rate{Bps: 7 * unit.Mbps, Limit: HopPipe} },
			"pipe", "pipe to phone", Note, "", "the lowest rate of all"},
		"HS-path": {func(f *Facts) { f.Subflows[1].DownRate = Rate{Bps: unit.Mbps, Limit: HopHSPath} },
			"hs_path", "HS-path of phone", Warn, "", "1 Mbit/s"},
		"PS-path": {func(f *Facts) { f.Subflows[0].DownRate = Rate{Bps: unit.Mbps, Limit: HopPSPath} },
			"ps_path", "PS-path by laptop", Warn, "", "9 Mbit/s"},
		"no rate of one": {func(f *Facts) {
			f.Subflows[0].DownRate, f.Subflows[0].UpRate = Rate{Limit: HopPSPath, Problem: dead},
				Rate{Limit: HopPSPath, Problem: dead}
		},
			"hs_path", "HS-path of phone", Note, "", "carries 9 Mbit/s"},
		"only way": {func(f *Facts) { f.Subflows = f.Subflows[:1] }, "ps_path", "PS-path by laptop", Note, "",
			"is the only path"},
		"slow, and the processor busy": {func(f *Facts) {
			f.Host.BusyCPU, f.Subflows[1].DownRate = 0.99, Rate{Bps: unit.Mbps, Limit: HopPipe}
		},
			"pipe", "pipe to phone", Warn, "", "rates may be too low"},
		"setup": {func(f *Facts) {
			*f = Facts{Setup: &Problem{Kind: fault.Permission, Text: "others can read the key", Hint: "chmod"}}
		}, "configuration", "", Bad, fault.Permission, "others can read"},
		"no uplink": {func(f *Facts) { f.Host.Uplinks = nil; noServer(f) }, "uplink", "", Bad,
			fault.Unreachable, "default route"},
		"portal": {func(f *Facts) {
			noServer(f)
			f.Server.Addresses[1].Portal = "web pages are redirected to login.example"
		},
			"portal", "home.example:7600", Bad, fault.Unreachable, "login.example"},
		"server": {noServer, "server", "home.example:7600 (2001:db8::1)", Bad, fault.Timeout, "no answer"},
		"refused": {func(f *Facts) {
			noServer(f)
			f.Server.Addresses[0].Problem = &Problem{Kind: fault.UnknownDevice, Text: "refused: unknown device"}
		},
			"server", "home.example:7600 (2001:db8::1)", Bad, fault.UnknownDevice, "home does not know this device"},
		"helper": {func(f *Facts) { f.Subflows[1] = Subflow{Name: "phone", Helper: true} }, "helper", "phone",
			Bad, fault.Unreachable, "phone does not call TCP port 7602 of this device"},
		"helper refused": {func(f *Facts) {
			f.Subflows[1] = Subflow{Name: "phone", Helper: true,
				Problem: &Problem{Text: "refused: not one of its servers"}}
		},
			"helper", "phone", Bad, fault.Unreachable, "not one of its servers"},
		"helper of another version": {func(f *Facts) {
			f.Subflows[1] = Subflow{Name: "phone", Helper: true,
				Problem: &Problem{Text: "refused: version 5 here, 4 there: upgrade mpbond on phone"}}
			f.Refused = []Refused{{Device: "phone", Here: true,
				Reason: "version 5 here, 4 there: upgrade mpbond on phone"}}
		}, "refused", "phone", Bad, fault.Protocol, "upgrade mpbond on phone"},
		"cells": {func(f *Facts) { f.Cells = []Cells{{"wwan0", "RNTI 0x4601 is stale", true}} }, "ps_path",
			"PS-path by laptop",
			Note, "", ""},
		"unknown device calls": {func(f *Facts) {
			f.Refused = []Refused{{Address: "10.0.0.9:1", Here: true,
				Reason: "unknown device"}}
		},
			"ps_path", "PS-path by laptop", Note, "", ""},
		"one interface": {func(f *Facts) { f.Subflows[0] = Subflow{Name: "laptop/wwan0", Problem: dead} },
			"subflow", "laptop/wwan0", Bad, fault.Timeout, "no answer"},
		"names": {func(f *Facts) { f.Host.Names = dead }, "names", "", Bad, fault.Other,
			"resolver does not answer"},
		"names at the server": {func(f *Facts) { f.Server.Names = dead }, "names", "server", Bad, fault.Other,
			"do not resolve at the server"},
		"names and server": {func(f *Facts) { f.Host.Names = dead; noServer(f) }, "server",
			"home.example:7600 (2001:db8::1)", Bad, fault.Timeout, "no answer"},
		"no name server": {func(f *Facts) { f.Host.NoResolver = true }, "ps_path", "PS-path by laptop",
			Note, "", ""},
		"clock": {func(f *Facts) { f.Server.ClockAhead = 2 * time.Hour }, "clock", "", Bad,
			fault.Other, "2h0m0s behind the server's"},
		"clock, other way": {func(f *Facts) { f.Server.ClockAhead = -2 * time.Hour }, "clock", "", Bad,
			fault.Other, "2h0m0s ahead of the server's"},
		"black hole": {func(f *Facts) { f.Subflows[0].DownRate = Rate{Stalled: true, Problem: dead} },
			"mtu", "laptop", Bad, fault.Other, "long packets seem to be lost"},
		"black hole for TLS": {func(f *Facts) { noServer(f); f.Server.Addresses[1].BlackHole = true }, "mtu",
			"home.example:7600 (198.51.100.1)", Bad, fault.Other, "short packets only"},
		"small MTU": {func(f *Facts) {
			f.Subflows[1].Hops[1].MTU, f.Subflows[0].DownRate, f.Subflows[0].UpRate, f.Subflows[1].DownRate,
				f.Subflows[1].UpRate = 1200, Rate{}, Rate{}, Rate{}, Rate{}
		}, "mtu", "HS-path of phone", Warn, "", "at most 1200 bytes"},
		"loss": {func(f *Facts) { f.Subflows[0].Hops[0].Retransmitted = 500 }, "loss",
			"PS-path by laptop", Warn, "", "10.0 % of the packets on the PS-path by laptop"},
		"forged reports": {func(f *Facts) { f.Subflows[1].Hops[1].RejectedReports = 7 }, "forged",
			"HS-path of phone", Warn, "", "forges reports of phone: the server ignored 7 of them"},
		"loss that is no limit": {func(f *Facts) { f.Subflows[1].Hops[0].Retransmitted = 500 }, "ps_path",
			"PS-path by laptop", Note, "", ""},
		"own processor": {func(f *Facts) { f.Host.OwnCPU = 0.97 }, "processor", "", Warn, "",
			"97 % of a processor"},
		"buffer": {func(f *Facts) { f.Host.ReadBuffer = 64 * unit.KB }, "buffer", "tcp_rmem",
			Warn, "", "may buffer 64 KB"},
		"silent subflow": {func(f *Facts) { f.Subflows[1].Silent = true }, "subflow", "phone", Warn, "",
			"makes no progress"},
		"version": {func(f *Facts) {
			f.Server.Version, f.Subflows[0].DownRate, f.Subflows[0].UpRate, f.Subflows[1].DownRate,
				f.Subflows[1].UpRate = "0.9", Rate{}, Rate{}, Rate{}, Rate{}
		}, "version", "server", Warn, "", "0.9"},
	} {
		f := healthyFacts()
		c.break_(&f)
		r := Evaluate(f)
		v := r.Bottleneck
		if v.What != c.what || v.Subject != c.subject || v.Level != c.level || r.Kind != c.kind ||
			!strings.Contains(v.Text, c.says) {
			t.Errorf("%s: %+v, kind %q", name, v, r.Kind)
		}
		if v.Advice == "" && v.Level != OK && name != "refused" && name != "subflow" {
			t.Errorf("%s: no advice: %+v", name, v)
		}
		for _, n := range r.Findings {
			if n.Level == Bad && !slices.Contains(causeOrder, n.Check) {
				t.Errorf("%s: %q has no place among the causes", name, n.Check)
			}
		}
	}
}

// TestFindings checks findings other than the bottleneck.
func TestFindings(t *testing.T) {
	has := func(f Facts, check, subject string, level Level, text string) {
		t.Helper()
		r := Evaluate(f)
		if !slices.ContainsFunc(r.Findings, func(n Finding) bool {
			return n.Check == check && n.Subject == subject && n.Level == level && strings.Contains(n.Text, text)
		}) {
			t.Errorf("no %s %s %s %q in %+v", level, check, subject, text, r.Findings)
		}
	}
	f := healthyFacts()
	has(f, "nat", "laptop", OK, "a NAT: the server sees 203.0.113.1 instead of 192.168.0.2")
	has(f, "nat", "phone", OK, "its helper at 203.0.113.2")
	has(f, "clock", "", OK, "agree")
	has(f, "ipv6", "server", OK, "IPv6")
	has(f, "server", "home.example:7600 (2001:db8::1)", OK, "50ms")
	f.Subflows[0].Local = "100.64.3.4:1"
	has(f, "nat", "laptop", OK, "of the provider")
	f.Subflows[0].Seen = "100.64.3.4:9"
	has(f, "nat", "laptop", OK, "no NAT")
	f.Server.Addresses[0].Problem = &Problem{Text: "no route"}
	has(f, "server", "home.example:7600 (2001:db8::1)", Warn, "no route")
	f.Server.Addresses = f.Server.Addresses[1:]
	has(f, "ipv6", "to the server", Note, "IPv4 addresses only")
	f.Server.IPv6, f.Host.IPv6 = false, false
	has(f, "ipv6", "server", Note, "no IPv6")
	has(f, "ipv6", "", Note, "no IPv6")
	f.Host.Features[1].Missing = "it requires root"
	has(f, "feature", "tun", Note, "cannot be used: it requires root")
	f.Subflows[0].Hops[0].MTU = 1380
	has(f, "mtu", "PS-path by laptop", Note, "1380")
	f.Subflows[1].NotMeasured = "its data costs money"
	has(f, "rate", "phone", Note, "costs money")
	f.Running = false
	has(f, "primary", "", Note, "no primary runs")
	f.Server.ClockAhead = 3 * time.Minute
	has(f, "clock", "", Warn, "3m0s behind")
	f.Server.ClockError = 10 * time.Minute // the measurement was less accurate
	has(f, "clock", "", OK, "agree")
}

// TestSubflowReports checks that the limiting hop of a subflow has a rate and the other hop a lower
// bound.
func TestSubflowReports(t *testing.T) {
	f := healthyFacts()
	f.Subflows[1].UpRate.Limit = HopPipe
	r := Evaluate(f)
	if len(r.Subflows) != 2 || !r.Subflows[0].NAT || r.Subflows[1].NAT || r.Subflows[0].Kind != "direct" ||
		r.Subflows[1].Kind != "helped" {
		t.Fatalf("%+v", r.Subflows)
	}
	pipe, hs := r.Subflows[1].Hops[0], r.Subflows[1].Hops[1]
	if !pipe.DownAtLeast || pipe.UpAtLeast || hs.DownAtLeast || !hs.UpAtLeast || pipe.DownBps != 9*unit.Mbps {
		t.Errorf("%+v", r.Subflows[1])
	}
	if r := Evaluate(Facts{Setup: &Problem{}}); r.Subflows == nil || r.Findings == nil {
		t.Error("null in JSON")
	}
}

// TestPortal checks that a web server on the server's host is not taken for a portal.
func TestPortal(t *testing.T) {
	for _, c := range []struct {
		status   int
		location string
		kind     fault.Kind
		portal   bool
	}{
		{302, "http://login.example/?to=x", fault.Timeout, true},
		{302, "http://login.example/", fault.Protocol, true},
		{302, "http://login.example/", fault.UnknownDevice, false}, // mpbond itself refused
		{301, "https://192.0.2.1/", fault.Timeout, false},
		{301, "https://vps.example/", fault.Timeout, false},
		{301, "/index.html", fault.Timeout, false},
		{301, "https://elsewhere.example/", fault.Unreachable, false},
		{511, "", fault.Timeout, true},
		{200, "", fault.Timeout, false},
		{200, "", fault.Protocol, true},
		{200, "", fault.WrongKey, true},
		{404, "", fault.Unreachable, false},
	} {
		if got := classifyPortal(c.status, c.location, []string{"", "vps.example", "192.0.2.1"},
			c.kind); (got != "") != c.portal {
			t.Errorf("%+v: %q", c, got)
		}
	}
}

// TestTransport checks the findings about UDP: in use, or why not.
func TestTransport(t *testing.T) {
	for name, c := range map[string]struct {
		sf    Subflow
		level Level
		says  string
	}{
		"udp": {Subflow{UDP: true}, OK, "uses UDP"},
		"blocked": {Subflow{WhyNotUDP: "no answer over UDP"}, Note,
			"uses TCP instead of the configured UDP: no answer"},
		"tcp": {Subflow{}, OK, ""},
	} {
		f := healthyFacts()
		f.Subflows[0].UDP, f.Subflows[0].WhyNotUDP = c.sf.UDP, c.sf.WhyNotUDP
		var found []Finding
		for _, x := range Evaluate(f).Findings {
			if x.Check == "transport" {
				found = append(found, x)
			}
		}
		if c.says == "" {
			if len(found) > 0 {
				t.Errorf("%s: %+v", name, found)
			}
		} else if len(found) != 1 || found[0].Subject != "laptop" || found[0].Level != c.level ||
			!strings.Contains(found[0].Text, c.says) {
			t.Errorf("%s: %+v", name, found)
		}
	}
}
