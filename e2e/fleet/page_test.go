// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"mpbond/base/natstest"
	"mpbond/e2e/rig"
	"mpbond/internal/cli/clitest"
)

const pageName = "docs/howto/fleet.md"

// pageNodes are the machines of the page: each is a node of the engine, and a server.
var pageNodes = map[string]string{"n1": "eu1", "n2": "eu2", "n3": "eu3"}

// page runs the commands of the page of fleets on its machines.
type page struct {
	*rig.Network
	text     string
	machines map[string]*machine
	fleetKey string
	code     string
	operator string            // the key of the operator as a user of the engine
	users    map[string]string // the keys of servers as users
	server   string            // the name of the server that is added now
	key      string            // the key of that server
}

// section returns a section of the page by its number.
func (p *page) section(number int) string {
	p.Helper()
	_, text, found := strings.Cut(p.text, fmt.Sprintf("\n## %d. ", number))
	if !found {
		p.Fatalf("%s has no section %d", pageName, number)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	return text
}

// block returns the code block of a section that begins with a line, without indentation.
func (p *page) block(section, begin string) string {
	p.Helper()
	_, text, found := strings.Cut(section, "\n    "+begin)
	if !found {
		p.Fatalf("%s has no block that begins with %q", pageName, begin)
	}
	text, _, _ = strings.Cut(text, "\n\n")
	return strings.ReplaceAll(begin+text+"\n", "\n    ", "\n")
}

// runSection runs the commands of a section.
func (p *page) runSection(section string) {
	p.Helper()
	commands := clitest.Commands(section)
	if len(commands) == 0 {
		p.Fatalf("%s has no commands in %.40q", pageName, section)
	}
	for _, c := range commands {
		line := strings.NewReplacer("eu1", p.server, "mpb1…", p.key, "CODE", p.code).Replace(c.Text)
		switch c.Prompt {
		case "node":
			for _, name := range slices.Sorted(maps.Keys(pageNodes)) {
				p.runLine(p.machines[name], line)
			}
		case "server":
			for name, server := range pageNodes {
				if server == p.server {
					p.runLine(p.machines[name], line)
				}
			}
		case "operator", "laptop":
			p.runLine(p.machines[c.Prompt], line)
		default:
			p.Fatalf("%s: %q is of no machine", pageName, c.Text)
		}
	}
}

// runLine runs a command of the page.
func (p *page) runLine(m *machine, line string) {
	p.Helper()
	p.Logf("%s$ %s", m.node, line)
	if args, ok := strings.CutPrefix(line, "sudo systemctl "); ok {
		if args == "reload nats" {
			p.writeUsers()
		}
		m.systemctl(strings.Fields(args)...)
		if args == "enable --now mpbond-server" {
			rig.Eventually(p, func() error {
				m.restartFailed("mpbond-server")
				found := loggedKey.FindStringSubmatch(m.units["mpbond-server"].Log.String())
				if found == nil {
					return errors.New("the server has logged no key")
				}
				p.key = found[1]
				return nil
			})
		}
		return
	}
	if line == "mpbond primary" {
		p.StartCommand(m.node, m.command("exec "+line))
		return
	}
	out := ""
	rig.Eventually(p, func() (err error) { // the engine needs a leader first
		out, err = m.run(line)
		return err
	})
	switch {
	case strings.HasPrefix(line, "mpbond fleet init "):
		p.fleetKey = "mpb1" + strings.Fields(strings.SplitN(out, "mpb1", 2)[1])[0]
	case strings.HasPrefix(line, "mpbond fleet invite "):
		p.code = invited.FindStringSubmatch(out)[1]
	case strings.HasPrefix(line, "for n in n1 n2 n3; do openssl"):
		p.copyCertificates()
	case strings.Contains(line, "nk -gen user"):
		lines := strings.Fields(m.must("cat " + strings.TrimSuffix(line[strings.LastIndex(line, " ")+1:], ")")))
		if p.server == "" {
			p.operator = lines[1]
			p.writeUsers()
		} else {
			p.users[p.server] = lines[1]
		}
	}
}

// writeUsers writes users.conf of all nodes.
func (p *page) writeUsers() {
	p.Helper()
	text := fillUsers(p, p.operator, p.users)
	for name := range pageNodes {
		p.machines[name].write("/etc/nats/users.conf", text, "640")
	}
}

// copyCertificates copies the certificates that the operator has made to the nodes.
func (p *page) copyCertificates() {
	p.Helper()
	operator := p.machines["operator"]
	for name := range pageNodes {
		m := p.machines[name]
		m.write("/etc/nats/ca.pem", operator.must("cat ca.pem"), "644")
		m.write("/etc/nats/node.pem", operator.must("cat "+name+".pem"), "644")
		m.write("/etc/nats/node.key", operator.must("cat "+name+".key"), "600")
	}
}

// installNode copies the files of packaging/fleet to a node, with its name.
func (p *page) installNode(m *machine) {
	p.Helper()
	conf := readFile(p, "packaging/fleet/nats.conf")
	ownName := regexp.MustCompile(`(?m)^( *(server_name|(client_)?advertise): "?)n1`)
	if got := len(ownName.FindAllString(conf, -1)); got != 3 {
		p.Fatalf("nats.conf names its node %d times", got)
	}
	m.write("/etc/nats/nats.conf", ownName.ReplaceAllString(conf, "${1}"+m.node), "644")
	m.write("/etc/systemd/system/nats.service", readFile(p, "packaging/fleet/nats.service"), "644")
}

// installServer installs mpbond on the machine of a server, with the configuration of the page.
func (p *page) installServer(m *machine, section string) {
	p.Helper()
	dir, err := filepath.Abs(root)
	if err != nil {
		p.Fatal(err)
	}
	m.must("make -C " + dir + " install MPBOND=" + p.Mpbond)
	operator := p.machines["operator"]
	m.write("/etc/mpbond/ca.pem", operator.must("cat ca.pem"), "644")
	m.write("/etc/mpbond/"+p.server+".creds", operator.must("cat "+p.server+".creds"), "600")
	names := strings.NewReplacer("eu1", p.server, "mpb1…", p.fleetKey)
	m.write("/etc/mpbond/server.toml", names.Replace(p.block(section, `public = "eu1.example.org"`)), "644")
	m.write("/etc/systemd/system/mpbond-server.service.d/override.conf", names.Replace(p.block(section, "[Service]")),
		"644")
}

// TestPage runs the commands of sections 1 to 4 of the page, with the files of packaging: three machines with a node
// of the engine and a server each, as users that their units name, an operator and a laptop, which downloads.
func TestPage(t *testing.T) {
	t.Parallel()
	nats := natstest.Program(t) // skips without one
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("openssl is not installed: .ci/deps installs it")
	}
	spokes := []spoke{{node: "primary"}, {node: "operator"}}
	for _, name := range slices.Sorted(maps.Keys(pageNodes)) {
		spokes = append(spokes, spoke{node: name})
	}
	top, hosts := newStar(spokes...)
	addWeb(top)
	p := &page{Network: rig.New(t, rig.Options{Lab: top}), text: readFile(t, pageName), machines: map[string]*machine{},
		users: map[string]string{}}
	var names strings.Builder
	for node, server := range pageNodes {
		fmt.Fprintf(&names, "%s %s.example.org %s.example.org\n", hosts[node], node, server)
	}
	nk := buildNK(t)
	for _, s := range spokes {
		p.machines[s.node] = newMachine(p.Network, s.node, names.String(), nats, nk, p.Mpbond)
	}
	p.machines["laptop"] = p.machines["primary"]
	for name := range pageNodes {
		p.installNode(p.machines[name])
	}
	p.runSection(p.section(1))
	p.runSection(p.section(2))
	servers := p.section(3)
	for node, server := range pageNodes {
		p.server = server
		before, after, found := strings.Cut(servers, "Install mpbond on the server")
		if !found {
			t.Fatal("section 3 does not install mpbond")
		}
		p.runSection(before)
		p.installServer(p.machines[node], servers)
		p.runSection(after)
	}
	operator := p.machines["operator"]
	rig.Eventually(t, func() error {
		out, err := operator.run("mpbond fleet status")
		if err == nil && strings.Count(out, " runs ") != len(pageNodes) {
			err = errors.New(out)
		}
		return err
	})
	p.runSection(p.section(4))
	rig.Eventually(t, func() error { return download(p.Network) })
	for name := range pageNodes {
		if log := p.machines[name].units["nats"].Log.String(); strings.Contains(log, "x509:") {
			t.Errorf("the node %s refuses a certificate:\n%s", name, log)
		}
	}
}
