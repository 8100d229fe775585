package doctor

import (
	"cmp"
	"fmt"
	"slices"

	"mpbond/identity"
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
		j.say(about{"uplink", name}, Note, "`--interface auto` uses all that have one", "it has a default route, and the primary does not use it")
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
			j.say(about{"pipe", subject}, OK, "", "%s", text)
		case slices.ContainsFunc(j.f.Links, func(o Link) bool { return o.Ready && o.Device == l.Device }):
			j.say(about{"pipe", subject}, Note, hint(l.Problem), "%s", cmp.Or(text(l.Problem), "is being made"))
		default:
			j.say(about{"pipe", subject}, Bad, cmp.Or(hint(l.Problem), "is `mpbond primary` running there, on the same network?"), "%s", cmp.Or(text(l.Problem), "no answer yet"))
		}
	}
	if j.f.Role == identity.RoleHelper && len(j.f.Links) == 0 && j.f.Running {
		j.say(about{"pipe", ""}, Bad, "pair the two: `mpbond accept` here, `mpbond pair CODE` at the primary", "no primary is known, or none was found on the local networks")
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
		case d.Subflows > 0:
			j.say(about{"device", d.Name}, OK, "", "is there, with %d subflows", d.Subflows)
		default:
			j.say(about{"device", d.Name}, Note, "", "is not there")
		}
	}
	if len(j.f.Devices) == 0 {
		j.say(about{"device", ""}, Note, "show a code with `mpbond accept`, and type `mpbond pair CODE` at the primary", "no device is enrolled")
	}
}
