// SPDX-License-Identifier: Apache-2.0

//go:build linux

package pages

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"mpbond/base/waittest"
)

// prepareDevice makes what pages expect on the device of a node.
var prepareDevice = map[string]func(*device){
	"primary": func(d *device) {
		d.write("~/.config/mpbond/primary.toml", `api = "127.0.0.1:7680"`)
		d.write("~/.config/mpbond/policy.toml", "[[rule]]\nport = [22]\nmode = \"latency\"")
		d.write("policy.toml.new", "[[rule]]\ndomain = [\"example.org\"]\nmode = \"latency\"")
		d.write("new.toml", `public = "vps.example.org"`)
		d.write("~/.netrc", "machine example.org login alice password secret")
		d.write("cookies.txt", "# Netscape HTTP Cookie File\nexample.org\tFALSE\t/\tTRUE\t0\tid\t7")
		d.must("mkdir photos && echo 3 >3.jpg && echo 4 >4.jpg && echo 5 >photos/5.jpg && chmod 600 ~/.netrc")
	},
	"server": func(d *device) { d.must("sudo sh -c 'echo 0.42 >/run/north.load'") },
}

// measureResults makes makeResults measure once in a test run.
var measureResults sync.Once

// makeResults measures results of mpbond-lab exp into /mnt/files/results, which all scenes share.
// Only the first scene that needs them measures.
func (s *scene) makeResults() {
	s.Helper()
	measureResults.Do(func() {
		s.at(clone).must("mpbond-lab exp --dir /mnt/files/results run b1 --only '5/10/5, 2 MB, down' --reps 1")
	})
}

// copyResults puts results of mpbond-lab exp into the clone.
func (s *scene) copyResults() {
	s.Helper()
	s.makeResults()
	s.at(clone).must("cp -rT /mnt/files/results exp-results")
}

// cellTopology is a network in which a mobile network has the name and settings that are filled in.
const cellTopology = `[node.primary]
routes = ["default via lte"]
[node.helper1]
[node.server]
forward = true
[node.web]
routes = ["default via core"]
[link.lte]
ends = ["primary", "server"]
delay = "25ms"
lte = {network = "%[1]s", rnti = 0x4000, signal = "20dB"}
[lte.%[1]s]
carriers = [{prb = 25, control = 0.4}]
%[2]s
[link.pipe1]
ends = ["primary", "helper1"]
rate = "5Mbit/s"
[link.core]
ends = ["server", "web"]
`

// commit commits all changes of files that git knows.
const commit = "git -c user.name=a -c user.email=a@b commit -qam x"

// before does what a reader has done before a command. The key is the command, with its page if
// other pages have it too.
var before = map[string]func(*scene){
	"docs/tutorial/first-bond.md: sudo install mpbond /usr/local/bin/": func(s *scene) { // which scp has copied
		s.at("server").must("cp $(command -v mpbond) mpbond")
	},
	"docs/tutorial/first-bond.md: mpbond pair --as helper CODE": func(s *scene) { s.at("helper1").invite() },

	"mpbond primary --proxy 192.168.1.5:1080": func(s *scene) {
		s.Must("primary", "ip", "addr", "add", "192.168.1.5/32", "dev", "lo")
	},

	"docs/howto/apps.md: mpbond doctor": func(s *scene) {
		s.bond()
		s.at("primary").awaitConnected()
	},
	"docs/reference/mpbond.md: mpbond dual": func(s *scene) { s.at("server").serve(roleCommands["server"]) },
	"sudo mpbond run -- curl -O https://example.org/file": func(s *scene) { // over a primary of root
		s.at("primary").stop("role")
		s.at("primary").must("sudo cp -r .config/mpbond /var/lib && sudo cp -r .config/mpbond /etc")
		s.at("primary").serve("sudo mpbond primary")
	},
	"mpbond get https://example.org/big.iso": func(s *scene) {
		if s.page.name == "docs/reference/mpbond.md" {
			s.at("primary").stop("role")
			s.bond()
		}
	},
	"mpbond accept --json --wait=false | jq -r .code": func(s *scene) { s.at("helper1").stop("accept") },
	"mpbond pair K7QF-3M2A@vps.example.org:7600":      func(s *scene) { s.at("server").invite() },
	"mpbond pair K7QF-3M2A@vps.example.org X4T0-99ZQ@192.168.43.1": func(s *scene) {
		s.at("server").invite()
		s.at("helper1").invite()
	},
	"docs/reference/mpbond.md: mpbond streams": func(s *scene) {
		d := s.at("primary")
		d.start("curl -x socks5h://127.0.0.1:1080 https://example.org/idle")
		waittest.UntilSuccess(s.TB, func() error {
			id, err := d.run("mpbond streams --json | jq -e '.[-1].id'")
			s.values["streams 17"] = "streams " + strings.TrimSpace(id)
			return err
		})
	},
	"mpbond trust add home --role server --key mpb1… --addr vps.example.org:7600": func(s *scene) {
		s.values["mpb1…"] = s.at("server").key()
		_, _ = s.at("primary").run("mpbond trust remove vps || mpbond trust remove home")
	},
	"mpbond trust add phone --role helper --key mpb1…": func(s *scene) { s.values["mpb1…"] = s.at("helper1").key() },
	"docs/reference/mpbond.md: mpbond trust remove phone": func(s *scene) {
		_, _ = s.at("primary").run("mpbond trust add phone --role helper --key " + s.at("helper1").key())
	},

	"docs/howto/dual.md: mpbond dual": func(s *scene) {
		if s.devices["server"] != nil {
			return
		}
		s.at("server").serve(roleCommands["server"])
		s.at("primary").must("mpbond pair " + s.takeCode())
		s.at("server").invite()
		s.at("helper1").must("mpbond pair " + s.takeCode())
	},

	"mpbond trust add anna-phone --role helper --key mpb1…": func(s *scene) { s.values["mpb1…"] = s.at("helper1").key() },

	"cellwatch scan walk.cf32": (*scene).copySamples,
	"cellwatch scan tcp:192.0.2.7:7001 --format sc16 --rate 15.36M --json": func(s *scene) {
		p := s.Start("sites", os.Args[0], "lab", "radio", filepath.Join(s.files, "live.sc16"), siteAddress+":7001")
		s.awaitReady("the radio", p, func() bool { return strings.Contains(p.Log.String(), "ready") })
	},
	"cellwatch watch unix:iq.sock --format sc16 --rate 15.36M --serve unix:cells.sock --rnti 0x4601": func(s *scene) {
		p := s.at("primary").start("/mnt/test lab radio /mnt/files/live.sc16 unix:iq.sock")
		s.awaitReady("the radio", p, func() bool { return strings.Contains(p.Log.String(), "ready") })
	},
	"cellwatch watch iq.sc16 --rate 15.36M --rnti 0x4601 --serve unix:cells.sock": func(s *scene) {
		s.at("primary").start("/mnt/test lab radio /mnt/files/live.sc16 >iq.sc16")
	},

	"make quick": func(s *scene) { // in a clone with one change
		s.at(clone).must("test -d /mnt/repo/docs && rm -rf .git && git init -q -b main && git add -A && " +
			commit + " && printf '\n// x\n' >>cmd/cellwatch/main.go")
	},
	"make quick BASE=main": func(s *scene) { // on a branch with one commit, whose tests take less time
		s.at(clone).must("git checkout -q . && git checkout -qb topic && printf '\n// x\n' >>archtest/style_test.go && " +
			commit)
	},
	"docs/explanation/schedulers.md: bin/mpbond-lab run --links 8/10/5 --scheme mpbond:NAME,mpbond:pams,mptcp " +
		"--get 10MB --reps 5": func(s *scene) { s.at(clone).must("mkdir bin && ln -s $(command -v mpbond-lab) bin/") },
	"mpbond-lab exp report":                       (*scene).copyResults,
	"mpbond-lab exp report --markdown results.md": (*scene).copyResults,

	"docs/explanation/pbe.md: mpbond-lab up net.toml": func(s *scene) {
		s.at(clone).write("net.toml", fmt.Sprintf(cellTopology, "one", `samples = {snr = "20dB", doppler = 5}`))
	},
	"mpbond-lab exec primary -- mpbond primary --udp lte --cell lte=unix:cells.sock": func(s *scene) {
		d := s.at(clone)
		p := d.start("MPBOND_HOME=/tmp/server mpbond-lab exec server -- mpbond server --udp --allow 10.77.0.0/16")
		s.awaitReady("the server", p, func() bool { return shownCode.MatchString(p.Log.String()) })
		d.must("mpbond-lab exec primary -- mpbond pair " + shownCode.FindStringSubmatch(p.Log.String())[1])
	},
	"docs/reference/mpbond-lab.md: mpbond-lab up net.toml": func(s *scene) {
		s.at(clone).write("net.toml", fmt.Sprintf(cellTopology, "tower", ""))
		s.at(clone).must("mpbond-lab down")
	},
	"mpbond-lab permit serve --cell north=load:/run/north.load": func(s *scene) {
		if s.values["mpb1…"] == "" {
			s.at("server").must("mpbond trust add phone --role helper --key " + s.at("helper1").key())
			s.values["mpb1…"] = s.at("server").key()
		}
	},
	"mpbond-lab permit ask permits.example.org:7605 --key mpb1… --cell north": func(s *scene) { // of a known load
		s.at("server").serve("mpbond-lab permit serve --cell north=load:/run/north.load")
	},
	"docs/explanation/pbe.md: mpbond-lab down": func(s *scene) { s.at(clone).stop("role") },

	// A service stands for the unit that systemctl would start.
	"sudo systemctl enable --now mpbond-server": func(s *scene) {
		s.here = "server"
		s.at("server").must("sudo mkdir -p /etc/mpbond")
		s.at("server").must(`sudo sh -c 'echo "public = \"vps.example.org\"" >/etc/mpbond/server.toml'`)
		s.at("server").serve("sudo mpbond server")
	},
	"sudo systemctl enable --now mpbond-helper": func(s *scene) {
		s.here = "helper1"
		s.at("helper1").serve("sudo mpbond helper")
	},
	"sudo mpbond pair CODE CODE": func(s *scene) { s.here = "" },
	"sudo systemctl enable --now mpbond-primary": func(s *scene) {
		s.at("primary").must("cd $REPO && mkdir bin && cp $(command -v mpbond) bin/ && sudo make install PREFIX=/usr")
		s.at("primary").must(`sudo sh -c 'echo "api = \"127.0.0.1:7680\"" >>/etc/mpbond/primary.toml'`)
		s.at("primary").serve("sudo mpbond primary")
	},
}

// after checks what a page says of the state after its commands. The key is the page.
var after = map[string]func(*scene){
	"README.md": func(s *scene) { s.at("primary").awaitConnected() },
	"docs/howto/dual.md": func(s *scene) {
		s.at("primary").awaitConnected()
		s.at("helper1").awaitConnected()
	},
}
