// SPDX-License-Identifier: Apache-2.0

//go:build linux

package pages

import "strings"

// reason says why a command is not run. The empty reason means that it is run.
type reason string

const (
	otherMachine reason = "needs another machine"
	system       reason = "changes the system, or its services"
	hardware     reason = "needs a radio, Bluetooth, a phone or a router"
	long         reason = "takes minutes or hours"
	internet     reason = "needs a network beyond the lab"
	elsewhere    reason = "is run for another page"
	ofFleet      reason = "needs a fleet: tests of e2e/fleet and cmd/mpbond run such commands"
)

// notRun has the commands that are not run. The key is the command, with its page if other pages
// have it too.
var notRun = map[string]reason{
	"scp bin/mpbond USER@vps.example.org:":                              otherMachine,
	"scp bin/mpbond USER@spare:":                                        otherMachine,
	"scp -O bin/cross/mpbond-linux-mipsle root@192.168.1.1:/tmp/mpbond": otherMachine,
	"ssh root@192.168.1.1 /tmp/mpbond helper --name router":             otherMachine,

	"mpbond-lab exp run all --queue nats://nats.example.org":                               otherMachine,
	"mpbond-lab exp worker --queue nats://nats.example.org":                                otherMachine,
	"mpbond-lab exp queue list --queue nats://nats.example.org":                            otherMachine,
	"mpbond-lab exp queue drop KO3CABILZDJK72DSTRACA6MJF5 --queue nats://nats.example.org": otherMachine,

	"sudo systemctl enable --now mpbond-server":                                    system,
	"sudo systemctl enable --now mpbond-helper":                                    system,
	"sudo systemctl enable --now mpbond-primary":                                   system,
	"sudo systemctl daemon-reload && sudo systemctl restart mpbond-primary":        system,
	"sudo systemctl restart mpbond-primary":                                        system,
	"mpbond check /etc/mpbond/server.toml && sudo systemctl restart mpbond-server": system,

	"cp /sdcard/Download/mpbond-linux-arm64 ~/mpbond && chmod 700 ~/mpbond": hardware,
	"termux-wake-lock":                       hardware,
	"./mpbond helper":                        hardware,
	"mpbond primary --pipe :7602,rfcomm://1": hardware,

	"podman build -t mpbond .": internet,
	"podman run -d --name mpbond -p 7600:7600 -v mpbond:/var/lib/mpbond mpbond server --public vps.example.org": internet,
	"podman exec mpbond /mpbond accept": internet,

	"mpbond-lab calibrate":                           long, // and an idle machine
	"mpbond-lab calibrate --length 5s":               long,
	"mpbond-lab run --network down/17 --reps 3":      long,
	"mpbond-lab run --drive UL_3_15 --scheme mpbond": long,
	"mpbond-lab exp run m3":                          long,
	"mpbond-lab exp run m4":                          long,
	"mpbond-lab exp run bench":                       long,
	"mpbond-lab exp run networks --seed 7":           long,
	"mpbond-lab exp run all --quick":                 long,
	"mpbond-lab exp run bench --quick --only '2 MB'": long,
	"GOARCH=arm64 make product":                      long,

	"mpbond-lab fleet": long,

	"CONTRIBUTING.md: make demo": elsewhere,
}

// replacement puts new in place of old in commands.
type replacement struct{ old, new string }

// replace returns a command after the replacement. A "$" at the end of old is the command's end.
func (r replacement) replace(line string) string {
	old, atEnd := strings.CutSuffix(r.old, "$")
	if !atEnd {
		return strings.ReplaceAll(line, old, r.new)
	}
	if begin, ok := strings.CutSuffix(line, old); ok {
		return begin + r.new
	}
	return line
}

// placeholders are what readers replace by something of their own.
var placeholders = []replacement{
	{"rename OLD NEW", "rename spare phone"},
	{"mpbond:NAME", "mpbond:ecf"},
	{"NAME", "phone"},
	{"--markdown FILE", "--markdown results.md"},
	{"9f86d0…", siteDigest("/big.iso")},
}

// shorter are arguments that only make a command take less time.
var shorter = []replacement{
	{"-transfers 10000", "-transfers 100"},
	{"kernel:cubic --reps 3", "kernel:cubic --reps 1 --length 1s --phases 500ms"},
	{"kernel:cubic$", "kernel:cubic --length 1s --phases 500ms"},
	{"--reps 5", "--reps 1"},
	{"--reps 3", "--reps 1"},
	{"--get 10MB", "--get 500KB"},
	{"--get 2MB", "--get 500KB"},
	{"--objects 5", "--objects 2"},
	{"--size 4MB", "--size 500KB"},
	{"mpbond-lab demo$", "mpbond-lab demo --size 500KB"},
	{"make demo$", "make demo DEMO='--size 500KB'"},
	{"make deb", "DPKG_DEB_COMPRESSOR_LEVEL=0 make deb"},
	{"--for 10s", "--for 1s"},
	{"--rate 15.36M", "--rate 1.92M"},             // a busy machine decodes these in time
	{"--networks 200$", "--networks 3 --first 1"}, // not any seeds: some networks take 20 s
	{"--networks 200 ", "--networks 3 "},
	{"--networks 2000", "--networks 3"},
	{"--networks 60 ", "--networks 3 "},
	{"--class stable --workload page", "--class stable --workload page --networks 3 --first 1"},
	{"mpbond-lab random$", "mpbond-lab random --networks 3 --first 1"},
	{"dual --links 10/3$", "dual --links 10/3 --size 100KB --reps 1"},
	{"dual --links 10/3 --size 8MB", "dual --links 10/3 --size 100KB --reps 1"},
	{"--size 1MB --chunks 20", "--size 100KB --chunks 1 --reps 1"},
	{"--length 60s --phases 20s", "--length 1s --phases 500ms"},
	{"--length 60s", "--length 1s --phases 500ms"},
	{"--length 30s --at 10s:ps.rate=15Mbit/s --at 20s:ps.rate=30Mbit/s --phases 3s,10s,13s,20s,23s",
		"--length 1s --at 300ms:ps.rate=15Mbit/s --at 600ms:ps.rate=30Mbit/s --phases 300ms,600ms"},
	{"--at 10s:ps.rate=15Mbit/s --phases 3s,10s,13s", "--length 1s --at 500ms:ps.rate=15Mbit/s --phases 500ms"},
	{"--links 30$", "--links 30 --length 1s --phases 500ms"},
	{"--over pbe,samples:pbe", "--over pbe,samples:pbe --length 1s --phases 500ms"},
}

// partsBegin has the commands at which parts of long pages begin. Parts run beside each other.
var partsBegin = map[string]bool{
	"docs/reference/lab.md: mpbond-lab demo":                                                              true,
	"docs/reference/lab.md: mpbond-lab dual --links 10/3":                                                 true,
	"docs/reference/lab.md: mpbond-lab run --links 8/10/5 --scheme mpbond:pams --get 10MB --trace /tmp/t": true,
	"docs/reference/mpbond-lab.md: mpbond-lab exp list --quick":                                           true,
	"docs/reference/mpbond-lab.md: mpbond-lab flow --links 30 --over bbr,kernel:bbr,cubic,kernel:cubic":   true,
	"docs/reference/mpbond-lab.md: mpbond-lab dual --links 10/3 --size 8MB":                               true,
	"docs/reference/mpbond-lab.md: mpbond-lab up --links 8/10/5":                                          true,
}

// startsWithoutBond has the pages that begin without a bond.
var startsWithoutBond = map[string]bool{
	"README.md":                    true,
	"docs/howto/dual.md":           true,
	"docs/howto/install.md":        true,
	"docs/howto/onload-helper.md":  true,
	"docs/howto/onload.md":         true,
	"docs/reference/cellwatch.md":  true,
	"docs/reference/mpbond-lab.md": true,
	"docs/tutorial/first-bond.md":  true,
}
