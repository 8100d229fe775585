// SPDX-License-Identifier: Apache-2.0

// Package fleet tests several servers for the same devices: the real programs in the lab, with a real cluster of
// NATS servers. It runs what the files of packaging/fleet start, and the commands of docs/howto/fleet.md.
//
//	fleet_test.go       servers that end, drain or lose their engine
//	crowd_test.go       many devices
//	compose_test.go     the compose file
//	kubernetes_test.go  the Kubernetes objects
//	container_test.go   containers without a container engine
//	page_test.go        the page, with nats.conf, users.conf and the units
//	machine_test.go     machines with file systems of their own, and a part of systemd
package fleet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"mpbond/api"
	"mpbond/base/natstest"
	"mpbond/base/unit"
	"mpbond/e2e/rig"
	"mpbond/lab"
)

func TestMain(m *testing.M) { rig.Main(m, runStreamServer) }

// mb is a megabyte.
const mb = 1_000_000

// fleetNetwork is an emulated network with two servers in one region, one in another, and an engine of three nodes
// beside them.
type fleetNetwork struct {
	*rig.Network
	engine *natstest.Cluster
	// servers are the processes of the servers that run, by name.
	servers map[string]*rig.Process
	keys    map[string]string
}

// serverNames are the servers, each with its region first.
var serverNames = []string{"eu1", "eu2", "us1"}

// spoke is a node of a star, with its delay to the hub. Without one its link has no limits.
type spoke struct{ node, delay string }

// newStar returns a network of nodes around the node hub, and their addresses.
func newStar(spokes ...spoke) (top *lab.Topology, hosts map[string]string) {
	top = &lab.Topology{Node: map[string]*lab.Node{"hub": {Forward: true}}, Link: map[string]*lab.Link{}}
	hosts = map[string]string{}
	for i, l := range spokes {
		name := "l-" + l.node
		hosts[l.node] = fmt.Sprintf("10.60.%d.2", i)
		link := &lab.Link{Ends: [2]string{l.node, "hub"},
			Addresses: [2][]string{{hosts[l.node] + "/24"}, {fmt.Sprintf("10.60.%d.1/24", i)}}}
		if l.delay != "" {
			link.LinkSettings = lab.LinkSettings{Rate: "40Mbit/s", Delay: l.delay}
		}
		top.Node[l.node], top.Link[name] = &lab.Node{Routes: []string{"default via " + name}}, link
	}
	return top, hosts
}

// addWeb adds a web server with a public address, webAddress, to a star.
func addWeb(top *lab.Topology) {
	top.Node["web"] = &lab.Node{Routes: []string{"default via l-web"}}
	top.Link["l-web"] = &lab.Link{Ends: [2]string{"web", "hub"},
		Addresses: [2][]string{{webAddress + "/24"}, {"192.0.2.1/24"}}}
}

// newFleet starts a network whose fleet has these servers and no device. extra are further flags of all servers.
func newFleet(t *testing.T, extra ...string) *fleetNetwork {
	t.Helper()
	natstest.Program(t) // skips without one
	top, hosts := newStar(spoke{"primary", "5ms"}, spoke{"eu1", "5ms"}, spoke{"eu2", "5ms"}, spoke{"us1", "40ms"},
		spoke{"web", ""}, spoke{"n1", ""}, spoke{"n2", ""}, spoke{"n3", ""}, spoke{"operator", ""}, spoke{"second", "5ms"})
	n := &fleetNetwork{Network: rig.New(t, rig.Options{Lab: top}), servers: map[string]*rig.Process{},
		keys: map[string]string{}}
	n.engine = natstest.Start(t, natstest.Options{TLS: true, Hosts: []string{hosts["n1"], hosts["n2"], hosts["n3"]},
		Command: func(i int, argv ...string) *exec.Cmd { return n.Command(fmt.Sprintf("n%d", i+1), argv...) }})
	rig.Eventually(t, func() error { // the nodes need a leader first
		_, err := n.Run("operator", n.Mpbond, "fleet", "init", "acme", "--fleet", n.engine.URLs(), "--fleet-ca",
			n.engine.CAFile)
		return err
	})
	for _, name := range serverNames {
		n.keys[name] = strings.Fields(n.Must(name, n.Mpbond, "keygen"))[1]
		n.startServer(name, extra...)
		n.Must("operator", n.Mpbond, "fleet", "add", name, "--key", n.keys[name], "--addr", hosts[name]+":7600",
			"--region", name[:2])
	}
	n.awaitServers(serverNames...)
	return n
}

// startServer starts a server of the fleet.
func (n *fleetNetwork) startServer(name string, extra ...string) {
	n.Helper()
	n.servers[name] = n.Start(name, append([]string{n.Mpbond, "server", "--allow", "10.60.0.0/16", "--name", name,
		"--region", name[:2], "--fleet", n.engine.URLs(), "--fleet-ca", n.engine.CAFile}, extra...)...)
}

// fleetStatus returns what `fleet status` says of each server, by name.
func (n *fleetNetwork) fleetStatus() (map[string]api.FleetServer, error) {
	var r struct{ Servers []api.FleetServer }
	if err := n.JSON(&r, "operator", "fleet", "status", "--json"); err != nil {
		return nil, err
	}
	m := map[string]api.FleetServer{}
	for _, s := range r.Servers {
		m[s.Name] = s
	}
	return m, nil
}

// awaitServers waits until exactly these servers run.
func (n *fleetNetwork) awaitServers(names ...string) {
	n.Helper()
	rig.Eventually(n, func() error {
		m, err := n.fleetStatus()
		if err != nil {
			return err
		}
		running := 0
		for _, s := range m {
			if s.Running != nil && *s.Running {
				running++
			}
		}
		for _, name := range names {
			if s := m[name]; running != len(names) || s.Running == nil || !*s.Running || !s.Listed {
				return fmt.Errorf("%d servers run, of %v: %+v", running, names, m)
			}
		}
		return nil
	})
}

// joinFleet has a node join the fleet and starts its primary.
func (n *fleetNetwork) joinFleet(node string, invite ...string) {
	n.Helper()
	var inv struct{ Code string }
	if err := n.JSON(&inv, "operator", append([]string{"fleet", "invite", "--json", "--name", node},
		invite...)...); err != nil {
		n.Fatal(err)
	}
	n.Must(node, n.Mpbond, "pair", inv.Code)
	n.Start(node, n.Mpbond, "primary")
	n.awaitServer(node, serverNames...)
}

// currentServer returns the server of a node's bond, "" if it has no subflow.
func (n *fleetNetwork) currentServer(node string) (string, error) {
	s, err := n.Status(node, "primary")
	if err != nil || s.Fleet == nil || len(s.Bonds) == 0 {
		return "", err
	}
	for _, sf := range s.Bonds[0].Subflows {
		if sf.State == api.Up {
			return s.Fleet.Server, nil
		}
	}
	return "", nil
}

// awaitServer waits until the bond of a node uses one of these servers, and returns it.
func (n *fleetNetwork) awaitServer(node string, names ...string) (name string) {
	n.Helper()
	rig.Eventually(n, func() (err error) {
		if name, err = n.currentServer(node); err != nil {
			return err
		}
		for _, want := range names {
			if name == want {
				return nil
			}
		}
		return fmt.Errorf("%s uses server %q, not one of %v", node, name, names)
	})
	return name
}

// fetch has an app in a node download n bytes over the bond, and returns an error if it fails.
func (n *fleetNetwork) fetch(node string, size int) error {
	out, err := n.Run(node, n.Mpbond, "run", "--", "curl", "-sSf", "--max-time", "20",
		fmt.Sprintf("http://10.60.4.2/%d", size))
	if err == nil && len(out) != size {
		err = fmt.Errorf("%d of %d bytes", len(out), size)
	}
	return err
}

// without returns the server names without one.
func without(name string) (list []string) {
	for _, s := range serverNames {
		if s != name {
			list = append(list, s)
		}
	}
	return list
}

// TestServerSilent checks that new connections work at another server while a server's program hangs, and that an open
// one goes on when it comes back.
func TestServerSilent(t *testing.T) {
	t.Parallel()
	n := newFleet(t)
	n.joinFleet("primary", "--region", "eu")
	first := n.awaitServer("primary", "eu1", "eu2")
	file := filepath.Join(t.TempDir(), "old")
	slow := n.Command("primary", n.Mpbond, "run", "--", "curl", "-sSf", "--limit-rate", "200K", "-o", file,
		"http://10.60.4.2/2000000")
	if err := slow.Start(); err != nil {
		t.Fatal(err)
	}
	size := func() int64 {
		s, err := os.Stat(file)
		if err != nil {
			return 0
		}
		return s.Size()
	}
	rig.Eventually(t, func() error {
		if size() == 0 {
			return errors.New("the first connection has got nothing yet")
		}
		return nil
	})
	hung := n.servers[first].Cmd.Process
	if err := hung.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	rig.Eventually(t, func() error { return n.fetch("primary", 1000) })
	t.Logf("%s hangs: a new connection works after %v", first, time.Since(began).Round(10*time.Millisecond))
	n.awaitServer("primary", without(first)...)
	if err := hung.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if err := slow.Wait(); err != nil || size() != 2_000_000 {
		t.Errorf("the connection from before: %d bytes, %v", size(), err)
	}
}

// TestServerEnds checks the choice of a near server, and that new connections work at another server soon after one
// is killed.
func TestServerEnds(t *testing.T) {
	t.Parallel()
	n := newFleet(t)
	n.joinFleet("primary", "--region", "eu")
	first := n.awaitServer("primary", "eu1", "eu2") // us1 is 70 ms further
	if err := n.fetch("primary", mb); err != nil {
		t.Fatal(err)
	}
	n.servers[first].End(syscall.SIGKILL)
	began := time.Now()
	rig.Eventually(t, func() error { return n.fetch("primary", 1000) })
	t.Logf("%s was killed; a new connection worked after %v", first, time.Since(began).Round(time.Millisecond))
	second := n.awaitServer("primary", without(first)...)
	if second == "us1" {
		t.Errorf("the far server was chosen while a near one runs")
	}
	n.awaitServers(without(first)...) // it disappears
	n.startServer(first)
	n.awaitServers(serverNames...)
}

// TestDrain checks that a server that drains cuts no connection, while new ones use another server.
func TestDrain(t *testing.T) {
	t.Parallel()
	n := newFleet(t)
	n.joinFleet("primary")
	first := n.awaitServer("primary", "eu1", "eu2")
	const size = 60 * mb // more than fits into buffers: a minute
	type result struct {
		out string
		err error
	}
	done := make(chan result, 1)
	// the drain is noticed within ten seconds while bytes move
	download := n.Command("primary", n.Mpbond, "run", "--", "curl", "-sSf", "--max-time", "120", "-o", "/dev/null",
		"-w",
		"%{size_download}", "--limit-rate", "800k", fmt.Sprintf("http://10.60.4.2/%d", size))
	go func() {
		var errs bytes.Buffer
		download.Stderr = &errs
		out, err := download.Output()
		if err != nil {
			err = fmt.Errorf("%w: %s", err, &errs)
		}
		done <- result{string(out), err}
	}()
	rig.Eventually(t, func() error { return n.expectStreams(first, 1) })
	n.Must("operator", n.Mpbond, "fleet", "drain", first)
	second := n.awaitServer("primary", without(first)...)
	if err := n.fetch("primary", mb); err != nil {
		t.Errorf("a new connection at %s: %v", second, err)
	}
	if err := n.expectStreams(first, 1); err != nil {
		t.Errorf("the old connection is not at %s: %v", first, err)
	}
	if r := <-done; r.err != nil || r.out != fmt.Sprint(size) {
		t.Errorf("the download over the server that drains: %q bytes, %v", r.out, r.err)
	}
	rig.Eventually(t, func() error { return n.expectBonds(first, 0) })
	n.Must("operator", n.Mpbond, "fleet", "undrain", first)
	rig.Eventually(t, func() error {
		m, err := n.fleetStatus()
		if err == nil && m[first].Draining {
			err = fmt.Errorf("%s drains", first)
		}
		return err
	})
}

// TestIdleStream checks that a stream that carries nothing makes no traffic: nothing may wake a radio.
func TestIdleStream(t *testing.T) {
	t.Parallel()
	n := newFleet(t)
	n.joinFleet("primary")
	current := n.awaitServer("primary", "eu1", "eu2")
	app := n.Command("primary", n.Mpbond, "run", "--", "bash", "-c", "exec 3<>/dev/tcp/10.60.4.2/80; exec sleep 600")
	if err := app.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = app.Process.Signal(syscall.SIGTERM)
		_ = app.Wait()
	})
	rig.Eventually(t, func() error { return n.expectStreams(current, 1) })
	carried := func() (sum unit.Bytes) {
		s, err := n.Status("primary", "primary")
		if err != nil {
			t.Fatal(err)
		}
		for _, sf := range s.Bonds[0].Subflows {
			sum += sf.RxBytes + sf.TxBytes
		}
		return sum
	}
	const quiet = 25 * time.Second // twice the time between two questions for the fleet's servers
	last, since, began := unit.Bytes(0), time.Now(), time.Now()
	rig.Eventually(t, func() error {
		now := carried()
		if time.Since(began) > 4*quiet {
			t.Fatalf("the bond still carries bytes: %v by now", now)
		}
		if now != last {
			last, since = now, time.Now()
		}
		if time.Since(since) < quiet {
			return fmt.Errorf("the bond has carried %v, the last of it %v ago", now, time.Since(since))
		}
		return nil
	})
}

// expectStreams returns an error unless a server has that many streams.
func (n *fleetNetwork) expectStreams(server string, want int) error {
	s, err := n.Status(server, "server")
	if err != nil {
		return err
	}
	sum := 0
	for _, b := range s.Bonds {
		sum += b.Streams
	}
	if sum != want {
		return fmt.Errorf("%s has %d streams instead of %d", server, sum, want)
	}
	return nil
}

// expectBonds returns an error unless a server has that many bonds.
func (n *fleetNetwork) expectBonds(server string, want int) error {
	s, err := n.Status(server, "server")
	if err == nil && len(s.Bonds) != want {
		err = fmt.Errorf("%s has %d bonds instead of %d", server, len(s.Bonds), want)
	}
	return err
}

// TestRevokedEverywhere checks that a revoked device loses its connections and is served by no server, while another
// device goes on; and what the fleet counts.
func TestRevokedEverywhere(t *testing.T) {
	t.Parallel()
	n := newFleet(t)
	n.joinFleet("primary")
	n.joinFleet("second")
	if err := n.fetch("primary", 2*mb); err != nil {
		t.Fatal(err)
	}
	rig.Eventually(t, func() error { // counts are a second old
		out, err := n.Run("operator", n.Mpbond, "fleet", "usage", "--json")
		if err != nil {
			return err
		}
		var u struct {
			Device    string
			DownBytes int `json:"down_bytes"`
		}
		for line := range strings.Lines(out) {
			if err := json.Unmarshal([]byte(line), &u); err != nil {
				return err
			}
			if u.Device == "primary" && u.DownBytes > 2*mb && u.DownBytes < 3*mb {
				return nil
			}
		}
		return fmt.Errorf("the fleet counts %s", out)
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_ = ctx
	began := time.Now()
	n.Must("operator", n.Mpbond, "fleet", "revoke", "primary")
	t.Logf("the revocation was confirmed by all servers after %v", time.Since(began).Round(time.Millisecond))
	for _, s := range serverNames {
		st, err := n.Status(s, "server")
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range st.Bonds {
			if b.Peer == "primary" {
				t.Errorf("%s still has a bond of the revoked device", s)
			}
		}
	}
	rig.Eventually(t, func() error {
		s, err := n.Status("primary", "primary")
		if err == nil && len(s.Refused) == 0 {
			err = fmt.Errorf("the device does not know that it is refused: %+v", s.Bonds)
		}
		return err
	})
	if err := n.fetch("second", mb); err != nil {
		t.Errorf("another device: %v", err)
	}
	out := n.Must("operator", n.Mpbond, "fleet", "events", "--json")
	for _, want := range []string{`"kind":"paired"`, `"kind":"revoked"`, `"name":"primary"`} {
		if !strings.Contains(out, want) {
			t.Errorf("the events lack %s:\n%s", want, out)
		}
	}
}

// TestEngineLost checks that bonds, and new ones of known devices, work while all nodes of the engine are away, that
// new devices are refused with a reason, and that a restarted server knows its devices.
func TestEngineLost(t *testing.T) {
	t.Parallel()
	n := newFleet(t)
	n.joinFleet("primary")
	var inv struct{ Code string }
	if err := n.JSON(&inv, "operator", "fleet", "invite", "--json"); err != nil {
		t.Fatal(err)
	}
	current := n.awaitServer("primary", serverNames...)
	for _, node := range n.engine.Nodes {
		node.Kill()
	}
	if err := n.fetch("primary", mb); err != nil {
		t.Errorf("over an existing bond: %v", err)
	}
	n.servers[current].End(syscall.SIGTERM)
	n.startServer(current)
	rig.Eventually(t, func() error { return n.fetch("primary", mb) })
	n.awaitServer("primary", serverNames...)
	rig.Eventually(t, func() error {
		s, err := n.Status(current, "server")
		if err == nil && (s.Fleet == nil || !s.Fleet.EngineLost) {
			err = fmt.Errorf("the server does not know that the engine is lost: %+v", s.Fleet)
		}
		return err
	})
	_, err := n.Run("second", n.Mpbond, "pair", inv.Code)
	if err == nil || !strings.Contains(err.Error(), "cannot add devices now") {
		t.Errorf("pairing without the engine: %v", err)
	}
	for _, node := range n.engine.Nodes {
		node.Restart(t)
	}
	rig.Eventually(t, func() error {
		_, err := n.Run("second", n.Mpbond, "pair", inv.Code)
		return err
	})
	n.awaitServers(serverNames...)
}

// TestDamagedFleetFile checks the error for a damaged file of the fleet.
func TestDamagedFleetFile(t *testing.T) {
	t.Parallel()
	n := rig.New(t, rig.Options{})
	dir := filepath.Join(n.Dir, "primary")
	n.Must("primary", "sh", "-c", "mkdir -p "+dir+" && echo '{' >"+dir+"/fleet.json")
	_, err := n.Run("primary", n.Mpbond, "fleet", "leave")
	if err == nil || !strings.Contains(err.Error(), "fleet.json") || !strings.Contains(err.Error(),
		"join the fleet again") {
		t.Errorf("%v", err)
	}
}
