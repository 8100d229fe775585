// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"image/png"
	"strings"
	"testing"
	"time"

	"mpbond/api"
	"mpbond/base/unit"
)

var t0 = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// newTestHistory samples counters at each second.
func newTestHistory(seconds int, counters func(second int) map[string][]counter) *History {
	h := new(History)
	for i := range seconds {
		h.addCounterSample(t0.Add(time.Duration(i)*time.Second), counters(i))
	}
	return h
}

// lastValue returns the newest value of a line, and whether there is one.
func lastValue(t *testing.T, p api.Plot, name string) (float64, bool) {
	t.Helper()
	for _, s := range p.Series {
		if len(s.Values) != len(p.Times) {
			t.Fatalf("%d values at %d times", len(s.Values), len(p.Times))
		}
		if v := s.Values[len(s.Values)-1]; s.Name == name && v != nil {
			return *v, true
		}
	}
	return 0, false
}

// TestHistory: rates are of bytes between samples, summed by name; what has ended is a gap, as is
// an unknown PAD.
func TestHistory(t *testing.T) {
	h := newTestHistory(12, func(i int) map[string][]counter {
		n := unit.Bytes(i)
		list := []counter{
			{"b/1", "phone", 1000 * n, 0, 20},
			{"b/2", "phone", 500 * n, 100 * n, 0},
			{"b/3", "tablet", 77 * n, 0, 0},
		}
		if i == 11 {
			list = list[:2]
		}
		if i > 5 { // another one began at the sixth second
			list = append(list, counter{"b/9", "watch", 300, 0, 0})
		}
		return map[string][]counter{api.PlotSubflows: list}
	})
	p := h.buildHistoryPlot(plotQuery{name: api.PlotSubflows})
	if len(p.Times) != 11 || p.Unit != "bit/s" || !p.Times[10].Equal(t0.Add(11*time.Second)) {
		t.Errorf("%+v", p)
	}
	if v, ok := lastValue(t, p, "phone"); !ok || v != 12000 {
		t.Errorf("phone: %v %v", v, ok)
	}
	if v, ok := lastValue(t, h.buildHistoryPlot(plotQuery{name: api.PlotSubflows, up: true}), "phone"); !ok || v != 800 {
		t.Errorf("phone up: %v %v", v, ok)
	}
	if v, ok := lastValue(t, p, "tablet"); ok {
		t.Errorf("tablet is not there, and has %v", v)
	}
	if v, ok := lastValue(t, p, "watch"); !ok || v != 0 || p.Series[2].Values[5] == nil ||
		*p.Series[2].Values[5] != 2400 ||
		p.Series[2].Values[4] != nil {
		t.Errorf("watch: %v %v, %v", v, ok, p.Series[2])
	}
	pad := h.buildHistoryPlot(plotQuery{name: api.PlotPAD})
	if v, ok := lastValue(t, pad, "phone"); !ok || v != 20 || len(pad.Series) != 1 || pad.Unit != "ms" {
		t.Errorf("%+v", pad)
	}
	if p := h.buildHistoryPlot(plotQuery{name: api.PlotSubflows, hour: true}); len(p.Times) != 2 {
		t.Errorf("%d means of 11 seconds", len(p.Times))
	} else if v, _ := lastValue(t, p, "phone"); v != 12000 {
		t.Errorf("mean %v", v)
	}
}

// TestHistoryGoesBack: counters that restart give no negative rate, and a clock that stands still
// gives none.
func TestHistoryGoesBack(t *testing.T) {
	h := new(History)
	for i, n := range []unit.Bytes{1000, 2000, 10, 20} {
		at := t0.Add(time.Duration(i) * time.Second)
		h.addCounterSample(at, map[string][]counter{api.PlotDevices: {{"b/1", "phone", n, 0, 0}}})
		h.addCounterSample(at, map[string][]counter{api.PlotDevices: {{"b/1", "phone", n, 0, 0}}})
	}
	var got []float64
	for _, v := range h.buildHistoryPlot(plotQuery{name: api.PlotDevices}).Series[0].Values {
		got = append(got, *v)
	}
	if fmt.Sprint(got) != "[8000 0 80]" {
		t.Error(got)
	}
}

// TestHistoryIsBounded: memory is bounded for any time and number of lines.
func TestHistoryIsBounded(t *testing.T) {
	const seconds = 2 * 3600
	h := newTestHistory(seconds, func(i int) map[string][]counter {
		var list []counter
		for k := range 2 * maxLines {
			name := fmt.Sprint("device ", k)
			list = append(list, counter{name, name, unit.Bytes(i * (k + 1)), 0, 0})
		}
		return map[string][]counter{api.PlotDevices: list}
	})
	if len(h.seconds) != maxSeconds || len(h.means) != maxMeans || cap(h.seconds) > 4*maxSeconds ||
		cap(h.means) > 4*maxMeans {
		t.Errorf("%d seconds (%d), %d means (%d)", len(h.seconds), cap(h.seconds), len(h.means), cap(h.means))
	}
	for _, hour := range []bool{false, true} {
		p := h.buildHistoryPlot(plotQuery{name: api.PlotDevices, hour: hour})
		span := p.Times[len(p.Times)-1].Sub(p.Times[0])
		if want := map[bool]time.Duration{false: time.Minute, true: time.Hour}[hour]; span != want ||
			len(p.Series) != maxLines {
			t.Errorf("%v and %d lines", span, len(p.Series))
		}
		if _, ok := lastValue(t, p, fmt.Sprint("device ", 2*maxLines-1)); !ok {
			t.Error("the busiest is missing")
		}
	}
}

// TestCounters: down is towards the primary at each role. A stream with an unknown app counts for
// its destination; while the app is being found it is not counted.
func TestCounters(t *testing.T) {
	path := api.Subflow{ID: 2, Device: "phone", Kind: api.Helped, RxBytes: 10, TxBytes: 3, PADms: 5}
	owner := func(role, app string) (o api.AppInfo) {
		if role != "server" { // which knows no apps
			o.App = app
		}
		return o
	}
	describe := func(role string) Role {
		return Role{Status: func(bool) api.Status {
			return api.Status{
				Role:  role,
				Bonds: []api.Bond{{ID: "b", Peer: "anna", Subflows: []api.Subflow{path, {Device: "x"}}}},
			}
		}, Streams: func() []api.BondStream {
			return api.BondStreams(
				"b",
				"anna",
				[]api.Stream{{ID: 1, Dest: "[2001:db8::1]:443", DownBytes: 7, UpBytes: 2, AppInfo: owner(role, "curl")},
					{
						ID:        2,
						Dest:      "odd",
						DownBytes: 1,
						AppInfo:   owner(role, api.AppUnknown),
					}, {ID: 3, Dest: "new:1", DownBytes: 1}},
			)
		}, Flows: func() []api.BondFlow {
			return api.BondFlows(
				"b",
				"anna",
				[]api.Flow{
					{ID: 1, DownBytes: 4, UpBytes: 5, AppInfo: owner(role, "curl")},
					{ID: 2, AppInfo: owner(role, api.AppUnknown)},
					{ID: 3},
				},
			)
		}}
	}
	const byDest = "destinations:[{b/1 2001:db8::1 7 2 0} {b/2 odd 1 0 0} {b/3 new 1 0 0} {b/udp 1 datagrams 4 5 0} " +
		"{b/udp 2 datagrams 0 0 0} {b/udp 3 datagrams 0 0 0}]"
	for role, want := range map[string]string{
		"primary": "map[apps:[{b/1 curl 7 2 0} {b/2 odd 1 0 0} {b/udp 1 curl 4 5 0} {b/udp 2 datagrams 0 0 0}] " + byDest +
			" devices:[{b/2 phone 10 3 5}] subflows:[{b/2 phone 2 10 3 5}]]",
		"server": "map[apps:" + byDest[len("destinations:"):] + " " + byDest +
			" devices:[{b/2 anna/phone 3 10 5}] subflows:[{b/2 anna/phone 2 3 10 5}]]",
	} {
		if got := fmt.Sprint(describe(role).readRoleCounters()); got != want {
			t.Errorf("%s:\n%s\n%s", role, got, want)
		}
	}
}

// TestPlots: values as JSON and CSV; the console draws pictures.
func TestPlots(t *testing.T) {
	r := fullRole(nil)
	for _, path := range []string{"/v2/plots/devices", "/v2/plots/devices/csv"} {
		if w := request(r, "GET", path, ""); w.Code != 501 || !strings.Contains(w.Body.String(), "--api") {
			t.Errorf("%s without a history: %d %s", path, w.Code, w.Body)
		}
	}
	r.History = newTestHistory(5, func(i int) map[string][]counter {
		return map[string][]counter{
			api.PlotDevices: {{"1", "=cmd()", unit.Bytes(i) * 125000, 0, 0}, {"2", `a, "b"`, 0, 0, 0}},
		}
	})
	var p api.Plot
	if w := request(r, "GET", "/v2/plots/devices?direction=down&span=minute", ""); w.Code != 200 ||
		json.Unmarshal(w.Body.Bytes(), &p) != nil ||
		len(p.Times) != 4 ||
		len(p.Series) != 2 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	w := request(r, "GET", "/v2/plots/devices/csv", "")
	rows, err := csv.NewReader(w.Body).ReadAll()
	if err != nil || len(rows) != 5 || rows[0][1] != "'=cmd(), bit/s" || rows[0][2] != `a, "b", bit/s` ||
		rows[4][0] != "2026-11-21T12:00:04.000Z" ||
		rows[4][1] != "1000000" {
		t.Errorf("%v %q", err, rows)
	}
	if w.Header().Get("Content-Type") != "text/csv; charset=utf-8" ||
		!strings.Contains(w.Header().Get("Content-Security-Policy"), "sandbox") ||
		w.Header().Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%v", w.Header())
	}
	for _, path := range []string{"/v2/plots/x", "/v2/plots/devices/svg", "/v2/plots/devices/csv?width=300",
		"/v2/plots/devices?span=year", "/v2/plots/devices?x=1"} {
		if w := request(r, "GET", path, ""); w.Code != 400 {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}

// TestQR: the valid code as a picture.
func TestQR(t *testing.T) {
	i := api.Invitation{State: "open", Code: "K7QF-3M2A@a:1", QR: "mpbond:K7QF-3M2A@a:1"}
	r := fullRole(nil)
	r.Invitations = &api.InvitationManager{Current: func() api.Invitation { return i }}
	w := request(r, "GET", "/v2/invitation/png", "")
	if _, err := png.Decode(bytes.NewReader(w.Body.Bytes())); w.Code != 200 || err != nil {
		t.Error(w.Code, err)
	}
	if w := request(r, "GET", "/v2/invitation/svg", ""); w.Code != 200 || !strings.HasPrefix(w.Body.String(), "<svg") ||
		!strings.HasSuffix(w.Body.String(), "</svg>") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	i.State = "expired"
	if w := request(r, "GET", "/v2/invitation/svg", ""); w.Code != 404 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	r.Invitations = nil
	if w := request(r, "GET", "/v2/invitation/svg", ""); w.Code != 501 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// TestApps: a plot has the sum of each app's streams, while they carry something and for a minute
// after. A stream whose app is found later counts in full.
func TestApps(t *testing.T) {
	h := new(History)
	var streams []api.Stream
	r := Role{
		Status:  func(bool) api.Status { return api.Status{Role: "primary"} },
		Streams: func() []api.BondStream { return api.BondStreams("b", "home", streams) },
	}
	at := t0
	look := func(list ...api.Stream) {
		streams = list
		h.addCounterSample(at, r.readRoleCounters())
		at = at.Add(time.Second)
	}
	of := func(id uint64, app string, down unit.Bytes) api.Stream {
		return api.Stream{ID: id, Dest: "x:1", DownBytes: down, AppInfo: api.AppInfo{App: app}}
	}
	look()
	look(of(1, "curl", 100), of(2, "", 1000))
	look(of(1, "curl", 200), of(2, "wget", 3000), of(3, "curl", 50))
	p := h.buildHistoryPlot(plotQuery{name: api.PlotApps})
	for name, want := range map[string]float64{"curl": 1200, "wget": 24000} {
		if v, ok := lastValue(t, p, name); !ok || v != want {
			t.Errorf("%s: %v %v, want %v", name, v, ok, want)
		}
	}
	if len(p.Series) != 2 || p.Title != "Down by app" {
		t.Errorf("%+v", p)
	}
	if v, ok := lastValue(t, h.buildHistoryPlot(plotQuery{name: api.PlotDestinations}), "x"); !ok || v != 17200 {
		t.Errorf("by destination: %v %v", v, ok)
	}
	look(of(2, "wget", 3000))
	if p := h.buildHistoryPlot(plotQuery{name: api.PlotApps}); len(p.Series) != 2 {
		t.Errorf("an app is forgotten as soon as it ends: %+v", p.Series)
	}
	for range maxSeconds {
		look(of(2, "wget", 3000))
	}
	if p := h.buildHistoryPlot(plotQuery{name: api.PlotApps}); len(p.Series) != 1 || p.Series[0].Name != "wget" {
		t.Errorf("an app that has ended a minute ago: %+v", p.Series)
	}
}
