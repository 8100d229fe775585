// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"mpbond/api"
	"mpbond/base/fault"
	"mpbond/base/unit"
	mydevice "mpbond/control/device"
	"mpbond/node/primary"
	"mpbond/pbe/cc"
)

// TestParseCells checks that flags contain source, RNTI and cells, with options in any order.
func TestParseCells(t *testing.T) {
	got, err := parseCellFlags([]string{"wwan0=unix:/run/a,b.sock,rnti=0x4601,cells=2+0", "wwan1=tcp:[::1]:9000",
		"wwan2=x,cells=1,rnti=100"})
	want := map[string]mydevice.Cell{"wwan0": {Messages: "unix:/run/a,b.sock", RNTI: 0x4601, Cells: []uint8{2, 0}},
		"wwan1": {Messages: "tcp:[::1]:9000"}, "wwan2": {Messages: "x", RNTI: 100, Cells: []uint8{1}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", "wwan0", "=x", "wwan0=x,rnti=", "wwan0=x,rnti=65536", "wwan0=x,cells=a",
		"wwan0=x,rnit=5", "wwan0=x,rnti=5,cell=1"} {
		if _, err := parseCellFlags([]string{bad}); fault.KindOf(err) != fault.Usage || fault.HintOf(err) == "" {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestCellTwice checks that a second source for an interface is refused.
func TestCellTwice(t *testing.T) {
	if _, err := parseCellFlags([]string{"wwan0=x", "wwan0=y"}); fault.KindOf(err) != fault.Usage ||
		!strings.Contains(err.Error(), "wwan0 twice") {
		t.Error(err)
	}
}

// TestDualCells checks that one listener serves both roles, and that one of them using UDP is
// enough.
func TestDualCells(t *testing.T) {
	var c dualConfig
	c.Primary.Cell = map[string]mydevice.Cell{"wwan0": {Messages: "x"}}
	c.Helper.Cell = map[string]mydevice.Cell{"wwan0": {Messages: "y"}, "wwan1": {Messages: "z"}}
	c.Primary.UDP, c.Helper.UDP = []string{"wwan1"}, []string{"wwan0"}
	alone := c
	alone.Helper.UDP = nil
	of, err := c.mergeCells()
	if want := map[string]mydevice.Cell{"wwan0": {Messages: "x"}, "wwan1": {Messages: "z"}}; err != nil ||
		!reflect.DeepEqual(of, want) {
		t.Errorf("%+v, %v", of, err)
	}
	if len(c.Primary.Cell)+len(c.Helper.Cell) > 0 {
		t.Error("a role is left to check its own alone")
	}
	if _, err := alone.mergeCells(); fault.KindOf(err) != fault.Config || !strings.Contains(err.Error(), "wwan0") {
		t.Error(err)
	}
}

// TestOpenCells checks the error and hint for invalid cell configurations.
func TestOpenCells(t *testing.T) {
	for _, bad := range []mydevice.Cell{{}, {Messages: "unix:"}, {Messages: "x", RNTI: 10},
		{Messages: "x", Cells: []uint8{8}}} {
		if _, err := newCellListeners(map[string]mydevice.Cell{"wwan0": bad},
			nil); fault.KindOf(err) != fault.Config || fault.HintOf(err) == "" ||
			!strings.Contains(err.Error(), "wwan0") {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	path := filepath.Join(t.TempDir(), "none")
	c, err := newCellListeners(map[string]mydevice.Cell{"wwan0": {Messages: path, RNTI: 500}}, nil)
	if err != nil || c.feedbackSource("wlan0") != nil || c.feedbackSource("wwan0") == nil {
		t.Fatal(err)
	}
	f := c.feedbackSource("wwan0")()
	defer f.Close()
	if r := f.OnPacket(0, 0, 0, 0); r.TransportRate != 0 {
		t.Errorf("nothing is heard: %+v", r)
	}
	s := c.listCellStates()
	if len(s) != 1 || s[0].Receiving || s[0].RNTI != 500 || s[0].Reason == "" || s[0].Source != path {
		t.Errorf("%+v", s)
	}
}

// TestCellOverTCP checks that cells need UDP on the same interface.
func TestCellOverTCP(t *testing.T) {
	cfg := primary.Default
	cfg.Interfaces, cfg.Cell = []string{"wwan0"}, map[string]mydevice.Cell{"wwan0": {Messages: "x"}}
	_, err := primary.New(cfg, nil, nil, nil, nil)
	if fault.KindOf(err) != fault.Config || !strings.Contains(fault.HintOf(err), "udp") {
		t.Errorf("%v", err)
	}
}

// TestControllers checks the controller of each name.
func TestControllers(t *testing.T) {
	for name, want := range map[string]cc.Controller{"": &cc.FeedbackFollower{}, "pbe": &cc.PBE{}, "bbr": &cc.BBR{},
		"copa": &cc.Copa{}, "cubic": &cc.CUBIC{}, "reno": &cc.CUBIC{}} {
		if got := controllerFactory(name)(); reflect.TypeOf(got) != reflect.TypeOf(want) {
			t.Errorf("%q: %T", name, got)
		}
	}
}

// TestCellWords checks the descriptions of cells and PBE-CC for people.
func TestCellWords(t *testing.T) {
	for want, got := range map[string]string{
		"cells of wwan0: capacity for this device 30 Mbit/s, fair share 10 Mbit/s (cell 0: 12 of 50 resource " +
			"blocks are ours, 3 idle, 3 users)": describeLinkCells(api.Cells{
			Interface: "wwan0", Receiving: true, CapacityBps: 30 * unit.Mbps, FairBps: 10 * unit.Mbps,
			Cells: []api.Cell{{PRB: 50, Active: true, Users: 3, OwnPRB: 12, IdlePRB: 3}, {Number: 1, PRB: 100}}}),
		"cells of wwan0: capacity for this device 30 Mbit/s (other apps use 20 Mbit/s), fair share 10 Mbit/s " +
			"()": describeLinkCells(api.Cells{Interface: "wwan0", Receiving: true, CapacityBps: 30 * unit.Mbps,
			FairBps:      10 * unit.Mbps,
			OtherAppsBps: 20 * unit.Mbps}),
		"cells of wwan0: no feedback to senders, by the messages of unix:/s: no": describeLinkCells(api.Cells{
			Interface: "wwan0", Source: "unix:/s",
			Reason: errors.New("no").Error()}),
		"PBE-CC: capacity in its cell 30 Mbit/s, fair share 10 Mbit/s; the cell is the bottleneck and " +
			"sets the rate": describePBE(api.PBE{State: "wireless",
			CapacityBps: 30 * unit.Mbps, FairBps: 10 * unit.Mbps, FollowsFeedback: true}),
		"congestion control of what this device sends: bbr, because of losses without a queue; " +
			"changed 1 times": describeCongestion(
			api.Congestion{Name: "bbr", Reason: "losses without a queue", Changes: 1}),
	} {
		if got != want {
			t.Errorf("%s\nwant\n%s", got, want)
		}
	}
	for _, s := range []cc.PBEState{cc.Approach, cc.Wireless, cc.Drain, cc.Internet} {
		if text := describePBE(api.PBE{State: s.String(), FollowsFeedback: true,
			Doubted: true}); strings.Contains(text, "; ;") || !strings.Contains(text, "not trusted") {
			t.Error(text)
		}
	}
	if text := describePBE(api.PBE{State: "wireless"}); !strings.Contains(text, "like BBR") {
		t.Error(text)
	}
}

// TestTransportWords checks the descriptions of transports that are not the default.
func TestTransportWords(t *testing.T) {
	for want, p := range map[string]api.Subflow{
		"":                         {Transport: "tcp"},
		"over TCP: it was blocked": {Transport: "tcp", Fallback: "it was blocked"},
		"over UDP":                 {Transport: "udp"},
		"over UDP, migrated to another address once":    {Transport: "udp", Migrated: 1},
		"over UDP, migrated to another address 2 times": {Transport: "udp", Migrated: 2},
	} {
		if got := describeTransport(p); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
