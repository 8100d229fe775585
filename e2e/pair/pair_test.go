// SPDX-License-Identifier: Apache-2.0

package pair

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"mpbond/api"
	"mpbond/e2e/rig"
)

// deviceStates returns the role and state of each device that a node knows, by name.
func (n *network) deviceStates(node string) map[string]string {
	n.Helper()
	var r struct {
		Devices []struct {
			Name, State string
			Roles       []string
		}
	}
	n.runJSON(&r, node, "devices", "--json")
	m := map[string]string{}
	for _, d := range r.Devices {
		m[d.Name] = strings.TrimSpace(strings.Join(d.Roles, " ") + " " + d.State)
	}
	return m
}

// TestFromNothing takes three devices without keys. After five commands in all, an app's bytes must
// use both paths.
func TestFromNothing(t *testing.T) {
	t.Parallel() // it checks neither rates nor times
	n := newNetwork(t, "20/20/-")
	server := n.Start("server", n.Mpbond, "server", "--allow", "10.77.0.0/16", "--allow", "fd77::/16") // 1
	helper := n.Start("helper1", n.Mpbond, "helper", "--name", "phone")                                // 2
	n.Must("primary", n.Mpbond, "pair", "--name", "laptop",
		server.AwaitCode(), stripAddress(helper.AwaitCode())) // 3
	n.Start("primary", n.Mpbond, "primary", "--name", "laptop") // 4
	n.Await(2)                                                  // shorter than a person takes to type the next command
	const size = 4 * mb                                         // over links of 2.5 MB/s each
	n.checkDownload(size)                                       // 5
	if direct, helped := n.LinkBytes("ps"), n.LinkBytes("hs1"); direct < size/20 || helped < size/20 {
		t.Errorf("%d bytes went directly and %d through the helper", direct, helped)
	}
	for _, node := range []string{"server", "helper1", "primary"} {
		if st, err := os.Stat(filepath.Join(n.Dir, node, "device.key")); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("key of %s: %v, %v", node, st, err)
		}
	}
	home := "" // the server's host name
	for name, state := range n.deviceStates("primary") {
		if state == "server connected" {
			home = name
		}
	}
	for node, want := range map[string]map[string]string{
		"server":  {"laptop": "primary connected"},
		"helper1": {"laptop": "primary connected"},
		"primary": {"phone": "helper connected", home: "server connected"},
	} {
		if got := n.deviceStates(node); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s knows %v, want %v", node, got, want)
		}
	}
	if _, err := n.Run("primary", n.Mpbond, "pair", helper.AwaitCode()); err == nil {
		t.Error("a code could be used twice")
	}
}

// TestRevoke renames a paired device, revokes it, and pairs it again, while all processes run. They
// learn of it from their files alone. A revoked device must be cut off at once.
func TestRevoke(t *testing.T) {
	t.Parallel() // it checks neither rates nor times
	n := newNetwork(t, "20/20/20")
	server := n.Start("server", n.Mpbond, "server", "--allow", "10.77.0.0/16", "--allow", "fd77::/16")
	helper := n.Start("helper1", n.Mpbond, "helper", "--name", "phone")
	n.Must("primary", n.Mpbond, "pair", "--name", "laptop", server.AwaitCode(), helper.AwaitCode())
	n.Start("primary", n.Mpbond, "primary", "--name", "laptop")
	n.Await(2)
	n.Must("primary", n.Mpbond, "rename", "phone", "old-phone")
	n.Must("primary", n.Mpbond, "revoke", "old-phone")
	n.Await(1)
	n.checkDownload(mb)
	if got := n.deviceStates("primary"); len(got) != 1 {
		t.Errorf("the primary knows %v, want the server alone", got)
	}
	var inv api.Invitation
	n.runJSON(&inv, "helper1", "accept", "--json", "--wait=false")
	_, at, _ := strings.Cut(inv.Code, "@")
	_, err := n.Run("primary", n.Mpbond, "pair", "0000-0000@"+at)
	if err == nil || !strings.Contains(err.Error(), "the code is wrong") {
		t.Errorf("pairing with a wrong code: %v", err)
	}
	accept := n.Start("helper1", n.Mpbond, "accept", "--json")
	var second api.Invitation
	rig.Eventually(n, func() error { // the first of two JSON values
		return json.NewDecoder(strings.NewReader(accept.Log.String())).Decode(&second)
	})
	if _, err := n.Run("primary", n.Mpbond, "pair", inv.Code); err == nil {
		t.Error("a replaced code still works")
	}
	n.Must("primary", n.Mpbond, "pair", second.Code)
	<-accept.Done
	if !strings.Contains(accept.Log.String(), `"device":"laptop"`) {
		t.Errorf("accept printed %s", &accept.Log)
	}
	n.Await(2)
	n.Must("server", n.Mpbond, "revoke", "laptop") // the other end revokes
	n.Await(0)
}

// TestPrimaryIsFound starts the primary again at other addresses than those it was paired from. The
// helper must discover it in each of two local networks.
func TestPrimaryIsFound(t *testing.T) {
	t.Parallel() // it checks neither rates nor times
	n := newNetwork(t, "20/20/-+-")
	server := n.Start("server", n.Mpbond, "server", "--allow", "10.77.0.0/16", "--allow", "fd77::/16")
	helper := n.Start("helper1", n.Mpbond, "helper", "--name", "phone")
	n.Must("primary", n.Mpbond, "pair", server.AwaitCode(), helper.AwaitCode())
	p := n.Start("primary", n.Mpbond, "primary")
	n.Await(2)
	p.End(syscall.SIGTERM)
	var next []string
	for _, link := range []string{"pipe1", "pipe1b"} {
		next = append(next, n.changeAddress("primary", link))
	}
	n.Start("primary", n.Mpbond, "primary")
	n.Await(2)
	rig.Eventually(n, func() error { // one pipe for the subflow, and then one waiting over each network
		up, err := n.Up()
		for _, p := range up {
			if p.Kind == api.Helped && p.Waiting == 2 {
				return nil
			}
		}
		return fmt.Errorf("two pipes do not wait: %+v, %w", up, err)
	})
	trust := n.Must("helper1", "cat", filepath.Join(n.Dir, "helper1", "trust.toml"))
	if strings.Contains(trust, next[0]) || strings.Contains(trust, next[1]) {
		t.Errorf("the helper did not discover the address, it was sent to it:\n%s", trust)
	}
	n.checkDownload(mb)
}

// TestServerLater pairs servers after the helper, before the primary runs and while it runs. The
// primary must use them through the helper too.
func TestServerLater(t *testing.T) {
	t.Parallel() // it checks neither rates nor times
	n := newNetwork(t, "20/20/20")
	helper := n.Start("helper1", n.Mpbond, "helper", "--name", "phone")
	n.Must("primary", n.Mpbond, "pair", "--name", "laptop", helper.AwaitCode())
	allow := []string{"--allow", "10.77.0.0/16", "--allow", "fd77::/16"}
	first := n.Start("server", append([]string{n.Mpbond, "server"}, allow...)...)
	n.Must("primary", n.Mpbond, "pair", first.AwaitCode())
	n.Start("primary", n.Mpbond, "primary", "--name", "laptop")
	n.Await(2)
	home := ""
	for name, state := range n.deviceStates("primary") {
		if state == "server connected" {
			home = name
		}
	}
	second := n.Start("server", append([]string{"env", "MPBOND_HOME=" + filepath.Join(n.Dir, "second"),
		n.Mpbond, "server", "--listen", ":7700"}, allow...)...)
	n.Must("primary", n.Mpbond, "pair", "--as", "server", second.AwaitCode())
	n.Must("primary", n.Mpbond, "revoke", home)
	rig.Eventually(n, func() error {
		up, err := n.Up()
		trust := filepath.Join(n.Dir, "helper1", "trust.toml")
		if err == nil && (len(up) != 2 || n.deviceStates("primary")[home] != "" ||
			strings.Contains(n.Must("helper1", "cat", trust), ":7600")) {
			err = fmt.Errorf("subflows %+v, devices %v", up, n.deviceStates("primary"))
		}
		return err
	})
	n.checkDownload(mb)
}

// TestNoWayOut has two devices find each other over IPv4 in a network without an uplink, such as a
// phone's hotspot without a SIM card.
func TestNoWayOut(t *testing.T) {
	t.Parallel() // it checks neither rates nor times
	n := newNetwork(t, "20/20/-")
	for _, node := range []string{"primary", "helper1"} {
		n.Must(node, "ip", "-6", "addr", "flush", "dev", "pipe1")
		n.Must(node, "ip", "-4", "route", "flush", "default")
		if out := n.Must(node, "ip", "-4", "route", "show", "default"); out != "" {
			t.Fatalf("%s has a default route: %s", node, out)
		}
	}
	helper := n.Start("helper1", n.Mpbond, "helper", "--name", "phone")
	code := stripAddress(helper.AwaitCode())
	rig.Eventually(n, func() error { // a busy machine may answer too late the first time
		_, err := n.Run("primary", n.Mpbond, "pair", code)
		return err
	})
	if got := n.deviceStates("primary"); got["phone"] == "" {
		t.Errorf("the primary knows %v, want phone", got)
	}
}
