// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"mpbond/api"
	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/unit"
	"mpbond/control/policy"
	"mpbond/link/wire"
)

// TestRoles checks findings of single roles.
func TestRoles(t *testing.T) {
	lost := &Problem{Text: "connection refused", Hint: "is it on?"}
	for name, c := range map[string]struct {
		f             Facts
		what, subject string
		level         Level
		kind          fault.Kind
	}{
		"helper": {Facts{Role: identity.RoleHelper, Running: true,
			Pipes: []Pipe{{Device: "laptop", Address: "a", Ready: true}}}, "none", "", OK, ""},
		"helper without pipe": {Facts{Role: identity.RoleHelper, Running: true,
			Pipes: []Pipe{{Device: "laptop", Address: "a", Problem: lost}}},
			"pipe", "laptop at a", Bad, fault.Unreachable},
		"helper with another pipe": {Facts{Role: identity.RoleHelper, Running: true,
			Pipes: []Pipe{{Device: "laptop", Address: "a", Problem: lost}, {Device: "laptop", Address: "b",
				Ready: true}}},
			"none", "", OK, ""},
		"helper of nobody": {Facts{Role: identity.RoleHelper, Running: true}, "pipe", "", Bad, fault.Unreachable},
		"helper that is cut off": {Facts{Role: identity.RoleHelper, Running: true,
			Pipes: []Pipe{{Device: "laptop", Address: "a", Ready: true}},
			Server: Server{Addresses: []Address{{At: "x:1", IP: "192.0.2.1",
				Problem: &Problem{Kind: fault.Timeout, Text: "no answer"}}}}}, "server", "x:1 (192.0.2.1)", Bad,
			fault.Timeout},
		"helper that does not run": {Facts{Role: identity.RoleHelper}, "helper", "", Bad, fault.Unreachable},
		"server": {Facts{Role: identity.RoleServer, Running: true,
			Primaries: []Primary{{Name: "laptop", Subflows: 2}, {Name: "old"}}}, "none", "", OK, ""},
		"server with a silent subflow": {Facts{Role: identity.RoleServer, Running: true,
			Primaries: []Primary{{Name: "laptop", Subflows: 2, Silent: 1}}},
			"subflow", "laptop", Warn, ""},
		"server that does not run": {Facts{Role: identity.RoleServer}, "server", "", Bad, fault.Unreachable},
		"another release": {Facts{Role: identity.RoleServer, Running: true, RunningVersion: "0.9"},
			"version", "server", Warn, ""},
		"primary that cannot start": {Facts{Ports: []Port{{"apps", "127.0.0.1:1080", lost}}}, "port",
			"127.0.0.1:1080", Bad, fault.Other},
	} {
		if c.f.Role != identity.RoleServer {
			c.f.Host.Uplinks = []string{"eth0"}
		}
		r := Evaluate(c.f)
		if v := r.Bottleneck; v.What != c.what || v.Subject != c.subject || v.Level != c.level || r.Kind != c.kind {
			t.Errorf("%s: %+v, kind %q", name, v, r.Kind)
		}
		for _, n := range r.Findings {
			if n.Level == Bad && !slices.Contains(causeOrder, n.Check) {
				t.Errorf("%s: %q has no place among the causes", name, n.Check)
			}
		}
	}
}

// TestFromStatus checks the conversion of a role's status to facts.
func TestFromStatus(t *testing.T) {
	st := api.Status{
		Pipes: []api.Pipe{{Device: "phone", Address: "a", Via: "wlan0", State: api.PipeCarries},
			{Device: "phone", Address: "b", State: api.PipeWaits, RTTms: 5},
			{Device: "tab", Address: "c", State: api.PipeRetrying, Error: "refused", Hint: "x"},
			{Device: "tab", Address: "d", State: api.PipeStarting}},
		Devices: []api.Device{{Name: "me", Self: true, Roles: []string{"primary"}},
			{Name: "laptop", Roles: []string{"primary"}, Subflows: 2}, {Name: "phone", Roles: []string{"helper"}}},
		Bonds: []api.Bond{{Peer: "laptop", Subflows: []api.Subflow{{State: api.Silent}, {State: api.Up}}}},
	}
	l := pipesFromStatus(st)
	if len(l) != 4 || !l[0].Carries || !l[0].Ready || l[1].RTT != 5*time.Millisecond || !l[1].Ready ||
		l[1].Carries || l[2].Ready || l[2].Problem.Hint != "x" || l[3].Ready {
		t.Errorf("%+v", l)
	}
	st.Cells = []api.Cells{{Interface: "wwan0", Receiving: true}, {Interface: "wwan1", Reason: "stale", RNTI: 7}}
	r := Evaluate(Facts{Cells: cellsFromStatus(st)})
	if !slices.ContainsFunc(r.Findings, func(f Finding) bool {
		return f.Check == "cells" && f.Subject == "wwan1" && f.Level == Warn && strings.HasSuffix(f.Text, ": stale")
	}) || slices.ContainsFunc(r.Findings, func(f Finding) bool { return f.Subject == "wwan0" }) {
		t.Errorf("cells: %+v", r.Findings)
	}
	if d := primariesFrom(st); len(d) != 1 || d[0] != (Primary{Name: "laptop", Subflows: 2, Silent: 1}) {
		t.Errorf("%+v", d)
	}
}

// TestPorts checks that a port in use is reported and a free one is not kept.
func TestPorts(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	p := Config{Ports: []Port{{What: "apps", At: taken.Addr().String()}, {What: "helpers", At: "127.0.0.1:0"}}}
	list := checkPorts(context.Background(), p)
	if len(list) != 2 || list[0].Problem == nil || list[0].Problem.Kind != fault.AlreadyRunning ||
		list[1].Problem != nil {
		t.Errorf("%+v", list)
	}
}

// TestInterfaces checks that the interfaces are those of the configuration, or of the system.
func TestInterfaces(t *testing.T) {
	h := Host{Uplinks: []string{"wlan0", "wwan0"}}
	for _, c := range []struct{ configured, want []string }{
		{nil, []string{""}}, {[]string{"auto"}, h.Uplinks}, {[]string{"eth7"}, []string{"eth7"}},
	} {
		if got := (Config{Interfaces: c.configured}).directInterfaces(h); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v", c.configured, got)
		}
	}
	if got := (Config{Interfaces: []string{"auto"}}).directInterfaces(Host{}); !slices.Equal(got, []string{""}) {
		t.Errorf("no uplink: %v", got)
	}
}

// TestMergeLastHop checks that the samples of both ends are merged.
func TestMergeLastHop(t *testing.T) {
	l := Subflow{Hops: []Hop{{Name: HopPSPath, RTT: 60 * time.Millisecond, MTU: 1500, Packets: 10, Retransmitted: 1}}}
	l.mergeLastHop(&api.Hop{MinRTTms: 50, MTU: 1400, Packets: 20, Retransmitted: 2, RejectedReports: 4})
	if h := l.Hops[0]; h.RTT != 50*time.Millisecond || h.MTU != 1400 || h.Packets != 30 ||
		h.Retransmitted != 3 || h.RejectedReports != 4 {
		t.Errorf("%+v", h)
	}
	l = Subflow{Helper: true, Hops: []Hop{{Name: HopPipe, MTU: 1500}, {Name: HopHSPath}}}
	l.mergeLastHop(&api.Hop{MinRTTms: 70, MTU: 1400})
	if l.Hops[0] != (Hop{Name: HopPipe, MTU: 1500}) || l.Hops[1].MTU != 1400 || l.Hops[1].RTT != 70*time.Millisecond {
		t.Errorf("%+v", l.Hops)
	}
	l.mergeLastHop(nil)
	if minKnownValue(unit.Bytes(0), 5) != 5 || minKnownValue(unit.Bytes(4), 0) != 4 ||
		minKnownValue(unit.Bytes(4), 3) != 3 {
		t.Error("least")
	}
}

// TestCostly checks that subflows that cost money, are backups or have a cap are measured only on
// request, whatever the source of that knowledge.
func TestCostly(t *testing.T) {
	yes, backup := true, wire.TierBackup
	file := func(devices map[string]policy.DeviceSpec) func(string) policy.DeviceSpec {
		return func(name string) policy.DeviceSpec { return devices[name] }
	}
	both := []string{"wlan0", "wwan0"}
	known := &api.KnownFacts{Facts: api.Facts{Metered: &yes}, Interface: "wwan0"}
	phone := []identity.Peer{{Name: "phone"}}
	for name, c := range map[string]struct {
		p    Config
		st   api.Status
		want []bool // per subflow
	}{
		"none says so": {Config{Helpers: phone}, api.Status{}, []bool{false, false}},
		"the configuration": {Config{Helpers: phone, Interfaces: []string{"wlan0", "wwan0"},
			Metered: []string{"wwan0", "phone"}}, api.Status{}, []bool{false, true, true}},
		"the device itself": {Config{Interfaces: []string{"wlan0", "wwan0"}},
			api.Status{Devices: []api.Device{{Self: true, Facts: known}}}, []bool{false, true}},
		"by the only way out": {Config{}, api.Status{Devices: []api.Device{{Self: true, Facts: known}}}, []bool{true}},
		"the helper": {Config{Helpers: phone},
			api.Status{Devices: []api.Device{{Self: true}, {Name: "phone", Facts: known}}}, []bool{false, true}},
		"the running primary": {Config{Helpers: phone},
			api.Status{Bonds: []api.Bond{{Subflows: []api.Subflow{{Device: "laptop", Metered: true},
				{Device: "phone", Metered: true}}}}}, []bool{true, true}},
		"backups": {Config{Helpers: phone},
			api.Status{Bonds: []api.Bond{{Subflows: []api.Subflow{{Device: "laptop", Tier: "backup"},
				{Device: "phone", Tier: "backup"}}}}}, []bool{true, true}},
		"secondary ones": {Config{Helpers: phone},
			api.Status{Bonds: []api.Bond{{Subflows: []api.Subflow{{Device: "laptop", Tier: "secondary"},
				{Device: "phone", Tier: "secondary"}}}}}, []bool{false, false}},
		"a cap of a link": {Config{Interfaces: both},
			api.Status{Caps: []api.Cap{{Name: "wwan0"}, {Name: "phone"}}}, []bool{false, true}},
		"a cap of all": {Config{Interfaces: both}, api.Status{Name: "me", Caps: []api.Cap{{Name: "me"}}},
			[]bool{true, true}},
		"a file's cap": {Config{Interfaces: both,
			Policy: file(map[string]policy.DeviceSpec{"wwan0": {Caps: policy.Caps{Daily: 1}}})}, api.Status{},
			[]bool{false, true}},
		"a file's cap of all": {
			Config{Policy: file(map[string]policy.DeviceSpec{"laptop": {Caps: policy.Caps{Daily: 1}}})},
			api.Status{}, []bool{true}},
		"a cap of the host": {Config{Host: "host",
			Policy: file(map[string]policy.DeviceSpec{"host": {Caps: policy.Caps{Daily: 1}}})}, api.Status{},
			[]bool{true}},
		"a file's backup": {Config{Interfaces: both,
			Policy: file(map[string]policy.DeviceSpec{"wwan0": {Limits: policy.Limits{Tier: &backup}}})},
			api.Status{}, []bool{false, true}},
		"a file's money": {Config{Interfaces: both,
			Policy: file(map[string]policy.DeviceSpec{"laptop": {Limits: policy.Limits{Metered: &yes}},
				// The link's own table comes first.
				"wlan0": {Limits: policy.Limits{MaxTemperature: 50}}})}, api.Status{}, []bool{false, true}},
	} {
		var f Facts
		c.p.Name, c.p.Progress = "laptop", func(string) {}
		c.p.measureDirectSubflows(t.Context(), &f, c.st) // there is no server, so nothing is called
		c.p.measureHelpedSubflows(t.Context(), &f, c.st)
		var got []bool
		for _, l := range f.Subflows {
			got = append(got, l.rateSkipReason() != "")
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v", name, f.Subflows)
		}
	}
	for _, l := range []Subflow{{Metered: true}, {Backup: true}, {Capped: true}} {
		if (Config{Rates: true}).shouldMeasureRates(&l) || l.NotMeasured == "" ||
			!(Config{Rates: true, MeteredRates: true}).shouldMeasureRates(&l) {
			t.Errorf("%+v", l)
		}
	}
}

// TestRefusing checks that a helper that refuses by its settings, or is suspended here, is not a
// failure.
func TestRefusing(t *testing.T) {
	for _, l := range []Subflow{{Refuses: "the battery is at 12 %"}, {Suspended: "paused by its owner"}} {
		l.Name, l.Helper = "phone", true
		f := healthyFacts()
		f.Subflows[1] = l
		r := Evaluate(f)
		if r.Kind != "" || !slices.ContainsFunc(r.Findings, func(n Finding) bool {
			return n.Check == "helper" &&
				n.Level == Note
		}) {
			t.Errorf("%+v", r)
		}
	}
	var g Facts
	p := Config{Helpers: []identity.Peer{{Name: "phone"}}, Progress: func(string) {}}
	p.measureHelpedSubflows(t.Context(), &g, api.Status{Devices: []api.Device{{Name: "phone",
		Suspended: "paused", Facts: &api.KnownFacts{Refuses: "low"}}}})
	if len(g.Subflows) != 1 || g.Subflows[0].Refuses != "low" || g.Subflows[0].Suspended != "paused" {
		t.Errorf("%+v", g.Subflows)
	}
}
