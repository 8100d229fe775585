// SPDX-License-Identifier: Apache-2.0

package status

import (
	"encoding/json"
	"testing"
	"time"

	"mpbond/api"
	"mpbond/base/unit"
	"mpbond/core/bond"
	"mpbond/link/congestion"
	"mpbond/link/estimate"
	"mpbond/link/wire"
	"mpbond/node/endpoint"
)

// TestPath: state, kind, radio and tier are set only if they differ from the default.
func TestPath(t *testing.T) {
	info := bond.SubflowInfo{ID: 3, Sent: 7, Received: 9, Estimate: estimate.Estimate{SRTT: 1500 * time.Microsecond}}
	plain := convertSubflow(endpoint.Subflow{SubflowInfo: info, Device: "laptop", Transport: "tcp"})
	if plain.ID != 3 || plain.Kind != api.Direct || plain.State != api.Up || plain.Radio+plain.Tier != "" ||
		plain.Hop != nil ||
		plain.SRTTms != 1.5 || plain.RxBytes != 9 || plain.TxBytes != 7 ||
		plain.Device != "laptop" ||
		plain.Transport != "tcp" {
		t.Errorf("%+v", plain)
	}
	info.Helped, info.Silent = true, true
	p := convertSubflow(
		endpoint.Subflow{
			SubflowInfo: info,
			Terms:       wire.Terms{Radio: wire.RadioCellular, Tier: wire.TierBackup, Metered: true},
			Hop: &endpoint.Hop{FarRate: unit.Mbps, Congestion: &congestion.Choice{Algorithm: congestion.BBR,
				Reason: congestion.LossesWithoutQueue, Changes: 1}},
		},
	)
	if p.Kind != api.Helped || p.State != api.Silent || p.Radio == "" || p.Tier == "" || !p.Metered ||
		p.Hop.FarRateBps != unit.Mbps ||
		p.Hop.PBE != nil ||
		*p.Hop.Congestion != (api.Congestion{Name: "bbr", Reason: "losses without a queue", Changes: 1}) {
		t.Errorf("%+v", p)
	}
}

// TestEmptyBond: required lists are present, and lists that were not requested are omitted.
func TestEmptyBond(t *testing.T) {
	b, err := json.Marshal(Bond(endpoint.Status{}))
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	if list, ok := m["subflows"].([]any); !ok || len(list) > 0 || m["stream_list"] != nil || m["flow_list"] != nil ||
		m["decisions"] != nil {
		t.Errorf("%s", b)
	}
}

// TestStreams: the app and both choices are converted.
func TestStreams(t *testing.T) {
	o := endpoint.AppInfo{App: "curl", Program: "/usr/bin/curl", Label: "work", User: "me"}
	s := Streams(
		[]endpoint.Stream{
			{StreamInfo: bond.StreamInfo{ID: 4, Dest: "web:80", Weight: 2}, App: o, DownBytes: 5, UpBytes: 6,
				Down: wire.Choice{Subflows: []wire.SubflowID{1, 2}, Reason: "both"}},
		},
	)
	if len(s) != 1 || s[0].App != "curl" || s[0].User != "me" || s[0].DownBytes != 5 || s[0].UpBytes != 6 ||
		len(s[0].Down.Subflows) != 2 ||
		s[0].Up.Subflows != nil {
		t.Errorf("%+v", s)
	}
	f := Flows([]endpoint.Flow{{FlowInfo: bond.FlowInfo{ID: 8, Subflow: 1}, App: o, DownBytes: 3}})
	if len(f) != 1 || f[0].ID != 8 || f[0].Subflow != 1 || f[0].Label != "work" || f[0].DownBytes != 3 {
		t.Errorf("%+v", f)
	}
}

// TestDecision: a decision to wait names no subflow.
func TestDecision(t *testing.T) {
	d := bond.Decision{Remaining: 10, PAD: 3 * time.Millisecond}
	d.Subflow = 2
	if a := describeDecision(d); a.Subflow != 2 || a.PADms != 3 || a.RemainingBytes != 10 {
		t.Errorf("%+v", a)
	}
	d.Wait = true
	if a := describeDecision(d); a.Subflow != 0 || a.PADms != 0 {
		t.Errorf("waits: %+v", a)
	}
}
