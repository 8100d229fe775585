// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"net"
	"time"

	"mpbond/base/fault"
)

// explanation is the text and hint of a finding: device, hop, port and remedy.
type explanation struct{ text, hint string }

// describeTCPPort returns "TCP port N" of "host:port".
func describeTCPPort(at string) string {
	_, port, err := net.SplitHostPort(at)
	if err != nil {
		return "its port"
	}
	return "TCP port " + port
}

// hostFromHostPort returns the host of "host:port", or at itself if it has another form.
func hostFromHostPort(at string) string {
	host, _, err := net.SplitHostPort(at)
	if err != nil {
		return at
	}
	return host
}

// thisDevice returns "this device", with its name if known.
func (f Facts) thisDevice() string {
	if f.Name == "" {
		return "this device"
	}
	return "this device (" + f.Name + ")"
}

// openPortHint returns how to open a port of this device.
func openPortHint(at string) string {
	_, port, _ := net.SplitHostPort(at)
	return fmt.Sprintf("open %s in this device's firewall, for example with `sudo ufw allow %s/tcp` or "+
		"`sudo firewall-cmd --add-port=%s/tcp`", describeTCPPort(at), port, port)
}

// explainServer returns why the server could not be joined at an address.
func (f Facts) explainServer(at string, p Problem) explanation {
	name := cmp.Or(f.Server.Name, "the server")
	where := fmt.Sprintf("%s at %s", describeTCPPort(at), hostFromHostPort(at))
	switch {
	case p.Cause == fault.CauseRefused:
		return explanation{fmt.Sprintf("%s refuses %s: no `mpbond server` listens there", name, where),
			fmt.Sprintf("on %s run `mpbond status`, and start `mpbond server`; if its address or port has "+
				"changed, pair again", name)}
	case p.Cause == fault.CauseNoRoute:
		return explanation{fmt.Sprintf("%s has no route to %s (%s)", f.thisDevice(), name, hostFromHostPort(at)),
			"connect it to a network with Internet access"}
	case p.Cause == fault.CauseNoName:
		return explanation{fmt.Sprintf("the name of %s, %s, does not resolve on %s", name, hostFromHostPort(at),
			f.thisDevice()), "check the name, and with a web page whether this device has Internet"}
	case p.Cause == fault.CauseNoAnswer && f.hasInternet():
		return explanation{fmt.Sprintf("%s does not answer on %s: a firewall, its own or on the path, blocks it",
			name, where),
			fmt.Sprintf("open %s in the firewall of %s and of its provider; if it is open, check that %s is "+
				"on and has this address", describeTCPPort(at), name, name)}
	case p.Cause == fault.CauseNoAnswer:
		return explanation{fmt.Sprintf("%s does not answer on %s", name, where),
			fmt.Sprintf("open a web page here: if it fails, %s has no Internet; otherwise open %s in the "+
				"firewall of %s and of its provider, or start it", f.thisDevice(), describeTCPPort(at), name)}
	case p.Kind == fault.UnknownDevice:
		return explanation{fmt.Sprintf("%s does not know %s: it was revoked there, or %s was set up again",
			name, f.thisDevice(), name),
			fmt.Sprintf("pair the two again: `mpbond accept` on %s, `mpbond pair CODE` here", name)}
	case p.Kind == fault.WrongKey:
		return explanation{fmt.Sprintf("a device other than %s answers on %s", name, where),
			fmt.Sprintf("if %s was set up again: `mpbond revoke %s` here, then pair again; otherwise "+
				"somebody intercepts the connection", name, name)}
	}
	return explanation{fmt.Sprintf("%s on %s: %s", name, where, p.Text), p.Hint}
}

// hasInternet reports whether this device's resolver answers.
func (f Facts) hasInternet() bool { return f.Host.Names == nil && !f.Host.NoResolver }

// explainHelper returns why a helper's subflow is not up.
func (f Facts) explainHelper(l Subflow) explanation {
	here := cmp.Or(f.CallsAt, ":7602")
	start := fmt.Sprintf("check that %s is on, on this network, and runs `mpbond helper`; `mpbond doctor` "+
		"there shows the cause", l.Name)
	switch {
	case l.Problem != nil && l.Problem.By != "" && l.HasPipe:
		return explanation{l.Problem.Text, l.Problem.Hint}
	case l.HasPipe && l.Problem != nil:
		return explanation{fmt.Sprintf("%s is connected, but cannot reach %s: %s", l.Name,
			cmp.Or(f.Server.Name, "the server"), l.Problem.Text),
			cmp.Or(l.Problem.Hint, fmt.Sprintf("run `mpbond doctor` on %s", l.Name))}
	case l.SignedReport != nil && l.SignedReport.Cause == fault.CauseRefused:
		return explanation{fmt.Sprintf("%s calls %s, %s, and is refused: %s is at another address or port now",
			l.Name, hostFromHostPort(l.SignedReport.At), describeTCPPort(l.SignedReport.At), f.thisDevice()),
			fmt.Sprintf("pair the two again, or set this device's new address on %s; helpers must call %s here",
				l.Name, describeTCPPort(here))}
	case l.SignedReport != nil:
		return explanation{fmt.Sprintf("%s calls %s of %s at %s and gets no answer: a firewall blocks it, "+
			"most likely this device's own", l.Name, describeTCPPort(l.SignedReport.At), f.thisDevice(),
			hostFromHostPort(l.SignedReport.At)),
			openPortHint(l.SignedReport.At) + "; if it is open, the network isolates devices, as guest WiFi " +
				"does, or this device's address has changed"}
	case l.LastPipe > 0:
		return explanation{fmt.Sprintf("%s no longer calls %s of %s: its last call was %v ago", l.Name,
			describeTCPPort(here), f.thisDevice(), l.LastPipe.Round(time.Second)), start}
	case f.Calls != nil && f.Calls.Count == 0:
		return explanation{fmt.Sprintf("nothing has reached %s of %s since it started %v ago, not even %s",
			describeTCPPort(here), f.thisDevice(), f.Calls.Since.Round(time.Second), l.Name),
			start + "; " + openPortHint(here)}
	case l.Problem != nil:
		return explanation{fmt.Sprintf("%s does not call %s of %s; its last problem: %s", l.Name,
			describeTCPPort(here), f.thisDevice(), l.Problem.Text), start}
	}
	return explanation{fmt.Sprintf("%s does not call %s of %s", l.Name, describeTCPPort(here), f.thisDevice()), start}
}

// explainPipe returns why a helper has no pipe to a primary.
func (f Facts) explainPipe(l Pipe) explanation {
	p := l.Problem
	if p == nil {
		return explanation{fmt.Sprintf("%s has not answered yet at %s", l.Device, l.Address),
			fmt.Sprintf("check that `mpbond primary` runs on %s, on the same network", l.Device)}
	}
	where := fmt.Sprintf("%s at %s", describeTCPPort(l.Address), hostFromHostPort(l.Address))
	switch {
	case p.Cause == fault.CauseNoAnswer:
		return explanation{fmt.Sprintf("%s does not answer on %s: its firewall blocks the call, or its "+
			"address has changed", l.Device, where),
			fmt.Sprintf("on %s open %s in the firewall; check that both are on one network, and that it "+
				"does not isolate devices, as guest WiFi does", l.Device, describeTCPPort(l.Address))}
	case p.Cause == fault.CauseRefused:
		return explanation{fmt.Sprintf("%s refuses %s: no `mpbond primary` listens there", l.Device, where),
			fmt.Sprintf("start `mpbond primary` on %s", l.Device)}
	case p.Cause == fault.CauseNoRoute:
		return explanation{fmt.Sprintf("%s has no route to %s (%s)", f.thisDevice(), l.Device,
			hostFromHostPort(l.Address)), fmt.Sprintf("join the network that %s is on", l.Device)}
	case p.Kind == fault.UnknownDevice:
		return explanation{fmt.Sprintf("%s does not know %s: it was revoked there", l.Device, f.thisDevice()),
			fmt.Sprintf("pair the two again: `mpbond accept` here, `mpbond pair CODE` on %s", l.Device)}
	case p.Kind == fault.WrongKey:
		return explanation{fmt.Sprintf("a device other than %s answers on %s", l.Device, where),
			fmt.Sprintf("if %s was set up again: `mpbond revoke %s` here, then pair again", l.Device, l.Device)}
	}
	return explanation{fmt.Sprintf("no pipe to %s at %s: %s", l.Device, l.Address, p.Text), cmp.Or(p.Hint,
		fmt.Sprintf("run `mpbond doctor` on %s", l.Device))}
}
