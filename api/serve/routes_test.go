// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"mpbond/api"
	"mpbond/base/fault"
	"mpbond/base/unit"
)

// recorder accepts answers of any length.
type recorder struct{ *httptest.ResponseRecorder }

func (recorder) SetWriteDeadline(time.Time) error { return nil }
func (recorder) SetReadDeadline(time.Time) error  { return nil }

func request(r Role, method, target, body string) recorder {
	w := recorder{httptest.NewRecorder()}
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // events end after the first
	req := httptest.NewRequest(method, target, strings.NewReader(body)).WithContext(ctx)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	Handler(r).ServeHTTP(w, req)
	return w
}

// deadlines records whether a read deadline was set.
type deadlines struct {
	*httptest.ResponseRecorder
	set bool
}

func (d *deadlines) SetReadDeadline(at time.Time) error {
	d.set = !at.IsZero()
	return nil
}

// TestBodyInTime: an unfinished body times out, whether it is read or not; a request without a body
// may be quiet.
func TestBodyInTime(t *testing.T) {
	for body, want := range map[string]bool{"": false, "x": true} {
		w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		limitBodyTime(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest("POST", "/", strings.NewReader(body)))
		if w.set != want {
			t.Errorf("body %q: deadline %v", body, w.set)
		}
	}
}

// orZero returns what p points to, or the zero value.
func orZero[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// fullRole returns a role with one of everything. changed collects the changes.
func fullRole(changed *[]string) Role {
	note := func(what string) error {
		if changed != nil {
			*changed = append(*changed, what)
		}
		return nil
	}
	feed := new(Feed)
	feed.Add(openEvents(1))
	return Role{
		Status: func(why bool) api.Status {
			s := exampleStatus(why)
			yes, n := true, 40.0
			facts := &api.KnownFacts{
				Facts: api.Facts{BatteryPercent: &n, Charging: &yes, TemperatureC: &n, SignalPercent: &n},
			}
			s.Devices = []api.Device{
				{Name: "laptop", Self: true, Online: true},
				{
					Name:     "phone",
					ID:       "X",
					Online:   true,
					Pipes:    1,
					Subflows: 1,
					Facts:    facts,
					Radios:   []api.Radio{{Link: "wwan0", Kind: "cellular", Joules: 12.6}},
				},
			}
			s.Pipes = []api.Pipe{
				{Device: "phone", Address: "192.168.1.9:40000", State: api.PipeCarries, Bond: "b", Subflow: 1},
				{Device: "phone", Address: "rfcomm://AA:BB/1", State: api.PipeWaits},
			}
			s.Onload = &api.OnloadStatus{
				Open:         true,
				Bounded:      true,
				LeftBytes:    7,
				CarriedBytes: 3,
				Tunnels:      []api.Tunnel{{Device: "laptop"}, {Device: "laptop"}, {Device: "tablet"}},
			}
			s.Helper = &api.HelperStatus{
				RelayedBytes: 9,
				LinkShares: []api.LinkShare{
					{Interface: "wlan0", Direction: "up", Limited: true, LimitBps: unit.Mbps},
				},
			}
			s.Caps = []api.Cap{{Name: "wwan0", Period: "daily", CapBytes: 20, UsedBytes: 21, State: "reached"}}
			s.Cells = []api.Cells{
				{Interface: "wwan0", Receiving: true, CapacityBps: 16 * unit.Mbps, FairBps: 8 * unit.Mbps},
			}
			s.Fleet = exampleFleet()
			s.Bonds[0].Subflows[0].ExpectedStallMs = 15
			s.Bonds[0].Subflows[0].Hop = &api.Hop{
				PBE: &api.PBE{
					State:           "wireless",
					CapacityBps:     8 * unit.Mbps,
					FairBps:         4 * unit.Mbps,
					FollowsFeedback: true,
				},
			}
			return s
		},
		Subflows: func() []api.BondSubflow { return []api.BondSubflow{{Peer: "anna", Subflow: api.Subflow{ID: 7}}} },
		Streams:  func() []api.BondStream { return api.BondStreams("b", "home", []api.Stream{{ID: 5, Dest: "x:1"}}) },
		Flows: func() []api.BondFlow {
			return api.BondFlows("b", "home", []api.Flow{{ID: 6, AppInfo: api.AppInfo{App: "curl"}}})
		},
		CloseSubflow: func(bond string, id uint32) error {
			if id == 404 {
				return fault.New(fault.NotFound, errors.New("no such subflow"), "look")
			}
			return note(fmt.Sprintf("subflow %q %d", bond, id))
		},
		MoveSubflow: func(bond string, id uint32, pipe string) error {
			return note(fmt.Sprintf("subflow %q %d to %s", bond, id, pipe))
		},
		ChangeStream: func(bond string, id uint64, c api.StreamChange) error {
			return note(fmt.Sprintf("stream %q %d is %s %d", bond, id, orZero(c.Mode), orZero(c.Weight)))
		},
		ResetStream: func(bond string, id uint64) error { return note(fmt.Sprintf("stream %q %d", bond, id)) },
		MarkChunk:   func(c api.Chunk) error { return note(fmt.Sprintf("chunk %s %d", c.App, c.Bytes)) },
		SetFacts:    func(f api.Facts) error { return note(fmt.Sprintf("facts %v %s", orZero(f.BatteryPercent), f.Link)) },
		Devices: &api.DeviceManager{
			Rename: func(from, to string) error {
				if to == "taken" {
					return fault.New(fault.Exists, errors.New("there is one"), "choose")
				}
				return note("rename " + from + " " + to)
			},
			Pause:  func(name string, paused bool) error { return note(fmt.Sprintf("pause %s %v", name, paused)) },
			Revoke: func(name string) error { return note("revoke " + name) },
		},
		Feed: feed,
	}
}

func TestResources(t *testing.T) {
	var changed []string
	r := fullRole(&changed)
	for _, c := range []struct {
		method, target, body string
		status               int
		holds                string
	}{
		{"GET", "/v2/status", "", 200, `"devices":[{"name":"laptop"`},
		{"GET", "/v2/devices", "", 200, `"name":"phone"`},
		{"GET", "/v2/devices/phone", "", 200, `"id":"X"`},
		{"GET", "/v2/devices/nobody", "", 404, `"kind":"not_found"`},
		{"GET", "/v2/devices/" + strings.Repeat("x", 65), "", 400, `"kind":"usage"`},
		{"GET", "/v2/pipes", "", 200, `"state":"carries"`},
		{"GET", "/v2/pipes/phone/192.168.1.9:40000", "", 200, `"subflow":1`},
		{"GET", "/v2/pipes/phone/rfcomm:%2F%2FAA:BB%2F1", "", 200, `"state":"waits"`},
		{"GET", "/v2/pipes/phone/192.168.1.9:1", "", 404, `"kind":"not_found"`},
		{"GET", "/v2/subflows", "", 200, `[{"bond":"b","peer":"home","id":1,`},
		{"GET", "/v2/subflows", "", 200, `{"bond":"","peer":"anna","id":7,`},
		{"GET", "/v2/subflows/b/1", "", 200, `"device":"phone"`},
		{"GET", "/v2/subflows/-/7", "", 200, `"peer":"anna"`},
		{"GET", "/v2/subflows/b/2", "", 404, `"kind":"not_found"`},
		{"GET", "/v2/subflows/b/x", "", 400, `path.subflow`},
		{"GET", "/v2/subflows/b/4294967297", "", 400, `path.subflow`},
		{"PATCH", "/v2/subflows/b/1", `{"pipe":"10.0.0.9:7"}`, 204, ""},
		{"PATCH", "/v2/subflows/b/1", `{}`, 400, "pipe"},
		{"DELETE", "/v2/subflows/b/1", "", 204, ""},
		{"DELETE", "/v2/subflows/-/7", "", 204, ""},
		{"DELETE", "/v2/subflows/b/404", "", 404, `"hint":"look"`},
		{"GET", "/v2/streams", "", 200, `[{"bond":"b","peer":"home","id":5,"dest":"x:1"`},
		{"GET", "/v2/streams/b/5", "", 200, `"id":5`},
		{"GET", "/v2/streams/c/5", "", 404, `"kind":"not_found"`},
		{"PATCH", "/v2/streams/b/5", `{"mode":"latency","weight":3}`, 204, ""},
		{"PATCH", "/v2/streams/b/5", `{}`, 400, "nothing is to be changed"},
		{"PATCH", "/v2/streams/b/5", `{"mode":"direct"}`, 400, "mode"},
		{"PATCH", "/v2/streams/b/5", `{"weight":0}`, 400, "weight"},
		{"PATCH", "/v2/streams/b/5", `{"priority":"highest"}`, 400, "priority"},
		{"DELETE", "/v2/streams/b/5", "", 204, ""},
		{"GET", "/v2/flows", "", 200, `[{"bond":"b","peer":"home","id":6,"app":"curl"`},
		{"GET", "/v2/flows/b/6", "", 200, `"id":6`},
		{"GET", "/v2/flows/b/7", "", 404, `"kind":"not_found"`},
		{"POST", "/v2/chunk", `{"app":"127.0.0.1:40000","bytes":1000000}`, 204, ""},
		{"POST", "/v2/chunk", `{"app":"127.0.0.1:40000","bytes":1,"frob":1}`, 400, "frob"},
		{"POST", "/v2/chunk", `{"app":"127.0.0.1:40000"}`, 400, "bytes"},
		{"POST", "/v2/chunk", `{"app":5,"bytes":1}`, 400, `"kind":"usage"`},
		{"POST", "/v2/chunk", `{"app":`, 400, `"kind":"usage"`},
		{"POST", "/v2/chunk", `{"app":"` + strings.Repeat("x", maxBody) + `","bytes":1}`, 413, `"kind":"limit"`},
		{"PATCH", "/v2/devices/phone", `{"name":"pixel"}`, 204, ""},
		{"PATCH", "/v2/devices/phone", `{"name":"taken"}`, 409, `"hint":"choose"`},
		{"PATCH", "/v2/devices/phone", `{"name":"x","roles":["server"]}`, 400, "roles"},
		{"PATCH", "/v2/devices/phone", `{}`, 400, "one change"},
		{"PATCH", "/v2/devices/phone", `{"name":"x","paused":true}`, 400, "one change"},
		{"PATCH", "/v2/devices/phone", `{"paused":1}`, 400, "paused"},
		{"PATCH", "/v2/devices/phone", `{"paused":true}`, 204, ""},
		{"PATCH", "/v2/devices/phone", `{"paused":false}`, 204, ""},
		{"PATCH", "/v2/devices/phone", `{"name":"` + strings.Repeat("x", 65) + `"}`, 400, `"kind":"usage"`},
		{"DELETE", "/v2/devices/pixel", "", 204, ""},
		{"PATCH", "/v2/devices", "", 405, "use GET"},
		{"PUT", "/v2/devices/phone", "", 405, "use GET or HEAD or PATCH or DELETE"},
		{"PUT", "/v2/chunk", "", 405, "use POST"},
		{"PUT", "/v2/facts", `{"battery_percent":40,"link":"wifi"}`, 204, ""},
		{"PUT", "/v2/facts", `{"battery_percent":40,"refuses":"no"}`, 400, "refuses"},
		{"POST", "/v2/facts", "", 405, "use PUT"},
		{"DELETE", "/v2/streams", "", 405, "use GET"},
	} {
		w := request(r, c.method, c.target, c.body)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.holds) {
			t.Errorf(
				"%s %.60s %.60s: %d %s, want %d and %s",
				c.method,
				c.target,
				c.body,
				w.Code,
				w.Body,
				c.status,
				c.holds,
			)
		}
		if c.status >= 400 && w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s %s: %v", c.method, c.target, w.Header())
		}
	}
	if want := []string{`subflow "b" 1 to 10.0.0.9:7`, `subflow "b" 1`, `subflow "" 7`, `stream "b" 5 is latency 3`,
		`stream "b" 5`, "chunk 127.0.0.1:40000 1000000", "rename phone pixel", "pause phone true", "pause phone false",
		"revoke pixel", "facts 40 wifi"}; !slices.Equal(
		changed,
		want,
	) {
		t.Errorf("changed %q, want %q", changed, want)
	}
}

// TestUnsupported: a role answers 501 to changes that it does not support.
func TestUnsupported(t *testing.T) {
	r := Role{Status: exampleStatus}
	for _, c := range [][3]string{{"DELETE", "/v2/subflows/b/1"}, {"DELETE", "/v2/streams/b/1"},
		{"PATCH", "/v2/subflows/b/1", `{"pipe":"x"}`}, {"POST", "/v2/chunk", `{"app":"127.0.0.1:1","bytes":1}`},
		{"PATCH", "/v2/devices/phone", `{"name":"x"}`}, {"DELETE", "/v2/devices/phone"},
		{"POST", "/v2/pair", `{"codes":["K7QF-3M2A"]}`}, {"GET", "/v2/pair"}, {"PUT", "/v2/facts", `{}`},
		{"POST", "/v2/invitation"}, {"DELETE", "/v2/advice/history"}} {
		w := request(r, c[0], c[1], c[2])
		if w.Code != http.StatusNotImplemented || !strings.Contains(w.Body.String(), `"kind":"unsupported"`) {
			t.Errorf("%v: %d %s", c, w.Code, w.Body)
		}
	}
	if w := request(r, "GET", "/v2/flows", ""); strings.TrimSpace(w.Body.String()) != "[]" {
		t.Errorf("flows: %s", w.Body)
	}
	if w := request(r, "GET", "/v2/streams", ""); strings.TrimSpace(w.Body.String()) != "[]" {
		t.Errorf("streams of none: %s", w.Body)
	}
}

// TestVersion1 requires that every request to version 1 is answered with 410 and a hint that names
// version 2.
func TestVersion1(t *testing.T) {
	r := fullRole(new([]string))
	for _, c := range [][2]string{
		{"GET", "/v1/status?why=1"}, {"HEAD", "/v1/status"}, {"GET", "/v1"}, {"GET", "/v1/"}, {"GET", "/v1/none"},
		{"POST", "/v1/chunk"}, {"PATCH", "/v1/streams/b/5"}, {"DELETE", "/v1/subflows/b/1"}, {"PUT", "/v1/policy"},
	} {
		w := request(r, c[0], c[1], "{}")
		var p api.Problem
		err := json.Unmarshal(w.Body.Bytes(), &p)
		if w.Code != 410 || err != nil || p.Kind != string(fault.Unsupported) || !strings.Contains(p.Hint, "/v2") {
			t.Errorf("%s %s: %d, %s, %v", c[0], c[1], w.Code, w.Body, err)
		}
	}
}

// TestOpenAPI: the document has every resource, describes every field with its comment, and matches
// real answers.
func TestOpenAPI(t *testing.T) {
	type schema struct {
		Ref         string `json:"$ref"`
		Description string
		Properties  map[string]struct {
			Ref         string `json:"$ref"`
			Description string
			Type        any
		}
		AdditionalProperties any
	}
	var doc struct {
		OpenAPI string
		Paths   map[string]map[string]struct {
			Summary   string
			Responses map[string]struct {
				Content map[string]struct{ Schema schema }
			}
		}
		Components struct{ Schemas map[string]schema }
	}
	r := fullRole(nil)
	if err := json.Unmarshal(request(r, "GET", "/openapi.json", "").Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.1") {
		t.Error(doc.OpenAPI)
	}
	for _, path := range []string{"/v2/status", "/v2/devices", "/v2/devices/{name}", "/v2/pipes",
		"/v2/pipes/{name}/{address}", "/v2/subflows", "/v2/subflows/{bond}/{subflow}",
		"/v2/streams", "/v2/streams/{bond}/{stream}", "/v2/flows", "/v2/flows/{bond}/{flow}", "/v2/chunk", "/v2/facts",
		"/v2/invitation", "/v2/pair", "/v2/policy", "/v2/policy/check", "/v2/events"} {
		if len(doc.Paths[path]) == 0 {
			t.Errorf("%s is missing", path)
		}
		for method, op := range doc.Paths[path] {
			if p, ok := op.Responses["default"].Content["application/problem+json"]; op.Summary == "" || !ok ||
				p.Schema.Ref != "#/components/schemas/Problem" {
				t.Errorf("%s %s: %+v", method, path, op)
			}
		}
	}
	for name, s := range doc.Components.Schemas {
		if s.Description == "" && !strings.HasPrefix(name, "Answer") {
			t.Errorf("%s has no description", name)
		}
		if (s.AdditionalProperties == false) != slices.Contains(
			[]string{
				"Chunk",
				"Facts",
				"DeviceChange",
				"StreamChange",
				"PairRequest",
				"SubflowMove",
				"PolicyText",
				"PolicyCheck",
				"PolicyFlow",
			},
			name,
		) {
			t.Errorf("%s: more fields: %v", name, s.AdditionalProperties)
		}
	}
	for field, want := range map[string]string{"Subflow.pad_ms": "predicted delivery",
		"BondSubflow.pad_ms": "predicted delivery", "Status.uptime_seconds": "", "Event.gap_ms": "without a pipe",
		"KnownFacts.battery_percent": "how full", "PolicyRule.subflows": "may carry it now", "PolicyFlow.port": "",
		"Stream.app": "the name of the app", "BondStream.app": "the name of the app", "BondStream.mode": "redundant",
		"BondFlow.user": "runs as", "BondFlow.subflow": "pinned"} {
		name, field, _ := strings.Cut(field, ".")
		if p, ok := doc.Components.Schemas[name].Properties[field]; !ok || !strings.Contains(p.Description, want) {
			t.Errorf("%s.%s: %+v", name, field, p)
		}
	}
	if p := doc.Components.Schemas["Subflow"].Properties["rx_rate_bps"]; p.Type != "integer" {
		t.Errorf("a rate is %v", p.Type)
	}
	var status map[string]any
	if err := json.Unmarshal(request(r, "GET", "/v2/status?why=1", "").Body.Bytes(), &status); err != nil {
		t.Fatal(err)
	}
	for field := range status {
		if _, ok := doc.Components.Schemas["Status"].Properties[field]; !ok {
			t.Errorf("status has %s, which the document does not", field)
		}
	}
}

// fuzzRole returns fullRole with a policy, plots and usage.
func fuzzRole() Role {
	r := fullRole(nil)
	r.Policy = &api.PolicyManager{
		Get: func() api.Policy { return api.Policy{File: "p"} },
		Put: func(in api.PolicyText) (api.Policy, error) { return api.Policy{Text: in.Text}, nil },
		Check: func(in api.PolicyCheck) (a api.PolicyAnswer, err error) {
			if strings.Contains(orZero(in.Text), "mod=") {
				err = fault.New(fault.Config, misplaced{errors.New("unknown setting")}, "did you mean it?")
			}
			if in.Flow != nil {
				a.Verdict = &api.PolicyClass{Mode: "block", Reason: in.Flow.Host}
			}
			return a, err
		},
	}
	r.History = newTestHistory(5, func(i int) map[string][]counter {
		return map[string][]counter{api.PlotSubflows: {{"b/1", "phone", unit.Bytes(1000 * i), 0, 20}}}
	})
	used := []api.UsageEntry{
		{
			From:        "2026-11-21",
			Until:       "2026-11-22",
			Link:        "wwan0",
			Purpose:     "hs-path",
			Device:      "lap,top",
			DownBytes:   9,
			UpBytes:     7,
			RadioJoules: 12.6,
		},
	}
	r.Usage = func() api.Usage { return api.Usage{Role: "helper", Name: "phone", Days: used, Months: used} }
	return r
}

// FuzzAPI: any request gets a good answer or a problem, never status 500.
func FuzzAPI(f *testing.F) {
	for _, s := range []string{
		"GET /v2/status?why=1 HTTP/1.1\r\nHost: x\r\n\r\n", "GET /openapi.json HTTP/1.0\r\n\r\n",
		"GET /metrics HTTP/1.0\r\n\r\n",
		"GET /v2/devices/phone HTTP/1.0\r\n\r\n", "GET /v2/pipes/phone/rfcomm:%2F%2FAA HTTP/1.0\r\n\r\n",
		"DELETE /v2/subflows/b/1 HTTP/1.0\r\n\r\n",
		"GET /v2/events?after=0 HTTP/1.1\r\nHost: x\r\nLast-Event-ID: 5\r\nAccept: text/event-stream\r\n\r\n",
		"DELETE /v2/streams/b/18446744073709551615 HTTP/1.0\r\n\r\n",
		"POST /v2/chunk HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 34\r\n\r\n" +
			"{\"app\": \"127.0.0.1:1\", \"bytes\": 1}",
		"POST /v2/chunk HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"app\r\n0\r\n\r\n",
		"PATCH /v2/devices/phone HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n" +
			"{\"name\": \"x\"}",
		"POST /v2/pair HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 24\r\n\r\n" +
			"{\"codes\": [\"K7QF-3M2A\"]}",
		"POST /v2/chunk HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n{", // cut
		"PUT //v2/../x HTTP/1.1\r\nHost: x\r\n\r\n", "CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n",
		"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	for _, s := range [][3]string{
		{"PATCH", "/v2/streams/b/5", `{"mode":"latency","priority":"high","weight":3}`},
		{"PATCH", "/v2/subflows/b/1", `{"pipe":"10.0.0.9:7"}`},
		{"PATCH", "/v2/devices/phone", `{"paused":true}`}, {"GET", "/v2/policy", ""},
		{"PUT", "/v2/policy", `{"text":"default = \"deny\"\n","version":"v"}`},
		{"POST", "/v2/policy/check",
			`{"text":"mod=1","flow":{"host":"example.org","port":443,"app":"/usr/bin/curl","uid":7}}`},
		{"PUT", "/v2/facts",
			`{"battery_percent":55,"charging":false,"temperature_c":31.5,"link":"cellular","metered":true,"signal_percent":70}`},
		{"GET", "/v2/plots/subflows?direction=up&span=hour", ""}, {"GET", "/v2/plots/subflows/csv", ""},
		{"GET", "/v2/usage", ""}, {"GET", "/v2/advice?bytes=8000&direction=up", ""}, {"DELETE", "/v2/advice/history", ""},
	} {
		f.Add(
			fmt.Appendf(
				nil,
				"%s %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
				s[0],
				s[1],
				len(s[2]),
				s[2],
			),
		)
	}
	h := Handler(fuzzRole())
	f.Fuzz(func(t *testing.T, raw []byte) {
		req, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
		if err != nil {
			return // net/http itself answers that
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		w := recorder{httptest.NewRecorder()}
		h.ServeHTTP(w, req.WithContext(ctx))
		_, _ = io.Copy(io.Discard, req.Body)
		switch ct := w.Header().Get("Content-Type"); {
		case w.Code == 500 || w.Code < 200:
			t.Errorf("%q: %d %s", raw, w.Code, w.Body)
		case w.Code >= 400 && ct == "application/problem+json":
			var p api.Problem
			if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || p.Status != w.Code || p.Kind == "" ||
				p.Detail == "" ||
				len(p.Detail) > 16<<10 {
				t.Errorf("%q: %d %s", raw, w.Code, w.Body)
			}
		case w.Code >= 400 && req.URL.Path != "/metrics":
			t.Errorf("%q: %d as %s: %s", raw, w.Code, ct, w.Body)
		case strings.HasSuffix(ct, "json") && w.Code == 200 && !json.Valid(w.Body.Bytes()):
			t.Errorf("%q: %s", raw, w.Body)
		}
	})
}
