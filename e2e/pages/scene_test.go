// SPDX-License-Identifier: Apache-2.0

//go:build linux

package pages

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"mpbond/base/waittest"
	"mpbond/e2e/rig"
	"mpbond/e2e/terminal"
	"mpbond/lab"
)

// nodes has the node of the lab for each name in prompts.
var nodes = map[string]string{"vps": "server", "permits": "server", "spare": "helper1", "phone": "helper1",
	"ben": "helper1", "laptop": "primary", "anna": "primary"}

// defaultNames are the host names of nodes whose prompts a page does not show.
var defaultNames = map[string]string{"server": "vps", "helper1": "phone", "primary": "laptop", clone: "clone"}

// nodePatterns choose the node of commands without prompt; others run at the primary.
var nodePatterns = []struct {
	pattern *regexp.Regexp
	node    string
}{
	{regexp.MustCompile(`^mpbond-lab permit ask`), "helper1"},
	{regexp.MustCompile(`^mpbond (helper|accept)|/helper\.sock`), "helper1"},
	{regexp.MustCompile(`^mpbond server|^mpbond-lab permit`), "server"},
	{regexp.MustCompile(`^(mpbond-lab|make|go|bin/|taskset|\./transport|sudo install bin/)\b`), clone},
}

// chooseNodes sets where the commands of a page run. If a command of a block runs in the clone, all
// of them do.
func (p *page) chooseNodes() {
	begin := 0
	for i := range p.commands {
		c := &p.commands[i]
		if c.Begins {
			begin = i
		}
		c.node = "primary"
		if c.Prompt != "" {
			c.node = nodes[c.Prompt]
			continue
		}
		for _, n := range nodePatterns {
			if n.pattern.MatchString(c.Text) {
				c.node = n.node
				break
			}
		}
		if c.node == clone || p.commands[begin].node == clone {
			for j := begin; j <= i; j++ {
				p.commands[j].node = clone
			}
		}
	}
}

// scene runs the commands of a page.
type scene struct {
	*rig.Network
	page
	files      string // the directory of files for all scenes
	repository string
	names      map[string]string // host names by node
	devices    map[string]*device
	here       string            // node of commands without prompt after a service was enabled, or ""
	codes      []code            // shown and not used yet
	values     map[string]string // what before puts in place of placeholders
}

// code is a pairing code that a node has shown.
type code struct{ node, text string }

func newScene(t *testing.T, p page, files string) *scene {
	t.Helper()
	s := &scene{page: p, files: files, names: map[string]string{}, devices: map[string]*device{},
		values: map[string]string{}}
	var err error
	if s.repository, err = filepath.Abs(root); err != nil {
		t.Fatal(err)
	}
	o := rig.Options{}
	for _, c := range p.commands {
		if s.names[c.node] == "" {
			s.names[c.node] = c.Prompt
		}
		if c.node != clone && c.reason() == "" {
			o.Lab = newTopology(t)
		}
	}
	s.Network = rig.New(t, o)
	for _, name := range []string{"mpbond-lab", "cellwatch"} {
		rig.Beside(t, s.Mpbond, name)
	}
	t.Cleanup(s.killAll)
	t.Cleanup(s.stopAll)
	if s.Lab != nil {
		s.startSites()
	}
	return s
}

// newTopology returns the network of a house: the primary has two links of its own, the helper one
// and a pipe. None of them is limited.
func newTopology(t *testing.T) *lab.Topology {
	top := rig.Triangle(t, "-/-/-")
	top.Link["wlan0"], top.Link["wwan0"] = top.Link["ps"], &lab.Link{Ends: [2]string{"primary", "server"}}
	delete(top.Link, "ps")
	top.Node["sites"] = top.Node["web"] // the rig has a web server of its own for web
	delete(top.Node, "web")
	top.Link["core"].Ends[1] = "sites"
	top.Node["primary"].Routes = []string{"default via wlan0"}
	top.Node["server"].Routes = []string{siteAddress + "/32 via core"}
	return top
}

// startSites starts the web sites behind their public address, and lets the primary use its second
// link.
func (s *scene) startSites() {
	s.Helper()
	at, err := s.Lab.Topology.Addr("server", "wwan0")
	if err != nil {
		s.Fatal(err)
	}
	s.Must("primary", "ip", "route", "add", "default", "via", at.String(), "dev", "wwan0", "metric", "200")
	s.Must("sites", "ip", "addr", "add", siteAddress+"/32", "dev", "lo")
	p := s.Start("sites", os.Args[0], "lab", "sites", s.files)
	waittest.UntilSuccess(s.TB, func() error {
		if hasEnded(p) {
			s.Fatalf("the web sites do not start: %v\n%s", p.Err, &p.Log)
		}
		_, err := s.Run("sites", "curl", "-sk", "https://"+siteAddress+"/")
		return err
	})
}

// at returns the device of a node.
func (s *scene) at(node string) *device {
	s.Helper()
	if s.devices[node] == nil {
		name := s.names[node]
		if name == "" {
			name = defaultNames[node]
		}
		s.devices[node] = s.newDevice(node, name)
		if prepare := prepareDevice[node]; prepare != nil {
			prepare(s.devices[node])
		}
	}
	return s.devices[node]
}

// run runs all commands of the page in order.
func (s *scene) run() {
	for _, c := range s.commands {
		for _, key := range []string{c.Text, c.page + ": " + c.Text} {
			if prepare := before[key]; prepare != nil {
				prepare(s)
			}
		}
		if c.Prompt == "" && c.node != clone && s.here != "" {
			c.node = s.here
		}
		if c.reason() == "" {
			s.runCommand(c)
		}
	}
	if check := after[s.page.name]; check != nil {
		check(s)
	}
}

// runCommand runs one command of the page.
func (s *scene) runCommand(c command) {
	s.Helper()
	if c.node != clone && c.Prompt == "" && !startsWithoutBond[c.page] {
		s.bond()
	}
	d := s.at(c.node)
	line := s.fill(c)
	begun := time.Now()
	defer func() {
		s.Logf("%s:%d: %s$ %s (%v)", c.page, c.Line, s.names[c.node], line, time.Since(begun).Round(time.Millisecond))
	}()
	if c.Text == "mpbond top" {
		d.show(c, line)
		return
	}
	parts := strings.Split(line, " && ")
	last := len(parts) - 1
	k := serviceKind(parts[last])
	if k == nil {
		d.check(c, line)
		return
	}
	for _, part := range parts[:last] {
		d.check(c, part)
	}
	d.serveAs(c.String(), parts[last])
	if !k.stays {
		d.stop(k.name)
	}
}

// check runs a command line of a page, which must succeed.
func (d *device) check(c command, line string) {
	d.Helper()
	out, err := d.run(line)
	printed := strings.TrimSpace(out)
	switch {
	case err != nil && strings.Contains(out, "the machine is too busy to measure"):
		return // it has measured, and found that the figures mean nothing
	case err == nil && strings.Contains(line, "| jq") && (printed == "" || printed == "null"):
		err = errors.New("jq finds nothing")
	}
	if err != nil {
		d.Errorf("%s\nrun as %q: %v\n%s", c, line, err, out)
	}
}

// show runs a program that needs a terminal until it has drawn its screen.
func (d *device) show(c command, line string) {
	d.Helper()
	cmd := d.command("exec " + line)
	cmd.SysProcAttr = nil // the terminal starts a session
	x, err := terminal.Start(cmd, terminal.NewScreen(100, 30))
	if err != nil {
		d.Fatal(err)
	}
	waittest.Until(d.TB, c.String()+" draws its screen", func() bool { return strings.Contains(x.Screen().Text(), "vps") })
	if err := errors.Join(x.Type("q"), x.Wait()); err != nil {
		d.Errorf("%s: %v", c, err)
	}
}

// codePattern matches the codes in pages.
var codePattern = regexp.MustCompile(`\bCODE\b|\b[0-9A-Z]{4}-[0-9A-Z]{4}(@[0-9a-z.:]+)?`)

// fill puts values in place of a command's placeholders.
func (s *scene) fill(c command) string {
	s.Helper()
	line := codePattern.ReplaceAllStringFunc(c.Text, func(placeholder string) string {
		text := s.takeCode()
		if placeholder != "CODE" && !strings.Contains(placeholder, "@") {
			text, _, _ = strings.Cut(text, "@") // the device is found on the local network
		}
		return text
	})
	for _, r := range append(placeholders, shorter...) {
		line = r.replace(line)
	}
	for old, value := range s.values {
		line = strings.ReplaceAll(line, old, value)
	}
	return line
}

// addCode adds a code that a node shows. It replaces earlier ones of the node.
func (s *scene) addCode(node, text string) {
	s.codes = append(slices.DeleteFunc(s.codes, func(c code) bool { return c.node == node }), code{node, text})
}

// takeCode returns the first code that is not used yet.
func (s *scene) takeCode() string {
	s.Helper()
	if len(s.codes) == 0 {
		s.Fatal("no device shows a code")
	}
	text := s.codes[0].text
	s.codes = s.codes[1:]
	return text
}

// invite has a device show a new code.
func (d *device) invite() {
	d.Helper()
	d.addCode(d.node, strings.TrimSpace(d.must("mpbond accept --json --wait=false | jq -r .code")))
}

// roleCommands start the roles of a bond.
var roleCommands = map[string]string{"server": "mpbond server --public vps.example.org", "helper1": "mpbond helper",
	"primary": "mpbond primary"}

// bond starts server, helper and primary, and pairs them, unless that is done.
func (s *scene) bond() {
	s.Helper()
	for _, node := range []string{"server", "helper1"} {
		if d := s.at(node); d.services["role"] == nil {
			d.serve(roleCommands[node])
		}
	}
	d := s.at("primary")
	if d.services["role"] != nil {
		return
	}
	if !d.isPaired() {
		d.must("mpbond pair " + s.takeCode() + " " + s.takeCode())
	}
	d.serve(roleCommands["primary"])
	d.awaitConnected()
}

// isPaired reports whether the user's mpbond trusts a device.
func (d *device) isPaired() bool {
	d.Helper()
	_, err := d.run("test -e ~/.config/mpbond/trust.toml")
	return err == nil
}

// awaitConnected waits until the device is connected with two others.
func (d *device) awaitConnected() {
	d.Helper()
	waittest.UntilSuccess(d.TB, func() error {
		out, err := d.run("mpbond devices")
		if err == nil && strings.Count(out, "connected") < 2 {
			err = fmt.Errorf("not connected with two devices: %s", out)
		}
		return err
	})
}
