// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"mpbond/api"
	"mpbond/base/identity"
	"mpbond/e2e/rig"
	"mpbond/lab"
)

// newUplinkNetwork makes the emulated network
//
//	primary ═══ wifi, lte ═══ server ─ core ─ web
//
// whose devices trust each other. No role runs yet. The primary's routes use wifi alone.
func newUplinkNetwork(t *testing.T) *network {
	t.Helper()
	topology := &lab.Topology{
		Node: map[string]*lab.Node{"primary": {Routes: []string{"default via wifi"}}, "server": {Forward: true},
			"web": {Routes: []string{"default via core"}}},
		Link: map[string]*lab.Link{"core": {Ends: [2]string{"server", "web"}}},
	}
	for name, rate := range map[string]string{"wifi": "20Mbit/s", "lte": "5Mbit/s"} {
		topology.Link[name] = &lab.Link{Ends: [2]string{"primary", "server"},
			LinkSettings: lab.LinkSettings{Rate: rate, Delay: "5ms"}}
	}
	return newTrustingNetwork(t, topology)
}

// newTrustingNetwork makes a network where primary and server trust each other.
func newTrustingNetwork(t *testing.T, topology *lab.Topology) *network {
	t.Helper()
	n := rig.New(t, rig.Options{Lab: topology, Race: true})
	server, err := topology.Addr("server", "core")
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]identity.PublicKey{}
	for _, node := range []string{"server", "primary"} {
		k, err := identity.CreateKey(filepath.Join(n.Dir, node, "device.key"))
		if err != nil {
			t.Fatal(err)
		}
		keys[node] = k.Public()
	}
	addPeer := func(at string, p identity.Peer) {
		list, err := identity.OpenTrust(filepath.Join(n.Dir, at, "trust.toml"))
		if err == nil {
			err = list.Add(p)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	addPeer("server", identity.Peer{Name: "laptop", Roles: []identity.Role{identity.RolePrimary}, Key: keys["primary"]})
	addPeer("primary", identity.Peer{Name: "home", Roles: []identity.Role{identity.RoleServer}, Key: keys["server"],
		Addresses: []string{fmt.Sprintf("%v:7600", server)}})
	return &network{Network: n}
}

// awaitDevices waits until these devices, and no others, carry subflows.
func (n *network) awaitDevices(want ...string) {
	n.Helper()
	rig.Eventually(n.TB, func() error {
		s, err := n.Status("primary", "primary")
		if err != nil {
			return err
		}
		up := map[string]bool{}
		for _, p := range s.Bonds[0].Subflows {
			if p.State == api.Up {
				up[p.Device] = true
			}
		}
		if got := slices.Sorted(maps.Keys(up)); !slices.Equal(got, want) {
			return fmt.Errorf("subflows by %q, want %q", got, want)
		}
		return nil
	})
}

// TestOwnInterfaces: the primary finds its interfaces by their default routes and follows changes.
// A metered interface carries a subflow only while the other one does not work.
func TestOwnInterfaces(t *testing.T) {
	t.Parallel() // it checks neither rates nor times
	n := newUplinkNetwork(t)
	n.Start("server", n.Mpbond, "server", "--allow", "10.77.0.0/16")

	awaitDevices := n.awaitDevices
	const wifi, lte = "laptop/wifi", "laptop/lte"
	route := func(verb, link, metric string) {
		t.Helper()
		n.Must("primary", "ip", "route", verb, "default", "dev", link, "metric", metric)
	}
	p := n.Start("primary", n.Mpbond, "primary", "--name", "laptop")
	awaitDevices("laptop") // one link: by the system's routes
	route("add", "lte", "900")
	awaitDevices(lte, wifi)
	route("del", "lte", "900")
	awaitDevices(wifi)
	route("add", "lte", "900")
	awaitDevices(lte, wifi)

	p.End(os.Interrupt)
	n.Start("primary", n.Mpbond, "primary", "--name", "laptop", "--interface", "auto", "--metered", "lte")
	awaitDevices(wifi)
	n.Must("primary", "sh", "-c", "ip route del default dev wifi; ip -6 route del default dev wifi")
	awaitDevices(lte)
	route("add", "wifi", "1")
	awaitDevices(lte, wifi) // the metered one stays for ten seconds
}
