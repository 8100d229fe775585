// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"mpbond/e2e/rig"
)

const composeName = "packaging/fleet/compose.yaml"

// composeFile is what this test needs of a compose file.
type composeFile struct {
	Services          map[string]composeService
	Networks, Volumes map[string]struct{ Internal bool }
}

type composeService struct {
	Image, Restart                                          string
	Build                                                   map[string]string
	Command, Entrypoint, Networks, Ports, Volumes, Profiles []string
	DependsOn                                               []string `yaml:"depends_on"`
}

// composition is a compose file whose services are nodes around a hub, which is the machine that publishes their ports.
type composition struct {
	*rig.Network
	composeFile
	hosts     map[string]string // addresses by node
	images    map[string]image
	volumes   map[string]string // directories by name
	processes map[string]*rig.Process
}

// newComposition reads the compose file and makes its network.
func newComposition(t *testing.T) *composition {
	t.Helper()
	c := &composition{volumes: map[string]string{}, processes: map[string]*rig.Process{}, images: map[string]image{}}
	if err := yaml.Unmarshal([]byte(readFile(t, composeName)), &c.composeFile); err != nil {
		t.Fatal(err)
	}
	spokes := []spoke{{node: "primary"}}
	for _, name := range slices.Sorted(maps.Keys(c.Services)) {
		spokes = append(spokes, spoke{node: name})
	}
	top, hosts := newStar(spokes...)
	addWeb(top)
	c.hosts = hosts
	c.Network = rig.New(t, rig.Options{Lab: top})
	c.images["mpbond"] = mpbondImage(t, c.Network)
	c.Must("hub", "nft", "add table ip ports; add chain ip ports in { type nat hook prerouting priority -100; }")
	built := map[string]bool{}
	for name, s := range c.Services {
		if s.Build["context"] == "../.." && s.Build["dockerfile"] == "Containerfile" {
			built[s.Image] = true
		}
		if strings.HasPrefix(s.Image, "docker.io/library/nats:") {
			c.images[s.Image] = natsImage(t)
		}
		for _, other := range s.DependsOn {
			if len(c.commonNetworks(name, other)) == 0 {
				t.Errorf("%s depends on %s, and has no network with it", name, other)
			}
		}
		for _, p := range s.Ports {
			port, inside, _ := strings.Cut(p, ":")
			inside, protocol, isUDP := strings.Cut(inside, "/")
			if !isUDP {
				protocol = "tcp"
			}
			c.Must("hub", "nft", fmt.Sprintf("add rule ip ports in %s dport %s dnat to %s:%s", protocol, port, hosts[name],
				inside))
		}
	}
	if !built["mpbond"] {
		t.Errorf("no service builds the image mpbond of the Containerfile")
	}
	return c
}

// commonNetworks returns the networks of two services.
func (c *composition) commonNetworks(a, b string) (list []string) {
	for _, n := range c.Services[a].Networks {
		if slices.Contains(c.Services[b].Networks, n) {
			list = append(list, n)
		}
	}
	return list
}

// container returns the container of a service. With args they are its command.
func (c *composition) container(name string, args ...string) *container {
	c.Helper()
	s, known := c.Services[name]
	m, hasImage := c.images[s.Image]
	if !known || !hasImage {
		c.Fatalf("service %q has no image %q", name, s.Image)
	}
	k := &container{image: m, node: name, volumes: map[string]string{}, command: s.Command,
		restarts: s.Restart == "unless-stopped" && args == nil}
	if s.Entrypoint != nil {
		k.entrypoint = s.Entrypoint
	}
	if args != nil {
		k.command = args
	} else if s.Command == nil {
		k.command = m.command
	}
	for _, n := range s.Networks {
		if _, known := c.Networks[n]; !known {
			c.Fatalf("service %s has the network %q", name, n)
		}
	}
	for other := range c.Services { // the names that a service can find
		if len(c.commonNetworks(name, other)) > 0 {
			k.hosts = append(k.hosts, c.hosts[other]+" "+other)
		}
	}
	for _, v := range s.Volumes {
		volume, path, _ := strings.Cut(v, ":")
		if _, known := c.Volumes[volume]; !known {
			c.Fatalf("service %s has the volume %q", name, volume)
		}
		if c.volumes[volume] == "" {
			c.volumes[volume] = newVolume(c, m, path)
		}
		k.volumes[path] = c.volumes[volume]
	}
	return k
}

// TestCompose runs the commands at the head of the compose file, without a container engine: each service is a process
// that sees the files of its image and its volumes. Then a device joins and downloads.
func TestCompose(t *testing.T) {
	t.Parallel()
	natsImage(t) // skips without one
	c := newComposition(t)
	head, _, _ := strings.Cut(readFile(t, composeName), "\nname:")
	keys, code, ran := map[string]string{}, "", 0
	for line := range strings.Lines(head) {
		line, isCommand := strings.CutPrefix(line, "#   docker compose ")
		if !isCommand {
			continue
		}
		line, note, _ := strings.Cut(line, " # ")
		ran++
		switch f := strings.Fields(line); f[0] {
		case "up":
			for name, s := range c.Services {
				if s.Profiles == nil {
					c.processes[name] = c.StartCommand(name, c.container(name).prepare(c.Network))
				}
			}
		case "logs":
			for _, name := range f[1:] {
				keys[name] = awaitKey(t, c.processes[name])
			}
		case "run":
			if len(f) < 4 || f[1] != "--rm" {
				t.Fatalf("docker compose %s", line)
			}
			if f[3] != "add" {
				rig.Eventually(t, func() error { // the engine has no leader at first
					out, err := c.container(f[2], f[3:]...).run(c.Network)
					if m := invited.FindStringSubmatch(out); m != nil {
						code = m[1]
					}
					return err
				})
				continue
			}
			c.addServers(f[2], line, note, keys)
		}
	}
	if ran < 5 || len(keys) != 2 || code == "" {
		t.Fatalf("ran %d commands, which showed the keys %v and the code %q", ran, keys, code)
	}
	useFleet(c.Network, code)
	for _, name := range []string{"eu1", "eu2"} { // a restart keeps the key
		if got := loggedKey.FindAllStringSubmatch(c.processes[name].Log.String(), -1); got[len(got)-1][1] != keys[name] {
			t.Errorf("%s has the keys %v", name, got)
		}
	}
}

// addServers runs the command that adds a server for each server. Its note names the address of the second.
func (c *composition) addServers(operator, line, note string, keys map[string]string) {
	c.Helper()
	host, err := c.Lab.Topology.Addr("hub", "l-primary")
	if err != nil {
		c.Fatal(err)
	}
	for name, key := range keys {
		port, _, _ := strings.Cut(c.Services[name].Ports[0], ":")
		if !strings.Contains(line+note, "THIS-HOST:"+port) {
			c.Errorf("%s is published at port %s, which %q does not say", name, port, line+note)
		}
		add := strings.NewReplacer("eu1", name, "KEY", key, "THIS-HOST:7600", net.JoinHostPort(host.String(), port)).
			Replace(line)
		c.container(operator, strings.Fields(add)[3:]...).mustRun(c.Network)
	}
	rig.Eventually(c, func() error {
		out, err := c.container(operator, "status").run(c.Network)
		if err == nil && strings.Count(out, " runs ") != len(keys) {
			err = fmt.Errorf("%s", out)
		}
		return err
	})
}
