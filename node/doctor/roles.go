package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"mpbond/base/identity"
)

// checkRunning tells whether the role runs here, and whether it is this program.
func (j *evaluator) checkRunning() {
	role := string(cmp.Or(j.facts.Role, identity.RolePrimary))
	switch {
	case !j.facts.Running && role == string(identity.RolePrimary):
		j.addFinding(topic{role, ""}, Note, "start it with `mpbond primary` and ask again", "no primary runs here: helpers could not be looked at")
	case !j.facts.Running:
		j.addFinding(topic{role, ""}, Bad, fmt.Sprintf("start it with `mpbond %s`", role), "no %s runs here", role)
	case j.facts.RunningVersion != j.facts.Version:
		j.addFinding(topic{"version", role}, Warn, "start it again", "the running %s is %s, this program %s", role, j.facts.RunningVersion, j.facts.Version)
	default:
		j.addFinding(topic{role, ""}, OK, "", "a %s runs here", role)
	}
}

// checkPrimary tells of what a primary could use.
func (j *evaluator) checkPrimary() {
	for _, name := range j.facts.Host.UnusedUplinks {
		j.addFinding(topic{"uplink", name}, Note, "`--interface auto`, the default, uses all that have one", "it has a default route, and the primary does not use it")
	}
	for _, p := range j.facts.Ports {
		if p.Problem != nil {
			j.addFinding(topic{"port", p.At}, Bad, p.Problem.Hint, "the primary's port for %s: %s", p.What, p.Problem.Text)
		} else {
			j.addFinding(topic{"port", p.At}, OK, "", "is free for %s", p.What)
		}
	}
}

// checkPipes tells of pipes. To a device with one that is ready another one is of less
// concern.
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
				text += fmt.Sprintf(", round trip %v", roundTime(l.RTT))
			}
			if l.Unused != nil && !l.Carries {
				j.addFinding(topic{"pipe", subject}, Warn, fmt.Sprintf("`mpbond doctor` on %s says what to do", l.Device), "%s is there, and has no way to its server: %s", l.Device, l.Unused.Text)
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
		j.addFinding(topic{"pipe", ""}, Bad, "pair the two: `mpbond accept` here shows a code, `mpbond pair CODE` on the primary takes it", "%s helps nobody: it knows no primary, or none is found on its networks", j.facts.thisDevice())
	}
}

// checkPrimaries tells of the primaries of a server.
func (j *evaluator) checkPrimaries() {
	if !j.facts.Host.Public {
		j.addFinding(topic{"address", ""}, Note, "forward the server's TCP port to this device, and tell where by --public", "no interface has a public address: devices reach this server from its own networks only, or by a NAT")
	} else {
		j.addFinding(topic{"address", ""}, OK, "", "an interface has a public address")
	}
	for _, d := range j.facts.Primaries {
		switch {
		case d.Silent > 0:
			j.addFinding(topic{"subflow", d.Name}, Warn, "`mpbond doctor` on that device tells more", "%d of its %d subflows make no progress", d.Silent, d.Subflows)
		case d.Copied:
			j.addFinding(topic{"key", d.Name}, Warn, fmt.Sprintf("`mpbond revoke %s` here, then pair each of the two anew, with a key of its own", d.Name), "two mpbond use the key of %s at once: one has a copy of the other's files", d.Name)
		case d.Subflows > 0:
			j.addFinding(topic{"device", d.Name}, OK, "", "is there, with %d subflows", d.Subflows)
		default:
			j.addFinding(topic{"device", d.Name}, Note, "", "is not there")
		}
	}
	j.checkCalls()
	if len(j.facts.Primaries) == 0 {
		j.addFinding(topic{"device", ""}, Note, "show a code with `mpbond accept`, and type `mpbond pair CODE` at the primary", "no device is enrolled")
	}
}

// quietPortAfter is for how long nothing may reach a server's port that devices should call.
const quietPortAfter = 2 * time.Minute

// checkCalls says whether anything reaches a server's port, while none of its devices is there.
func (j *evaluator) checkCalls() {
	c := j.facts.Calls
	if c == nil || len(j.facts.Primaries) == 0 || slices.ContainsFunc(j.facts.Primaries, func(d Primary) bool { return d.Subflows > d.Silent }) {
		return
	}
	at := j.facts.CallsAt
	hint := fmt.Sprintf("if they are on and have Internet, open %s in this device's firewall and at its provider", tcpPortOf(at))
	switch {
	case c.Count == 0:
		j.addFinding(topic{"port", at}, Warn, hint, "nothing has reached %s of %s since it began %v ago", tcpPortOf(at), j.facts.thisDevice(), c.Since.Round(time.Second))
	case c.Last > quietPortAfter:
		j.addFinding(topic{"port", at}, Warn, hint, "nothing has reached %s of %s for %v", tcpPortOf(at), j.facts.thisDevice(), c.Last.Round(time.Second))
	}
}
