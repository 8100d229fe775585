// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"mpbond/api"
	"mpbond/base/identity"
	"mpbond/e2e/rig"
	"mpbond/lab"
)

// network is the emulated network
//
//	primary ─────────── ps ────────── server ─ core ─ web
//	   └─ pipe1 ─ helper1 ─ hs1 ─────────┘
//
// in whose nodes the real program runs.
type network struct {
	*rig.Network
	web4   string
	web6   string
	helper *rig.Process
}

// newNetwork is newNetworkWith of 60 Mbit/s links.
func newNetwork(t testing.TB) *network {
	t.Helper()
	return newNetworkWith(t, "60/60/60", "", nil)
}

// newNetworkWith makes a network with these link rates, a directory for packet captures unless that
// is "", and further flags for the server.
func newNetworkWith(t testing.TB, links, pcap string, server []string) *network {
	t.Helper()
	return newNetworkIn(t, rig.Triangle(t, links), pcap, server)
}

// newNetworkIn is newNetworkWith for a topology that has the same nodes.
func newNetworkIn(t testing.TB, topology *lab.Topology, pcap string, server []string) *network {
	t.Helper()
	n := &network{Network: rig.New(t, rig.Options{Lab: topology, Pcap: pcap, Race: true})}
	n.startRoles(server)
	return n
}

// newNetworkWithoutRace is newNetworkIn without the race detector, with which a process uses
// several times as much memory and processor time: for tests of memory, rates and times.
func newNetworkWithoutRace(t testing.TB, topology *lab.Topology) *network {
	t.Helper()
	n := &network{Network: rig.New(t, rig.Options{Lab: topology})}
	n.startRoles(nil)
	return n
}

// startRoles starts server, primary and helper, the server with further flags.
func (n *network) startRoles(server []string) {
	n.Helper()
	addr, err := n.Lab.Topology.Addr("web", "")
	if err != nil {
		n.Fatal(err)
	}
	n.web4 = addr.String()
	n.web6 = strings.Fields(n.Must("web", "sh", "-c", "ip -6 -o addr show scope global | sed 's/.*inet6 //; s,/.*,,'"))[0]
	n.exchangeTrust()
	n.Start("server", append([]string{n.Mpbond, "server", "--allow", "10.77.0.0/16", "--allow", "fd77::/16"},
		server...)...)
	n.Start("primary", n.Mpbond, "primary", "--name", "laptop")
	n.helper = n.Start("helper1", n.Mpbond, "helper", "--name", "phone")
	n.Await(2)
}

// exchangeTrust makes keys and lets the devices trust each other.
func (n *network) exchangeTrust() {
	n.Helper()
	keys := map[string]identity.PublicKey{}
	addr := func(node, link string) string {
		a, err := n.Lab.Topology.Addr(node, link)
		if err != nil {
			n.Fatal(err)
		}
		return a.String()
	}
	for _, node := range []string{"server", "primary", "helper1"} {
		k, err := identity.CreateKey(filepath.Join(n.Dir, node, "device.key"))
		if err != nil {
			n.Fatal(err)
		}
		keys[node] = k.Public()
	}
	server := addr("server", "core") + ":7600"
	var pipes []string
	for _, link := range n.Lab.Topology.Links() {
		if strings.HasPrefix(link, "pipe") {
			pipes = append(pipes, addr("primary", link)+":7602")
		}
	}
	for _, e := range []struct {
		at, who, name string
		role          identity.Role
		addr          []string
	}{
		{"server", "primary", "laptop", identity.RolePrimary, nil},
		{"primary", "server", "home", identity.RoleServer, []string{server}},
		{"primary", "helper1", "phone", identity.RoleHelper, nil},
		{"helper1", "server", "home", identity.RoleServer, []string{server}},
		{"helper1", "primary", "laptop", identity.RolePrimary, pipes},
	} {
		t, err := identity.OpenTrust(filepath.Join(n.Dir, e.at, "trust.toml"))
		if err == nil {
			err = t.Add(identity.Peer{Name: e.name, Roles: []identity.Role{e.role}, Key: keys[e.who], Addresses: e.addr})
		}
		if err != nil {
			n.Fatal(err)
		}
	}
}

// bondBytes returns the bytes that the bond has carried, in both directions.
func (n *network) bondBytes() (sum int64) {
	n.Helper()
	s, err := n.Status("server", "server")
	if err != nil {
		n.Fatal(err)
	}
	for _, p := range s.Bonds[0].Subflows {
		sum += int64(p.RxBytes + p.TxBytes)
	}
	return sum
}

// writeFile writes a file or fails the test.
func writeFile(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// writeNoise writes a file of n bytes and returns them.
func writeNoise(t *testing.T, path string, n int64) []byte {
	t.Helper()
	b, _ := io.ReadAll(rig.Noise(n))
	writeFile(t, path, string(b))
	return b
}

func TestApps(t *testing.T) {
	t.Parallel() // it checks neither rates nor times
	n := newNetwork(t)
	want, _ := rig.Sum(rig.Noise(mb))
	file := filepath.Join(n.Dir, "upload")
	b := writeNoise(t, file, mb)
	run := []string{n.Mpbond, "run", "--"}
	socks, proxy := []string{"--socks5-hostname", "127.0.0.1:1080"}, []string{"-x", "http://127.0.0.1:1080"}
	by4, by6, byName := fmt.Sprintf("http://%s/%d", n.web4, mb), fmt.Sprintf("http://[%s]/%d", n.web6, mb),
		fmt.Sprintf("http://web/%d", mb)
	for _, c := range []struct {
		name   string
		before []string
		args   []string
		upload bool
	}{
		{"run by name", run, []string{byName}, false},
		{"run by IPv4", run, []string{by4}, false},
		{"run by IPv6", run, []string{by6}, false},
		{"run, upload", run, []string{"-T", file, "http://web/"}, true},
		{"SOCKS5 by name", nil, append(socks, byName), false},
		{"SOCKS5 by IPv6", nil, append(socks, by6), false},
		{"SOCKS5, upload", nil, append(socks, "-T", file, "http://web/"), true},
		{"HTTP proxy", nil, append(proxy, byName), false},
		{"HTTP proxy, upload", nil, append(proxy, "-T", file, "http://web/"), true},
		{"HTTP CONNECT", nil, append(proxy, "-p", by4), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			before := n.bondBytes()
			curl := append(append(c.before[:len(c.before):len(c.before)], "curl", "-gsSf", "--max-time", "60", "-H",
				"Expect:"), c.args...)
			out, err := n.Run("primary", curl...)
			if err != nil {
				t.Fatal(err)
			}
			got := out
			if !c.upload {
				got, _ = rig.Sum(strings.NewReader(out))
			}
			if got != want {
				t.Errorf("%s, want %s", got, want)
			}
			if now := n.bondBytes(); now < before+mb {
				t.Errorf("the bond has carried only %d bytes", now-before)
			}
		})
	}
	t.Run("get", func(t *testing.T) {
		_, hash, _ := strings.Cut(want, ":")
		out := filepath.Join(n.Dir, "got")
		n.Must("primary", n.Mpbond, "get", "--quiet", "--sha256", hash, "-o", out, byName)
		if f, err := os.ReadFile(out); err != nil || !bytes.Equal(f, b) {
			t.Errorf("%d bytes, %v", len(f), err)
		}
	})
	t.Run("status", func(t *testing.T) {
		var s []api.Status
		out := n.Must("primary", n.Mpbond, "status", "--json")
		var one api.Status
		if err := json.Unmarshal([]byte(out), &one); err == nil {
			s = append(s, one)
		} else if err := json.Unmarshal([]byte(out), &s); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		for _, p := range s[0].Bonds[0].Subflows {
			if p.State != api.Up || p.RxBytes == 0 || p.TxBytes == 0 {
				t.Errorf("%+v", p)
			}
		}
		h, err := n.Status("helper1", "helper")
		if err != nil || h.Helper == nil || h.Helper.Subflows != 1 || h.Helper.RelayedBytes < 64<<10 ||
			h.Helper.Primary != "laptop" {
			t.Errorf("%+v, %v", h.Helper, err)
		}
	})
	t.Run("trust taken back", func(t *testing.T) {
		n.Must("primary", n.Mpbond, "trust", "remove", "phone")
		n.signalProcess("primary", syscall.SIGHUP)
		n.Await(1)
		n.Must("primary", append(run, "curl", "-sSf", "-o", "/dev/null", byName)...)
	})
}

// TestFaults breaks what carries a transfer, in the middle of it.
func TestFaults(t *testing.T) {
	t.Parallel() // it checks neither rates nor times
	n := newNetwork(t)
	const size = 12 * mb
	want, _ := rig.Sum(rig.Noise(size))
	for _, f := range []struct {
		name       string
		hurt, heal func() error
	}{
		{"helper killed", func() error { return n.helper.Cmd.Process.Kill() }, func() error {
			<-n.helper.Done
			n.helper = n.Start("helper1", n.Mpbond, "helper", "--name", "phone")
			return nil
		}},
		{"pipe cut", func() error { return n.Lab.Set("pipe1", "", "outage=on") },
			func() error { return n.Lab.Set("pipe1", "", "outage=off") }},
		{"HS-path a black hole", func() error { return n.Lab.Set("hs1", "", "outage=on") },
			func() error { return n.Lab.Set("hs1", "", "outage=off") }},
	} {
		t.Run(f.name, func(t *testing.T) {
			x := n.startAppTransfer(3*mb, n.Mpbond, "run", "--", "curl", "-sSf", "--max-time", "60",
				fmt.Sprintf("http://web/%d", size))
			<-x.begun
			if err := f.hurt(); err != nil {
				t.Error(err)
			}
			if <-x.done; x.err != nil || x.got != want {
				t.Errorf("%s, want %s; %v %s", x.got, want, x.err, &x.errs)
			}
			if err := f.heal(); err != nil {
				t.Fatal(err)
			}
			n.Await(2)
		})
	}
}
