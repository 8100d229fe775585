// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"mpbond/api"
	"mpbond/base/identity"
	"mpbond/control/policy"
	"mpbond/internal/cli"
	"mpbond/link/tcp"
)

// TestOnloadUsage checks that usage adds up what get --onload and put carry, even if no role runs.
func TestOnloadUsage(t *testing.T) {
	if !tcp.CarriedSupported {
		t.Skip("this system does not tell what connections carry")
	}
	dir := newHome(t)
	t.Setenv("XDG_RUNTIME_DIR", dir)
	t.Chdir(t.TempDir())
	url, data := serveSite(t)
	used := func() (u api.Usage) {
		t.Helper()
		code, out, errs := runProgram(t, "usage", "--json")
		if err := json.Unmarshal([]byte(out), &u); code != cli.ExitOK || err != nil || u.Role != "onload" {
			t.Fatalf("code %d, %v: %s%s", code, err, out, errs)
		}
		return u
	}
	if code, _, errs := runProgram(t, "usage"); code != cli.ExitNoConnection {
		t.Errorf("before: code %d, %s", code, errs)
	}
	for n := range 2 {
		if code, _, errs := runProgram(t, "get", "--onload", "--interface", "lo", "-o", fmt.Sprint(n),
			url+"/a"); code != cli.ExitOK {
			t.Fatal(errs)
		}
		m := used().Months
		if least := len(data) * (n + 1); len(m) != 1 || m[0].Link != "lo" || m[0].Purpose != "direct" ||
			int(m[0].DownBytes) < least || int(m[0].DownBytes) > least*11/10 {
			t.Errorf("%d bytes: %+v", least, m)
		}
	}
	if code, _, errs := runProgram(t, "usage", "--socket",
		filepath.Join(dir, "none.sock")); code != cli.ExitNoConnection {
		t.Errorf("of a socket: code %d, %s", code, errs)
	}

	// Bytes over a helper count for that helper.
	use, err := openOnloadTally()
	if err != nil {
		t.Fatal(err)
	}
	d := dialPhone(t)
	d.Options = tcp.Options{Interface: "lo", Ledger: use.LedgerFor(policy.ForPipe)}
	d.Helper.Roles = []identity.Role{identity.RoleHelper}
	trust, err := cli.OpenTrust()
	if err == nil {
		err = trust.Add(d.Helper)
	}
	if err != nil {
		t.Fatal(err)
	}
	way := d.Transport()
	a, err := (&http.Client{Transport: way}).Get(url + "/a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.Body.Read(make([]byte, 1000)); err != nil {
		t.Error(err)
	}
	a.Body.Close()
	way.CloseIdleConnections()
	use.closeOnloadTally()
	_, out, _ := runProgram(t, "usage")
	if m := used().Months; len(m) != 2 || m[1].Purpose != "pipe" || m[1].Device != "phone" || m[1].DownBytes < 1000 ||
		!strings.Contains(out, "phone") {
		t.Errorf("%+v\n%s", m, out)
	}
}
