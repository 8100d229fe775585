package doctor

import (
	"cmp"
	"fmt"
	"net"
	"time"

	"mpbond/base/fault"
)

// explanation is a finding's text and hint: which device, which hop, which port, and what to do.
type explanation struct{ text, hint string }

// tcpPortOf returns "TCP port N" of "host:port".
func tcpPortOf(at string) string {
	_, port, err := net.SplitHostPort(at)
	if err != nil {
		return "its port"
	}
	return "TCP port " + port
}

// hostOf returns the host of "host:port", or all of what is none.
func hostOf(at string) string {
	host, _, err := net.SplitHostPort(at)
	if err != nil {
		return at
	}
	return host
}

// thisDevice returns "this device", with its name if that is known.
func (f Facts) thisDevice() string {
	if f.Name == "" {
		return "this device"
	}
	return "this device (" + f.Name + ")"
}

// openPortHint is how a port of this device is opened.
func openPortHint(at string) string {
	_, port, _ := net.SplitHostPort(at)
	return fmt.Sprintf("let %s in here, for example with `sudo ufw allow %s/tcp` or `sudo firewall-cmd --add-port=%s/tcp`", tcpPortOf(at), port, port)
}

// explainServer returns why the server of that name, "" for an unknown one, was not
// joined at an address.
func (f Facts) explainServer(at string, p Problem) explanation {
	name := cmp.Or(f.Server.Name, "the server")
	where := fmt.Sprintf("%s at %s", tcpPortOf(at), hostOf(at))
	switch {
	case p.Cause == fault.CauseRefused:
		return explanation{fmt.Sprintf("%s refuses %s: no `mpbond server` listens there", name, where),
			fmt.Sprintf("on %s look with `mpbond status`, and start `mpbond server`; if it has another address or port, pair again", name)}
	case p.Cause == fault.CauseNoRoute:
		return explanation{fmt.Sprintf("%s has no route to %s (%s)", f.thisDevice(), name, hostOf(at)), "connect it to a network that leads to the Internet"}
	case p.Cause == fault.CauseNoName:
		return explanation{fmt.Sprintf("the name of %s, %s, does not resolve on %s", name, hostOf(at), f.thisDevice()), "is the name right, and has this device Internet? open a web page here"}
	case p.Cause == fault.CauseNoAnswer && f.hasInternet():
		return explanation{fmt.Sprintf("%s does not answer on %s: something on the way, or its own firewall, drops it", name, where),
			fmt.Sprintf("open %s in the firewall of %s and of its provider; if it is open, is %s on, and at this address?", tcpPortOf(at), name, name)}
	case p.Cause == fault.CauseNoAnswer:
		return explanation{fmt.Sprintf("%s does not answer on %s", name, where),
			fmt.Sprintf("open a web page here: if none comes, %s has no Internet; else open %s in the firewall of %s and of its provider, or start it", f.thisDevice(), tcpPortOf(at), name)}
	case p.Kind == fault.UnknownDevice:
		return explanation{fmt.Sprintf("%s does not know %s: it was revoked there, or %s was set up anew", name, f.thisDevice(), name),
			fmt.Sprintf("pair the two again: `mpbond accept` on %s, `mpbond pair CODE` here", name)}
	case p.Kind == fault.WrongKey:
		return explanation{fmt.Sprintf("another device than %s answers on %s", name, where),
			fmt.Sprintf("if %s was set up anew: `mpbond revoke %s` here, then pair again; else somebody is in the way", name, name)}
	}
	return explanation{fmt.Sprintf("%s on %s: %s", name, where, p.Text), p.Hint}
}

// hasInternet reports whether this device's network leads somewhere: its resolver answers.
func (f Facts) hasInternet() bool { return f.Host.Names == nil && !f.Host.NoResolver }

// explainHelper returns why a helper's lane is not up.
func (f Facts) explainHelper(l Subflow) explanation {
	here := cmp.Or(f.CallsAt, ":7602")
	start := fmt.Sprintf("is %s on, on this network, and does `mpbond helper` run there? `mpbond doctor` there says what it meets", l.Name)
	switch {
	case l.Problem != nil && l.Problem.By != "" && l.HasPipe:
		return explanation{l.Problem.Text, l.Problem.Hint}
	case l.HasPipe && l.Problem != nil:
		return explanation{fmt.Sprintf("%s is there, and its way to %s does not work: %s", l.Name, cmp.Or(f.Server.Name, "the server"), l.Problem.Text),
			cmp.Or(l.Problem.Hint, fmt.Sprintf("`mpbond doctor` on %s says whether it reaches the server", l.Name))}
	case l.SignedReport != nil && l.SignedReport.Cause == fault.CauseRefused:
		return explanation{fmt.Sprintf("%s calls %s, %s, and is refused: %s is at another address or port now", l.Name, hostOf(l.SignedReport.At), tcpPortOf(l.SignedReport.At), f.thisDevice()),
			fmt.Sprintf("pair the two again, or write this device's address on %s; its helpers call %s here", l.Name, tcpPortOf(here))}
	case l.SignedReport != nil:
		return explanation{fmt.Sprintf("%s calls %s of %s at %s and gets no answer: a firewall drops its calls, most likely this device's own", l.Name, tcpPortOf(l.SignedReport.At), f.thisDevice(), hostOf(l.SignedReport.At)),
			openPortHint(l.SignedReport.At) + "; if it is open, the network keeps devices apart, as guest WiFi does, or this device has another address now"}
	case l.LastPipe > 0:
		return explanation{fmt.Sprintf("%s does not call %s of %s any more: it was last here %v ago", l.Name, tcpPortOf(here), f.thisDevice(), l.LastPipe.Round(time.Second)), start}
	case f.Calls != nil && f.Calls.Count == 0:
		return explanation{fmt.Sprintf("nothing has reached %s of %s since it began %v ago, %s neither", tcpPortOf(here), f.thisDevice(), f.Calls.Since.Round(time.Second), l.Name),
			start + "; " + openPortHint(here)}
	case l.Problem != nil:
		return explanation{fmt.Sprintf("%s does not call %s of %s; before, %s", l.Name, tcpPortOf(here), f.thisDevice(), l.Problem.Text), start}
	}
	return explanation{fmt.Sprintf("%s does not call %s of %s", l.Name, tcpPortOf(here), f.thisDevice()), start}
}

// explainPipe returns why a helper has no pipe to a primary.
func (f Facts) explainPipe(l Pipe) explanation {
	p := l.Problem
	if p == nil {
		return explanation{fmt.Sprintf("%s has not answered yet at %s", l.Device, l.Address), fmt.Sprintf("is `mpbond primary` running on %s, on the same network?", l.Device)}
	}
	where := fmt.Sprintf("%s at %s", tcpPortOf(l.Address), hostOf(l.Address))
	switch {
	case p.Cause == fault.CauseNoAnswer:
		return explanation{fmt.Sprintf("%s does not answer on %s: its firewall drops the call, or it is not at this address", l.Device, where),
			fmt.Sprintf("on %s let %s in; see that both are on one network, which keeps no devices apart, as guest WiFi does", l.Device, tcpPortOf(l.Address))}
	case p.Cause == fault.CauseRefused:
		return explanation{fmt.Sprintf("%s refuses %s: no `mpbond primary` listens there", l.Device, where),
			fmt.Sprintf("start `mpbond primary` on %s", l.Device)}
	case p.Cause == fault.CauseNoRoute:
		return explanation{fmt.Sprintf("%s has no route to %s (%s)", f.thisDevice(), l.Device, hostOf(l.Address)), fmt.Sprintf("join the network that %s is on", l.Device)}
	case p.Kind == fault.UnknownDevice:
		return explanation{fmt.Sprintf("%s does not know %s: it was revoked there", l.Device, f.thisDevice()),
			fmt.Sprintf("pair the two again: `mpbond accept` here, `mpbond pair CODE` on %s", l.Device)}
	case p.Kind == fault.WrongKey:
		return explanation{fmt.Sprintf("another device than %s answers on %s", l.Device, where), fmt.Sprintf("if %s was set up anew: `mpbond revoke %s` here, then pair again", l.Device, l.Device)}
	}
	return explanation{fmt.Sprintf("no pipe to %s at %s: %s", l.Device, l.Address, p.Text), cmp.Or(p.Hint, fmt.Sprintf("`mpbond doctor` on %s says more", l.Device))}
}
