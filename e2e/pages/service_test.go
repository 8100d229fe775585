// SPDX-License-Identifier: Apache-2.0

//go:build linux

package pages

import (
	"regexp"
	"slices"
	"strings"
	"syscall"

	"mpbond/base/waittest"
	"mpbond/e2e/rig"
)

// kind is a kind of commands that run until they are stopped. They replace each other on a device,
// as a person would stop one first.
type kind struct {
	name    string
	pattern *regexp.Regexp
	ready   func(d *device, line string, p *rig.Process) bool
	stays   bool // later commands need it; others are stopped as soon as they are ready
}

var kinds = []kind{
	{"role", regexp.MustCompile(`\bmpbond (server|helper|primary|dual)( |$)`), isRoleReady, true},
	{"accept", regexp.MustCompile(`\bmpbond accept( |$)`), prints(shownCode.String()), true},
	{"play", regexp.MustCompile(`^mpbond play`), prints("players on this device"), true},
	{"permit", regexp.MustCompile(`^mpbond-lab permit serve`), prints("."), true},
	{"serve", regexp.MustCompile(`^cellwatch .*--serve`), hasSocket, true},
	{"capacity", regexp.MustCompile(`^cellwatch capacity unix:`), prints(`^[0-9]`), false},
	{"events", regexp.MustCompile(`^mpbond events`), printsEvents, false},
	{"status", regexp.MustCompile(`^mpbond status --watch`), prints("vps"), false},
	{"iperf3", regexp.MustCompile(`iperf3 -s`), prints("listening"), false},
}

// serviceKind returns the kind of a command line that runs until it is stopped, or nil.
func serviceKind(line string) *kind {
	for i := range kinds {
		if kinds[i].pattern.MatchString(line) && !strings.Contains(line, "--wait=false") {
			return &kinds[i]
		}
	}
	return nil
}

// prints returns a function that reports whether a process has printed a matching line.
func prints(pattern string) func(*device, string, *rig.Process) bool {
	line := regexp.MustCompile("(?m)" + pattern)
	return func(_ *device, _ string, p *rig.Process) bool { return line.MatchString(p.Log.String()) }
}

var (
	roleCommand = regexp.MustCompile(`mpbond (server|helper|primary|dual)\b.*`)
	inviting    = regexp.MustCompile(`mpbond (server|helper)\b`)
	shownCode   = regexp.MustCompile(`mpbond pair (\S+)`)
)

// isRoleReady reports whether a role is up, answers at its socket and, if no device is paired with
// it yet, shows a code.
func isRoleReady(d *device, line string, p *rig.Process) bool {
	text := p.Log.String()
	if !strings.Contains(text, ` up"`) || inviting.MatchString(line) && !shownCode.MatchString(text) && !d.isPaired() {
		return false
	}
	_, err := d.run(roleCommand.ReplaceAllString(line, "mpbond status"))
	return err == nil
}

// hasSocket reports whether a cellwatch serves its messages. It prints nothing.
func hasSocket(d *device, _ string, _ *rig.Process) bool {
	_, err := d.run("test -S cells.sock")
	return err == nil
}

// printsEvents has an app open a connection, and reports whether a process has printed something.
func printsEvents(d *device, _ string, p *rig.Process) bool {
	d.must("curl -x socks5h://127.0.0.1:1080 -o /dev/null https://example.org/")
	return p.Log.String() != ""
}

// service is a command that runs on a device.
type service struct {
	*rig.Process
	what string
}

// serve starts a service that the test itself needs.
func (d *device) serve(line string) {
	d.Helper()
	d.serveAs(d.page.name+": "+line, line)
}

// serveAs starts a command that runs until it is stopped, and waits until it is ready.
func (d *device) serveAs(what, line string) {
	d.Helper()
	k := serviceKind(line)
	d.stop(k.name)
	p := d.StartCommand(d.node, d.command(line))
	d.services[k.name] = &service{p, what}
	d.awaitReady(what, p, func() bool { return k.ready(d, line, p) })
	if m := shownCode.FindStringSubmatch(p.Log.String()); m != nil && (k.name == "accept" || inviting.MatchString(line)) {
		d.addCode(d.node, m[1])
	}
}

// awaitReady waits until a process is ready. It must not end before.
func (s *scene) awaitReady(what string, p *rig.Process, isReady func() bool) {
	s.Helper()
	waittest.Until(s.TB, what+" is ready", func() bool {
		ended := hasEnded(p)
		ready := isReady()
		if ended && !ready {
			s.Fatalf("%s\nended before it was ready: %v\n%s", what, p.Err, &p.Log)
		}
		return ready
	})
}

// hasEnded reports whether a process has exited.
func hasEnded(p *rig.Process) bool {
	select {
	case <-p.Done:
		return true
	default:
		return false
	}
}

// forget removes a process from those that the network ends and checks.
func (s *scene) forget(p *rig.Process) {
	s.All = slices.DeleteFunc(s.All, func(o *rig.Process) bool { return o == p })
}

// stop ends a service as Ctrl-C does. It must exit with 0, or because it was interrupted.
func (d *device) stop(name string) {
	d.Helper()
	v := d.services[name]
	if v == nil {
		return
	}
	delete(d.services, name)
	ended := hasEnded(v.Process) // accept ends when its code is used
	v.End(syscall.SIGINT)
	d.forget(v.Process)
	const interrupted, bySignal = 130, -1
	code := v.Cmd.ProcessState.ExitCode()
	if code != 0 && (ended || code != interrupted && code != bySignal) {
		d.Errorf("%s\nended with %d\n%s", v.what, code, &v.Log)
	}
}

// stopAll ends all services of all devices, the roles last.
func (s *scene) stopAll() {
	for _, d := range s.devices {
		for _, k := range slices.Backward(kinds) {
			d.stop(k.name)
		}
	}
}
