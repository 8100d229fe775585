// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"mpbond/api"
	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/unit"
	"mpbond/internal/cli"
	"mpbond/node/doctor"
)

// TestDoctorOfFiles checks that the doctor reports errors of files, also as JSON, and creates or
// changes no file.
func TestDoctorOfFiles(t *testing.T) {
	dir := newHome(t)
	bottleneck := func(code int, args ...string) doctor.Verdict {
		t.Helper()
		got, out, errs := runProgram(t, append([]string{"doctor", "--json"}, args...)...)
		var r doctor.Report
		if err := json.Unmarshal([]byte(out), &r); err != nil || got != code {
			t.Fatalf("code %d, want %d: %v: %s%s", got, code, err, out, errs)
		}
		return r.Bottleneck
	}
	if v := bottleneck(cli.ExitUsage); v.What != "configuration" ||
		v.Text != "this device is not paired with any other" ||
		!strings.Contains(v.Advice, "`mpbond pair CODE` and `mpbond primary` here") {
		t.Errorf("%+v", v)
	}
	if list, _ := os.ReadDir(dir); len(list) > 0 {
		t.Errorf("%v was made", list)
	}
	if _, err := identity.CreateKey(filepath.Join(dir, "device.key")); err != nil {
		t.Fatal(err)
	}
	if v := bottleneck(cli.ExitUsage); v.What != "configuration" ||
		v.Text != "this device is not paired with any other" ||
		!strings.Contains(v.Advice, "`mpbond pair CODE` and `mpbond primary` here") {
		t.Errorf("%+v", v)
	}
	if err := os.WriteFile(filepath.Join(dir, "primary.toml"), []byte("servr = 1\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if v := bottleneck(cli.ExitUsage); !strings.Contains(v.Text, "servr") || !strings.Contains(v.Advice, "server") {
		t.Errorf("%+v", v)
	}
	code, out, errs := runProgram(t, "doctor")
	if code != cli.ExitUsage || errs != "" || !strings.Contains(out, "bad  configuration  ") ||
		!strings.Contains(out, "\nbottleneck: ") || !strings.Contains(out, "\nwhat may help: ") {
		t.Errorf("code %d: %s%s", code, out, errs)
	}
	if err := os.Chmod(filepath.Join(dir, "device.key"), 0o644); err != nil {
		t.Fatal(err)
	}
	if v := bottleneck(cli.ExitRefused); !strings.Contains(v.Advice, "chmod 600") {
		t.Errorf("%+v", v)
	}
}

// TestDoctorOfServices checks the hint of a missing key if services have one that only root can
// read.
func TestDoctorOfServices(t *testing.T) {
	state, own := t.TempDir(), filepath.Join(t.TempDir(), cli.KeyFile)
	none := fault.New(fault.NotFound, errors.New("no key"), "make one")
	for _, c := range []struct {
		err         error
		path, state string
		want        string
	}{
		{none, own, state, "if mpbond is a service here run `sudo mpbond doctor`; else make one"},
		{none, own, filepath.Join(state, "none"), "make one"},
		{none, filepath.Join(state, cli.KeyFile), state, "make one"}, // root's own
		{fault.New(fault.Permission, errors.New("open"), "chmod"), own, state, "chmod"},
	} {
		if err := addServiceHint(c.err, c.path, c.state); fault.HintOf(err) != c.want ||
			fault.KindOf(err) != fault.KindOf(c.err) {
			t.Errorf("%v: hint %q, want %q", err, fault.HintOf(err), c.want)
		}
	}
}

// TestDoctorUnreachable checks the report if the server's address does not answer.
func TestDoctorUnreachable(t *testing.T) {
	newPairedHome(t)
	code, out, errs := runProgram(t, "doctor")
	if code != cli.ExitNoConnection || !strings.Contains(out, "bad   server 127.0.0.1:9") ||
		!strings.Contains(out, "refuses TCP port 9") || !strings.Contains(errs, "24 MB each way") {
		t.Errorf("code %d: %s%s", code, out, errs)
	}
	if code, out, errs := runProgram(t, "doctor", "--no-rate"); code != cli.ExitNoConnection || errs != "" {
		t.Errorf("code %d: %s%s", code, out, errs)
	}
	if code, _, errs := runProgram(t, "doctor", "--socket", "/nowhere"); code != cli.ExitNoConnection &&
		code != cli.ExitUsage {
		t.Errorf("code %d: %s", code, errs)
	}
}

// TestPrintReport checks each part of a report, without control characters from others.
func TestPrintReport(t *testing.T) {
	r := doctor.Report{Bottleneck: doctor.Verdict{What: "pipe", Text: "the pipe\x1b[2J is slow", Advice: "come nearer"},
		Findings: []doctor.Finding{{Check: "clock", Level: doctor.OK, Text: "agrees", Hint: "not shown"},
			{Check: "mtu", Subject: "ps", Level: doctor.Warn, Text: "small", Hint: "raise it"}},
		Subflows: []doctor.SubflowReport{
			{Name: "phone", Kind: "helped", Up: true, DownBps: 4 * unit.Mbps, UpBps: 2 * unit.Mbps,
				Hops: []doctor.HopReport{
					{Name: doctor.HopPipe, RTTms: 5.25, Loss: 0.012, MTU: 1500, DownBps: 4 * unit.Mbps,
						UpBps: 2 * unit.Mbps, UpAtLeast: true},
					{Name: doctor.HopHSPath, RTTms: 70, DownBps: 4 * unit.Mbps, DownAtLeast: true,
						UpBps: 2 * unit.Mbps}}},
			{Name: "tab", Kind: "helped"}}}
	var b bytes.Buffer
	if err := printDoctorReport(&b, r); err != nil {
		t.Fatal(err)
	}
	const want = `ok    clock   agrees
warn  mtu ps  small
                raise it

SUBFLOW  HOP      DOWN        UP          RTT      LOSS   MTU
phone    helped   4 Mbit/s    2 Mbit/s                    
         pipe     4 Mbit/s    ≥ 2 Mbit/s  5.25 ms  1.2 %  1500
         HS-path  ≥ 4 Mbit/s  2 Mbit/s    70 ms    0.0 %  -
tab      down     -           -                           

bottleneck: the pipe?[2J is slow
what may help: come nearer
`
	if got := b.String(); got != want {
		t.Errorf("%s", got)
	}
}

func TestRoleOf(t *testing.T) {
	newHome(t)
	trust, err := cli.OpenTrust()
	if err != nil {
		t.Fatal(err)
	}
	for running, want := range map[string]identity.Role{"": identity.RolePrimary, "dual": identity.RolePrimary,
		"primary": identity.RolePrimary, "helper": identity.RoleHelper, "server": identity.RoleServer} {
		if got := chooseRole(running, trust); got != want {
			t.Errorf("%q runs: %v", running, got)
		}
	}
	add := func(name string, r identity.Role, servers ...string) {
		t.Helper()
		k, err := identity.Generate()
		if err == nil {
			err = trust.Add(identity.Peer{Name: name, Roles: []identity.Role{r}, Key: k.Public(), Servers: servers,
				Addresses: []string{"192.0.2.1:7600"}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		add  func()
		want identity.Role
	}{
		{func() { add("laptop", identity.RolePrimary) }, identity.RoleServer},
		{func() { add("desk", identity.RolePrimary, "192.0.2.9:7600") }, identity.RoleHelper},
		{func() { add("home", identity.RoleServer) }, identity.RolePrimary},
	} {
		if c.add(); chooseRole("", trust) != c.want {
			t.Errorf("%v, want %v", chooseRole("", trust), c.want)
		}
	}
	if got := listHelpedServers(trust); len(got) != 2 || !slices.Contains(got, "192.0.2.9:7600") ||
		!slices.Contains(got, "192.0.2.1:7600") {
		t.Errorf("%v", got)
	}
}

// TestDirectSubflows: the direct subflows are those of the running primary, not of the file.
func TestDirectSubflows(t *testing.T) {
	p := doctor.Config{Name: "primary", Interfaces: []string{"eth7"}, Helpers: []identity.Peer{{Name: "phone"}},
		Now: time.Now}
	setDirectSubflows(api.Status{}, &p)
	if p.Name != "primary" || !slices.Equal(p.Interfaces, []string{"eth7"}) {
		t.Errorf("changed without a status: %+v", p)
	}
	setDirectSubflows(api.Status{Bonds: []api.Bond{{Subflows: []api.Subflow{{Device: "laptop/wlan0",
		Kind: api.Direct}, {Device: "laptop/wwan0", State: api.Down}, {Device: "phone", State: api.Down},
		{Device: "tab", Kind: api.Helped}, {Device: "laptop/wlan0", Kind: api.Direct}}}}}, &p)
	if p.Name != "laptop" || !slices.Equal(p.Interfaces, []string{"wlan0", "wwan0"}) {
		t.Errorf("%+v", p)
	}
	setDirectSubflows(api.Status{Bonds: []api.Bond{{Subflows: []api.Subflow{{Device: "laptop", Kind: api.Direct}}}}},
		&p)
	if p.Name != "laptop" || len(p.Interfaces) != 0 {
		t.Errorf("%+v", p)
	}
}

// TestServerOfRunning checks that the doctor examines the server that the running primary uses.
func TestServerOfRunning(t *testing.T) {
	newHome(t)
	trust, err := cli.OpenTrust()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"home", "work"} {
		k, err := identity.Generate()
		if err == nil {
			err = trust.Add(identity.Peer{Name: name, Roles: []identity.Role{identity.RoleServer}, Key: k.Public(),
				Addresses: []string{"192.0.2.1:7600"}})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var p doctor.Config
	if err := (doctorOptions{}).configurePrimary(&p, trust, api.Status{}); err == nil {
		t.Error("one of two servers was chosen by itself")
	}
	if err := (doctorOptions{}).configurePrimary(&p, trust,
		api.Status{Bonds: []api.Bond{{Peer: "work"}}}); err != nil || p.Server.Name != "work" {
		t.Errorf("%q, %v", p.Server.Name, err)
	}
}

// TestDoctorReadsPolicy checks that the doctor applies the policy file, and reports an invalid one
// unless a primary runs.
func TestDoctorReadsPolicy(t *testing.T) {
	dir := newPairedHome(t)
	trust, err := cli.OpenTrust()
	if err != nil {
		t.Fatal(err)
	}
	var p doctor.Config
	if err := (doctorOptions{}).configurePrimary(&p, trust, api.Status{}); err != nil || p.Policy != nil {
		t.Errorf("no file: %v", err)
	}
	other := filepath.Join(dir, "other.toml")
	for path, text := range map[string]string{filepath.Join(dir,
		"policy.toml"): "[device.wwan0]\ndaily_cap = \"1GB\"\n", other: "[device.wwan0]\ntier = \"bakup\"\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := (doctorOptions{}).configurePrimary(&p, trust, api.Status{}); err != nil || p.Policy == nil ||
		!p.Policy("wwan0").Caps.HasCap() || p.Policy("wlan0").Caps.HasCap() {
		t.Errorf("%v", err)
	}
	bad := api.Status{Policy: &api.PolicyStatus{File: other}}
	if err := (doctorOptions{}).configurePrimary(&p, trust, bad); err == nil ||
		!strings.Contains(err.Error(), "bakup") {
		t.Errorf("a file that cannot be used: %v", err)
	}
	p.Status = func(context.Context) (api.Status, error) { return bad, nil }
	if err := (doctorOptions{}).configurePrimary(&p, trust, bad); err != nil {
		t.Errorf("a primary that runs on with what it read before: %v", err)
	}
}

// TestDoctorCounts checks that the doctor adds its bytes to the usage of the primary or dual of
// this device.
func TestDoctorCounts(t *testing.T) {
	dir := newHome(t)
	file := func(role string) string { return filepath.Join(dir, "usage-"+role+".jsonl") }
	touch := func(role string, at time.Time) {
		t.Helper()
		if err := os.WriteFile(file(role), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(file(role), at, at); err != nil {
			t.Fatal(err)
		}
	}
	of := func(want string) {
		t.Helper()
		if path, err := primaryUsagePath(); path != file(want) || err != nil {
			t.Errorf("%s, %v; want that of %s", path, err, want)
		}
	}
	of("primary")
	now := time.Now()
	touch("helper", now)
	of("primary")
	touch("dual", now.Add(-time.Hour))
	of("dual")
	touch("primary", now.Add(-2*time.Hour))
	of("dual")
	touch("primary", now)
	of("primary")
}
