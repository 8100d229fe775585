// SPDX-License-Identifier: Apache-2.0

package permit

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
)

// TestReport checks that only the service's own key gets the report.
func TestReport(t *testing.T) {
	w := newWorld(t, "")
	own := w.newClient()
	own.Key = keys().service
	report := func() Cell {
		t.Helper()
		r, err := own.FetchReport(t.Context())
		if err != nil || r.Threshold != .7 || r.LifeSeconds != 60 || r.MaxPermits != 1 || len(r.Cells) != 1 ||
			r.Cells[0].Name != "north" {
			t.Fatalf("%+v, %v", r, err)
		}
		return r.Cells[0]
	}
	if c := report(); c.Load != nil || c.Why != "the load of the cell is unknown" ||
		len(c.Permits) != 0 || c.Permits == nil {
		t.Errorf("%+v", c)
	}
	w.s.SetLoad("north", .5)
	ask(t, w.newClient())
	w.add(10 * time.Second)
	want := HeldPermit{Device: "phone", DeviceID: keys().phone.ID().String(), HeldSeconds: 10, LeftSeconds: 50}
	if c := report(); c.Load == nil || *c.Load != .5 || c.Why != "" || len(c.Permits) != 1 || c.Permits[0] != want {
		t.Errorf("%+v", c)
	}
	w.s.SetLoad("north", .8)
	if err := w.trust.Remove("phone"); err != nil {
		t.Fatal(err)
	}
	want.Device = ""
	if c := report(); *c.Load != .8 || c.Why == "" || len(c.Permits) != 1 || c.Permits[0] != want {
		t.Errorf("%+v", c)
	}
	w.add(time.Minute)
	if c := report(); c.Load != nil || len(c.Permits) != 0 {
		t.Errorf("%+v", c)
	}

	// The own key gives access to the report only, not to permits.
	if _, err := own.RequestPermit(t.Context()); !fault.Is(err, fault.UnknownDevice) {
		t.Errorf("%v (%s)", err, fault.KindOf(err))
	}
	if err := w.trust.Add(identity.Peer{Name: "other", Roles: []identity.Role{identity.RoleHelper},
		Key: keys().other.Public()}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		key, service *identity.Key
		kind         fault.Kind
	}{
		"a stranger":    {keys().phone, keys().service, fault.UnknownDevice},
		"a helper":      {keys().other, keys().service, fault.Permission},
		"another's key": {keys().other, keys().other, fault.WrongKey},
	} {
		a := own
		a.Key, a.Service = c.key, c.service.Public()
		if _, err := a.FetchReport(t.Context()); !fault.Is(err, c.kind) || fault.HintOf(err) != hintOwnKey {
			t.Errorf("%s: %v (%s), %q", name, err, fault.KindOf(err), fault.HintOf(err))
		}
	}
	if status, _, err := own.requestAndReadBody(t.Context(), http.MethodPost, reportPath, nil, maxBody); err != nil ||
		status != http.StatusMethodNotAllowed {
		t.Error(status, err)
	}
}

// TestPrint checks the text of a report, without control characters.
func TestPrint(t *testing.T) {
	load := .456
	var page bytes.Buffer
	at := time.Date(2026, 6, 10, 0, 1, 0, 0, time.UTC)
	if err := (Report{Threshold: .7, LifeSeconds: 300, MaxPermits: 1, NotKept: "full", Cells: []Cell{
		{Name: "a\x1b", Why: "it is not known"},
		{Name: "b", Load: &load, Permits: []HeldPermit{{DeviceID: "id", HeldSeconds: 120,
			LeftSeconds: 60}}}}}).Print(&page, at); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a load of 70 % on; a permit is valid for 5m0s\n", "would lose the permits: full\n",
		"a?    -     0 of 1   no: it is not known\n",
		"b     46 %  1 of 1   renewals only: all are taken\n",
		"id (not trusted any more)  b     2026-06-09 23:59:00  00:02:00\n"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("no %q in\n%s", want, &page)
		}
	}
}
