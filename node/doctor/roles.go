// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"mpbond/base/identity"
)

// checkRunning reports whether the role runs here, and in which version.
func (j *evaluator) checkRunning() {
	role := string(cmp.Or(j.facts.Role, identity.RolePrimary))
	switch {
	case !j.facts.Running && role == string(identity.RolePrimary):
		j.addFinding(topic{role, ""}, Note, "start it with `mpbond primary` and run the doctor again",
			"no primary runs here: helpers could not be examined")
	case !j.facts.Running:
		j.addFinding(topic{role, ""}, Bad, fmt.Sprintf("start it with `mpbond %s`", role), "no %s runs here", role)
	case j.facts.RunningVersion != j.facts.Version:
		j.addFinding(topic{"version", role}, Warn, "restart it", "the running %s is %s, this program %s", role,
			j.facts.RunningVersion, j.facts.Version)
	default:
		j.addFinding(topic{role, ""}, OK, "", "a %s runs here", role)
	}
}

// checkPrimaryRole reports unused uplinks and the state of a primary's ports.
func (j *evaluator) checkPrimaryRole() {
	for _, name := range j.facts.Host.UnusedUplinks {
		j.addFinding(topic{"uplink", name}, Note,
			"use `--interface auto`, the default, for all such interfaces",
			"it has a default route, but the primary does not use it")
	}
	for _, p := range j.facts.Ports {
		if p.Problem != nil {
			j.addFinding(topic{"port", p.At}, Bad, p.Problem.Hint, "the primary's port for %s: %s", p.What,
				p.Problem.Text)
		} else {
			j.addFinding(topic{"port", p.At}, OK, "", "is free for %s", p.What)
		}
	}
}

// checkPipes reports the state of pipes. If a device has a ready pipe, its other pipes matter less.
func (j *evaluator) checkPipes() {
	for _, l := range j.facts.Pipes {
		subject := l.Device + " at " + l.Address
		switch {
		case l.Ready:
			text := "is ready"
			if l.Carries {
				text = "carries a subflow"
			}
			if l.Via != "" {
				text += " over " + l.Via
			}
			if l.RTT > 0 {
				text += fmt.Sprintf(", round trip %v", roundForDisplay(l.RTT))
			}
			if l.Unused != nil && !l.Carries {
				j.addFinding(topic{"pipe", subject}, Warn, fmt.Sprintf("run `mpbond doctor` on %s", l.Device),
					"%s is connected, but cannot reach the server: %s", l.Device, l.Unused.Text)
				continue
			}
			j.addFinding(topic{"pipe", subject}, OK, "", "%s", text)
		case slices.ContainsFunc(j.facts.Pipes, func(o Pipe) bool { return o.Ready && o.Device == l.Device }):
			w := j.facts.explainPipe(l)
			j.addFinding(topic{"pipe", subject}, Note, w.hint, "%s", w.text)
		default:
			w := j.facts.explainPipe(l)
			j.addFinding(topic{"pipe", subject}, Bad, w.hint, "%s", w.text)
		}
	}
	if j.facts.Role == identity.RoleHelper && len(j.facts.Pipes) == 0 && j.facts.Running {
		j.addFinding(topic{"pipe", ""}, Bad,
			"pair the two: run `mpbond accept` here and `mpbond pair CODE` on the primary",
			"%s helps no primary: it knows none, or finds none on its networks", j.facts.thisDevice())
	}
}

// checkPrimaries reports the primaries of a server.
func (j *evaluator) checkPrimaries() {
	if !j.facts.Host.Public {
		j.addFinding(topic{"address", ""}, Note,
			"forward the server's TCP port to this device, and set --public to the forwarded address",
			"no interface has a public address: devices reach this server only from its own networks or "+
				"through a NAT")
	} else {
		j.addFinding(topic{"address", ""}, OK, "", "an interface has a public address")
	}
	for _, d := range j.facts.Primaries {
		switch {
		case d.Silent > 0:
			j.addFinding(topic{"subflow", d.Name}, Warn, "run `mpbond doctor` on that device",
				"%d of its %d subflows make no progress", d.Silent, d.Subflows)
		case d.Copied:
			j.addFinding(topic{"key", d.Name}, Warn,
				fmt.Sprintf("run `mpbond revoke %s` here, then pair both again with separate keys", d.Name),
				"two instances of mpbond use the key of %s: one has a copy of the other's files", d.Name)
		case d.Subflows > 0:
			j.addFinding(topic{"device", d.Name}, OK, "", "is connected, with %d subflows", d.Subflows)
		default:
			j.addFinding(topic{"device", d.Name}, Note, "", "is not connected")
		}
	}
	j.checkCalls()
	if len(j.facts.Primaries) == 0 {
		j.addFinding(topic{"device", ""}, Note,
			"run `mpbond accept` here and `mpbond pair CODE` on the primary", "no device is trusted")
	}
}

// quietPortAfter is how long nothing may reach a server's port while its devices should call.
const quietPortAfter = 2 * time.Minute

// checkCalls reports whether anything reaches a server's port while none of its devices is
// connected.
func (j *evaluator) checkCalls() {
	c := j.facts.Calls
	if c == nil || len(j.facts.Primaries) == 0 || slices.ContainsFunc(j.facts.Primaries,
		func(d Primary) bool { return d.Subflows > d.Silent }) {
		return
	}
	at := j.facts.CallsAt
	hint := fmt.Sprintf("if the devices are on and have Internet, open %s in this device's firewall and "+
		"at its provider",
		describeTCPPort(at))
	switch {
	case c.Count == 0:
		j.addFinding(topic{"port", at}, Warn, hint, "nothing has reached %s of %s since it started %v ago",
			describeTCPPort(at), j.facts.thisDevice(), c.Since.Round(time.Second))
	case c.Last > quietPortAfter:
		j.addFinding(topic{"port", at}, Warn, hint, "nothing has reached %s of %s for %v", describeTCPPort(at),
			j.facts.thisDevice(), c.Last.Round(time.Second))
	}
}
