// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"mpbond/base/unit"
)

// needPrograms skips a test that needs programs that are not installed.
func needPrograms(t *testing.T, names ...string) {
	t.Helper()
	needLab(t)
	for _, n := range names {
		if _, err := exec.LookPath(n); err != nil {
			t.Skipf("needs %s", n)
		}
	}
}

// needTransfers skips a test that moves data by programs and kernel MPTCP if one is missing.
func needTransfers(t *testing.T) {
	t.Helper()
	needPrograms(t, "curl", "nginx", "mptcpize", "nft", "ip")
	if _, err := os.Stat("/proc/sys/net/mptcp/enabled"); err != nil {
		t.Skip("needs a kernel with MPTCP")
	}
}

func TestRun(t *testing.T) {
	needTransfers(t)
	top, err := Triangle("8/10/5")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, upload := range []bool{false, true} {
		p := RunSpec{Topology: top, Schemes: []string{"single", "mptcp"}, Size: unit.MB, Upload: upload, Reps: 1,
			Seed: 3, Trace: dir, KeepDisturbed: true}
		var got []Result
		if err := Run(context.Background(), p, func(r Result) { got = append(got, r) }); err != nil {
			t.Fatal(err)
		}
		counted := map[string]Result{}
		for _, r := range got {
			if _, err := json.Marshal(r); err != nil {
				t.Error(err)
			}
			if r.Error != "" {
				t.Errorf("%+v", r)
			}
			counted[r.Scheme] = r
		}
		for _, s := range p.Schemes {
			r := counted[s]
			// Some seconds more are for a machine that does other things.
			if !r.SHA || r.Seconds < r.Bound-.05 || r.Seconds > 10 || r.LongestGap <= 0 || r.LongestGap > r.Seconds ||
				r.Starved <= 0 || r.LinkSilence <= 0 {
				t.Errorf("%+v", r)
			}
			sum := r.Devices["primary"] + r.Devices["helper1"]
			if sum < p.Size*packetIP/packetPayload || s == "single" && r.Devices["helper1"] > 2000 || s == "mptcp" &&
				r.Devices["helper1"] < p.Size/20 {
				t.Errorf("%s: bytes per device %v", s, r.Devices)
			}
		}
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "mptcp-0", "web-*.log")); len(files) == 0 {
		t.Error("no output of programs was kept")
	}
}

// TestRunUnshaped makes downloads without the emulator: through the relay, of which curl only
// counts the bytes, and many at once.
func TestRunUnshaped(t *testing.T) {
	t.Parallel()
	needPrograms(t, "curl", "nginx")
	top, err := Triangle("-")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []RunSpec{
		{Topology: top, Schemes: []string{"relay", "relay:copy", "single"}, Size: 4 * unit.MB, Reps: 1,
			Unchecked: true},
		{Topology: top, Schemes: []string{"relay"}, Size: 512 * unit.KB, Reps: 1, Upload: true},
		{Topology: top, Schemes: []string{"single"}, Size: 100 * unit.KB, Reps: 1, Streams: 50},
	} {
		n := 0
		err := Run(context.Background(), p, func(r Result) {
			n++
			all := r.Bytes * unit.Bytes(r.Streams)
			if r.Error != "" || r.SHA == r.Unchecked || r.Devices["primary"] < all || r.Seconds <= 0 || r.Disturbed {
				t.Errorf("%+v", r)
			}
		})
		if err != nil || n != len(p.Schemes) {
			t.Errorf("%d results, %v", n, err)
		}
	}
}

// Subflows must join unless links lose packets. They may take longer over slow round trips and
// links that change.
func TestJoinTime(t *testing.T) {
	for _, c := range []struct {
		change func(*Topology)
		want   time.Duration
		must   bool
	}{
		{func(*Topology) {}, maxJoinTime + 8*70*time.Millisecond, true},
		{func(t *Topology) { t.Link["ps"].Schedule = []string{"at 2s: rate 1Mbit/s"} },
			changingJoinTime + 8*70*time.Millisecond, true},
		{func(t *Topology) { t.Link["hs1"].Loss = "1%" }, 0, false},
	} {
		top, err := Triangle("8/10/5")
		if err != nil {
			t.Fatal(err)
		}
		c.change(top)
		if got, must := joinTimeLimit(top); got != c.want || must != c.must {
			t.Errorf("%v, %v; want %v, %v", got, must, c.want, c.must)
		}
	}
}

func TestParseBonded(t *testing.T) {
	m, err := parseMPBondScheme("minrtt:noreinject:direct:nohint:subflows=2:feedback=fixed-always:if=a+b:udp:cc=bbr")
	if err != nil || !reflect.DeepEqual(*m, mpbondScheme{schemeDefaults{}, "minrtt", true, true, 0, 2,
		[]string{"a", "b"}, "fixed-always", true, "bbr", true}) {
		t.Errorf("%+v, %v", m, err)
	}
	if m, err := parseMPBondScheme("ratio:0.6:noreinject"); err != nil || m.scheduler != "ratio:0.6" || !m.noReinject {
		t.Errorf("ratio:0.6: %+v, %v", m, err)
	}
	for _, bad := range []string{"pams:0.5", "ratio:0.5:0.6", "pams:minrtt", "subflows=0", "subflows=two", ":", "pams:",
		"udp", "udp:cc=bbr"} {
		if _, err := parseMPBondScheme(bad); err == nil || !strings.Contains(err.Error(), "mpbond:"+bad) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestRunFaults makes links fail during a transfer: the direct path is silent for a while, which
// the longest gap must show.
func TestRunFaults(t *testing.T) {
	t.Parallel()
	needPrograms(t, "curl", "nginx")
	top, err := Triangle("8")
	if err != nil {
		t.Fatal(err)
	}
	p := RunSpec{Topology: top, Schemes: []string{"single"}, Size: 4 * unit.MB, Reps: 1, KeepDisturbed: true,
		At: []string{"2s:ps.outage=on", "2.5s:ps.outage=off", "1s:kill=primary"}}
	// Killing the programs on the primary ends curl: an error, not a hang.
	failed := false
	if err := Run(context.Background(), p, func(r Result) { failed = r.Error != "" }); err != nil || !failed {
		t.Errorf("a killed client: %v, failed %v", err, failed)
	}
	p.At = p.At[:2]
	var got Result
	if err := Run(context.Background(), p, func(r Result) { got = r }); err != nil {
		t.Fatal(err)
	}
	if got.Error != "" || got.LongestGap < .48 || got.LinkSilence <= 0 || !got.SHA {
		t.Errorf("%+v", got)
	}
	for _, bad := range []string{"", "2s", "x:kill=primary", "1s:kill=nobody", "1s:hs9.rate=1", "1s:ps.speed=1",
		"1s:off=web"} {
		p.At = []string{bad}
		if err := Run(context.Background(), p, func(Result) {}); err == nil || !strings.Contains(err.Error(), "--at") {
			t.Errorf("--at %q: %v", bad, err)
		}
	}
}

// TestRunInterrupted ends a run by its context, as Ctrl-C does.
func TestRunInterrupted(t *testing.T) {
	t.Parallel()
	needPrograms(t, "curl", "nginx")
	top, err := Triangle("1")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err = Run(ctx, RunSpec{Topology: top, Schemes: []string{"single"}, Size: 100 * unit.MB, Reps: 1}, func(Result) {})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("interrupted: %v", err)
	}
	if _, err := newSchemeByName("carrier-pigeon"); err == nil {
		t.Error("an unknown scheme was taken")
	}
}
