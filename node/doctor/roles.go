package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"mpbond/base/identity"
)

// running tells whether the role runs here, and whether it is this program.
func (j *judge) running() {
	role := string(cmp.Or(j.f.Role, identity.RolePrimary))
	switch {
	case !j.f.Running && role == string(identity.RolePrimary):
		j.say(about{role, ""}, Note, "start it with `mpbond primary` and ask again", "no primary runs here: helpers could not be looked at")
	case !j.f.Running:
		j.say(about{role, ""}, Bad, fmt.Sprintf("start it with `mpbond %s`", role), "no %s runs here", role)
	case j.f.RunningVersion != j.f.Version:
		j.say(about{"version", role}, Warn, "start it again", "the running %s is %s, this program %s", role, j.f.RunningVersion, j.f.Version)
	default:
		j.say(about{role, ""}, OK, "", "a %s runs here", role)
	}
}

// primary tells of what a primary could use.
func (j *judge) primary() {
	for _, name := range j.f.Host.Unused {
		j.say(about{"uplink", name}, Note, "`--interface auto`, the default, uses all that have one", "it has a default route, and the primary does not use it")
	}
	for _, p := range j.f.Ports {
		if p.Problem != nil {
			j.say(about{"port", p.At}, Bad, p.Problem.Hint, "the primary's port for %s: %s", p.What, p.Problem.Text)
		} else {
			j.say(about{"port", p.At}, OK, "", "is free for %s", p.What)
		}
	}
}

// links tells of pipes. To a device with one that is ready another one is of less
// concern.
func (j *judge) links() {
	for _, l := range j.f.Links {
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
				text += fmt.Sprintf(", round trip %v", round(l.RTT))
			}
			if l.Unused != nil && !l.Carries {
				j.say(about{"pipe", subject}, Warn, fmt.Sprintf("`mpbond doctor` on %s says what to do", l.Device), "%s is there, and has no way to its server: %s", l.Device, l.Unused.Text)
				continue
			}
			j.say(about{"pipe", subject}, OK, "", "%s", text)
		case slices.ContainsFunc(j.f.Links, func(o Link) bool { return o.Ready && o.Device == l.Device }):
			w := j.f.pipeMissing(l)
			j.say(about{"pipe", subject}, Note, w.hint, "%s", w.text)
		default:
			w := j.f.pipeMissing(l)
			j.say(about{"pipe", subject}, Bad, w.hint, "%s", w.text)
		}
	}
	if j.f.Role == identity.RoleHelper && len(j.f.Links) == 0 && j.f.Running {
		j.say(about{"pipe", ""}, Bad, "pair the two: `mpbond accept` here shows a code, `mpbond pair CODE` on the primary takes it", "%s helps nobody: it knows no primary, or none is found on its networks", j.f.this())
	}
}

// devices tells of the primaries of a server.
func (j *judge) devices() {
	if !j.f.Host.Public {
		j.say(about{"address", ""}, Note, "forward the server's TCP port to this device, and tell where by --public", "no interface has a public address: devices reach this server from its own networks only, or by a NAT")
	} else {
		j.say(about{"address", ""}, OK, "", "an interface has a public address")
	}
	for _, d := range j.f.Devices {
		switch {
		case d.Silent > 0:
			j.say(about{"lane", d.Name}, Warn, "`mpbond doctor` on that device tells more", "%d of its %d subflows make no progress", d.Silent, d.Subflows)
		case d.Copied:
			j.say(about{"key", d.Name}, Warn, fmt.Sprintf("`mpbond revoke %s` here, then pair each of the two anew, with a key of its own", d.Name), "two mpbond use the key of %s at once: one has a copy of the other's files", d.Name)
		case d.Subflows > 0:
			j.say(about{"device", d.Name}, OK, "", "is there, with %d subflows", d.Subflows)
		default:
			j.say(about{"device", d.Name}, Note, "", "is not there")
		}
	}
	j.calls()
	if len(j.f.Devices) == 0 {
		j.say(about{"device", ""}, Note, "show a code with `mpbond accept`, and type `mpbond pair CODE` at the primary", "no device is enrolled")
	}
}

// quietPort is for how long nothing may reach a server's port that devices should call.
const quietPort = 2 * time.Minute

// calls says whether anything reaches a server's port, while none of its devices is there.
func (j *judge) calls() {
	c := j.f.Calls
	if c == nil || len(j.f.Devices) == 0 || slices.ContainsFunc(j.f.Devices, func(d Device) bool { return d.Subflows > d.Silent }) {
		return
	}
	at := j.f.CallsAt
	hint := fmt.Sprintf("if they are on and have Internet, open %s in this device's firewall and at its provider", portOf(at))
	switch {
	case c.Count == 0:
		j.say(about{"port", at}, Warn, hint, "nothing has reached %s of %s since it began %v ago", portOf(at), j.f.this(), c.Since.Round(time.Second))
	case c.Last > quietPort:
		j.say(about{"port", at}, Warn, hint, "nothing has reached %s of %s for %v", portOf(at), j.f.this(), c.Last.Round(time.Second))
	}
}
