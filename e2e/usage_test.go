// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mpbond/api"
	"mpbond/api/client"
	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/e2e/rig"
)

// linkUsage returns the bytes that a link of a role's node has carried in all, as the role reports
// them.
func (n *network) linkUsage(c *client.Client, link string) (down, up int64) {
	n.Helper()
	var u api.Usage
	rig.Eventually(n.TB, func() (err error) { // it may be about to start
		u, err = c.Usage(n.Context())
		return err
	})
	if u.NotSaved != "" {
		n.Fatal(u.NotSaved)
	}
	for _, d := range u.Days {
		if d.Link == link {
			down += int64(d.DownBytes)
			up += int64(d.UpBytes)
		}
	}
	return down, up
}

// TestUsage: usage is within 1 % of the interfaces' own counters, for downloads and uploads, with
// and without losses. Nothing counts at two links.
func TestUsage(t *testing.T) {
	t.Parallel() // it checks neither rates nor times
	n := newNetworkWith(t, "30/30/30", "", nil)
	const size = 4 * mb
	file := filepath.Join(n.Dir, "upload")
	writeNoise(t, file, size)
	at := []struct {
		node, link, purpose string
		asked               *client.Client
	}{
		{"primary", "ps", "direct", n.NewClient("primary", "primary")},
		{"primary", "pipe1", "pipe", n.NewClient("primary", "primary")},
		{"helper1", "pipe1", "pipe", n.NewClient("helper1", "helper")},
		{"helper1", "hs1", "hs-path", n.NewClient("helper1", "helper")},
	}
	type sums struct{ rx, tx, down, up int64 }
	readCounters := func() (list [4]sums) {
		for i, l := range at {
			list[i].rx, list[i].tx = n.Counters(l.node, l.link)
			list[i].down, list[i].up = n.linkUsage(l.asked, l.link)
		}
		return list
	}
	hasEnough := func(before, after [4]sums) bool {
		for i := range at {
			if after[i].rx-before[i].rx+after[i].tx-before[i].tx < size/8 {
				return false
			}
		}
		return true
	}
	download, upload := []string{fmt.Sprintf("http://web/%d", size)}, []string{"-H", "Expect:", "-T", file, "http://web/"}
	for _, c := range []struct {
		loss  string
		most  float64 // largest error, in percent
		curls [][]string
	}{{"0", 0.5, [][]string{download, upload}}, {"1%", 1, [][]string{download}}} {
		for _, link := range []string{"ps", "hs1", "pipe1"} {
			if err := n.Lab.Set(link, "", "loss="+c.loss); err != nil {
				t.Fatal(err)
			}
		}
		for _, curl := range c.curls {
			var before [4]sums
			for range 5 { // how the subflows share the load does not matter
				before = readCounters()
				n.Must("primary", append([]string{"curl", "-sSf", "--max-time", "30", "-x", "http://127.0.0.1:1080", "-o",
					"/dev/null"}, curl...)...)
				if hasEnough(before, readCounters()) {
					break
				}
			}
			var report []string
			// Data beyond a gap counts when the gap is filled, which may be after the end.
			rig.Eventually(t, func() error {
				after := readCounters()
				report = nil
				for i, l := range at {
					rx, tx, down, up := after[i].rx-before[i].rx, after[i].tx-before[i].tx, after[i].down-before[i].down,
						after[i].up-before[i].up
					percentOff := func(counted, is int64) float64 { return 100 * float64(counted-is) / float64(is) }
					text := fmt.Sprintf("loss %s, %s: %s at %s: received %d, counted %+.2f %%; "+
						"sent %d, counted %+.2f %%; both %+.2f %%", c.loss, curl[len(curl)-1], l.link, l.node,
						rx, percentOff(down, rx), tx, percentOff(up, tx), percentOff(down+up, rx+tx))
					report = append(report, text)
					// the other direction has only acknowledgements, whose options are estimated
					counted, is := down, rx
					if len(curl) > 1 != (l.node == "helper1" && l.link == "pipe1") {
						counted, is = up, tx
					}
					// TCP may send a few packets twice, and the receiver counts them once.
					isOff := func(counted, is int64) bool {
						return math.Abs(float64(counted-is)) > max(c.most/100*float64(is), 4*1500)
					}
					if rx+tx < size/8 || isOff(down+up, rx+tx) || isOff(counted, is) {
						return errors.New(text)
					}
				}
				return nil
			})
			t.Log(strings.Join(report, "\n"))
		}
	}
	for _, l := range at {
		u, err := l.asked.Usage(t.Context())
		for _, d := range u.Days {
			if d.Device == "" && d.DownBytes+d.UpBytes < 20*unit.KB {
				continue // connections that ended before they named their device
			}
			if d.Link == l.link && (d.Purpose != l.purpose ||
				d.Device != map[string]string{"ps": "home", "pipe1": map[string]string{"primary": "phone",
					"helper1": "laptop"}[l.node], "hs1": "laptop"}[l.link]) {
				t.Errorf("%s at %s: %+v", l.link, l.node, d)
			}
		}
		if err != nil || len(u.Days) < 2 { // more at midnight
			t.Errorf("%s: %+v, %v", l.node, u.Days, err)
		}
	}
	if text := n.Must("helper1", n.Mpbond, "usage"); !strings.Contains(text, "hs1") || !strings.Contains(text, "laptop") {
		t.Errorf("%s", text)
	}
	if table := n.Must("helper1", n.Mpbond, "usage", "--csv"); strings.Count(table, "\n") < 1+2+2 ||
		!strings.Contains(table, ",hs1,hs-path,laptop,") {
		t.Errorf("%s", table)
	}
	t.Run("killed", func(t *testing.T) { checkUsageAfterKill(t, n) })
}

// checkUsageAfterKill checks that a helper killed in the middle of a transfer loses at most a
// second's bytes of usage.
func checkUsageAfterKill(t *testing.T, n *network) {
	const rate = 10 // Mbit/s
	for link, rate := range map[string]int{"ps": 2, "hs1": rate, "pipe1": 30} {
		if err := n.Lab.Set(link, "", fmt.Sprintf("rate=%dMbit/s", rate), "loss=0"); err != nil {
			t.Fatal(err)
		}
	}
	asked := n.NewClient("helper1", "helper")
	cmd := n.Command("primary", "curl", "-sSf", "--max-time", "60", "-x", "http://127.0.0.1:1080",
		fmt.Sprintf("http://web/%d", 12*mb))
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	rx, tx := n.Counters("helper1", "hs1")
	before := rx + tx
	if _, err := io.CopyN(io.Discard, out, 4*mb); err != nil {
		t.Error(err, &errs)
	}
	if err := n.helper.Cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	<-n.helper.Done
	rx, tx = n.Counters("helper1", "hs1")
	_ = cmd.Process.Kill()
	_, _ = io.Copy(io.Discard, out)
	_ = cmd.Wait()
	n.helper = n.Start("helper1", n.Mpbond, "helper", "--name", "phone")
	down, up := n.linkUsage(asked, "hs1")
	lost := rx + tx - down - up
	t.Logf("carried %d, lost %d", rx+tx-before, lost)
	if second := int64(rate) * 1e6 / 8; rx+tx-before < 3*second/2 || lost > second || lost < -second/20 {
		t.Errorf("lost %d of %d", lost, rx+tx-before)
	}
}

// TestCap: a helper stops within 1 % of its cap, by its interface's own counters, while the
// download continues by the other subflow. All roles report it, also when the cap is raised.
func TestCap(t *testing.T) {
	t.Parallel()                                // it checks neither rates nor times
	n := newNetworkWith(t, "10/12/60", "", nil) // so slow that 1 % takes 0.13 s
	const limit = 20_000_000
	plan := filepath.Join(n.Dir, "helper1", "policy.toml")
	// The default applies to a primary on the same node.
	writeFile(t, plan, "default = \"deny\"\n[device.hs1]\nmonthly_cap = \"20MB\"\n")
	helper := n.NewClient("helper1", "helper")
	awaitState := func(want string) {
		t.Helper()
		rig.Eventually(t, func() error {
			s, err := helper.Status(t.Context(), false)
			if err != nil || len(s.Caps) != 1 || s.Caps[0].Name != "hs1" || s.Caps[0].State != want {
				return fmt.Errorf("caps %+v, %v; want %s", s.Caps, err, want)
			}
			return nil
		})
	}
	awaitState("fine")
	isReached := func() bool {
		s, err := helper.Status(t.Context(), false)
		return err == nil && len(s.Caps) == 1 && s.Caps[0].State == "reached"
	}
	// The other subflow may carry more than its part.
	for size, tries := int64(24*mb), 0; !isReached(); size, tries = 4*mb, tries+1 {
		want, _ := rig.Sum(rig.Noise(size))
		got, err := n.Run("primary", "curl", "-sSf", "--max-time", "60", "-x", "http://127.0.0.1:1080",
			fmt.Sprintf("http://web/%d", size))
		if have, _ := rig.Sum(strings.NewReader(got)); err != nil || have != want || tries == 20 {
			t.Fatalf("after %d: %s, %v; want %s", tries, have, err, want)
		}
	}
	for _, kind := range []string{"cap_warning", "cap_reached"} {
		n.awaitEvent(helper, kind, func(e api.Event) bool {
			return e.Kind == kind && e.Device == "hs1" && e.Reason == "monthly"
		})
	}
	rig.Eventually(t, func() error { // it has asked again
		if text := n.Must("primary", n.Mpbond, "status"); !strings.Contains(text, "the monthly cap of 20 MB is used up") {
			return fmt.Errorf("the primary says %s", text)
		}
		return nil
	})
	for _, command := range []string{"status", "usage"} {
		if text := n.Must("helper1", n.Mpbond, command); !strings.Contains(text, "the monthly cap of 20 MB is used up") {
			t.Errorf("%s of the helper: %s", command, text)
		}
	}
	// The counters include what arrived last and the cost of the primary's new attempts.
	rx, tx := n.Counters("helper1", "hs1")
	down, up := n.linkUsage(helper, "hs1")
	off := 100 * (float64(rx+tx)/limit - 1)
	t.Logf("carried %d + %d, %+.2f %% of the cap; counted %d", rx, tx, off, down+up)
	if math.Abs(off) > 1 {
		t.Errorf("carried %d, %+.2f %% of the cap", rx+tx, off)
	}
	// The helper raises the cap by the API, and later lowers the level at which it stops.
	setPolicy := func(text string) {
		t.Helper()
		before, err := helper.Policy(t.Context())
		if err == nil {
			_, err = helper.SetPolicy(t.Context(), api.PolicyText{Text: text, Version: &before.Version})
		}
		if data, _ := os.ReadFile(plan); err != nil || string(data) != text {
			t.Fatalf("%v; the file has %q", err, data)
		}
	}
	setPolicy("[device.hs1]\nmonthly_cap = \"1GB\"\n")
	over := n.awaitEvent(helper, "cap_cleared", func(e api.Event) bool { return e.Kind == "cap_cleared" }).Seq
	if _, err := helper.SetPolicy(t.Context(), api.PolicyText{Text: "[device.hs1]\nstop_at = \"2%\"\n"}); !fault.Is(err,
		fault.Config) {
		t.Errorf("a level of no cap: %v", err)
	}
	setPolicy("[device.hs1]\nmonthly_cap = \"1GB\"\nwarn_at = \"1%\"\nstop_at = \"1.9%\"\n")
	n.awaitEvent(helper, "cap_reached", func(e api.Event) bool { return e.Kind == "cap_reached" && e.Seq > over })
	n.awaitEvent(helper, "policy_changed", func(e api.Event) bool {
		return e.Kind == "policy_changed" && e.Text == plan && e.Seq > over
	})
	if text := n.Must("helper1", n.Mpbond, "usage"); !strings.Contains(text, "stops at 19 MB, until") {
		t.Errorf("usage of the helper: %s", text)
	}
	if text := n.Must("helper1", n.Mpbond, "policy", "show"); !strings.Contains(text,
		"at most 1 GB a month, warning at 1 %, stop at 1.9 %") {
		t.Errorf("policy of the helper: %s", text)
	}
	writeFile(t, plan, "[device.hs1]\nmonthly_cup = \"1GB\"\n")
	n.awaitEvent(helper, "policy_refused", func(e api.Event) bool {
		return e.Kind == "policy_refused" && strings.Contains(e.Text, "monthly_cup")
	})
}

// TestCapsOfDevices: a primary limits what a helper carries for it, and a helper what it carries
// for a primary, within 1 % of what each has counted. The download continues by the other subflow.
func TestCapsOfDevices(t *testing.T) {
	t.Parallel()                                // it checks neither rates nor times
	n := newNetworkWith(t, "10/12/60", "", nil) // so slow that 1 % takes 70 ms or more
	for _, c := range []struct {
		node, role, name, purpose string
		megabytes                 int // the helper has then carried the primary's previous cap
		status                    string
	}{
		{"primary", "primary", "phone", "pipe", 10, "suspended: the monthly cap of 10 MB is used up"},
		{"helper1", "helper", "laptop", "hs-path", 20, "for this device the monthly cap of 20 MB is used up"},
	} {
		asked, plan := n.NewClient(c.node, c.role), filepath.Join(n.Dir, c.node, "policy.toml")
		writeFile(t, plan, fmt.Sprintf("[device.%s]\nmonthly_cap = \"%dMB\"\n", c.name, c.megabytes))
		awaitState := func() string {
			s, err := asked.Status(t.Context(), false)
			if err != nil || len(s.Caps) != 1 || s.Caps[0].Name != c.name {
				return fmt.Sprint(s.Caps, err)
			}
			return s.Caps[0].State
		}
		rig.Eventually(t, func() error {
			if now := awaitState(); now != "fine" {
				return errors.New(now)
			}
			return nil
		})
		const size = 4 * mb
		want, _ := rig.Sum(rig.Noise(size))
		for tries := 0; awaitState() != "reached"; tries++ {
			got, err := n.Run("primary", "curl", "-sSf", "--max-time", "60", "-x", "http://127.0.0.1:1080",
				fmt.Sprintf("http://web/%d", size))
			if have, _ := rig.Sum(strings.NewReader(got)); err != nil || have != want || tries == 20 {
				t.Fatalf("%s: after %d: %s, %v; want %s", c.role, tries, have, err, want)
			}
		}
		n.awaitEvent(asked, "cap_reached", func(e api.Event) bool {
			return e.Kind == "cap_reached" && e.Device == c.name && e.Reason == "monthly"
		})
		rig.Eventually(t, func() error {
			if text := n.Must("primary", n.Mpbond, "status"); !strings.Contains(text, c.status) {
				return fmt.Errorf("the primary says %s", text)
			}
			return nil
		})
		u, err := asked.Usage(t.Context())
		var sum float64
		for _, d := range u.Days {
			if d.Purpose == c.purpose && d.Device == c.name {
				sum += float64(d.DownBytes + d.UpBytes)
			}
		}
		off := 100 * (sum/float64(c.megabytes)/1e6 - 1)
		if t.Logf("%s: carried %.0f, %+.2f %% of the cap", c.role, sum, off); err != nil || math.Abs(off) > 1 {
			t.Errorf("%s: carried %.0f, %+.2f %% of the cap, %v", c.role, sum, off, err)
		}
		if c.role == "primary" {
			writeFile(t, plan, "") // no cap any more
			n.Await(2)
		}
	}
}
