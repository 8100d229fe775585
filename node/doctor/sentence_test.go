// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/link/wire"
	"mpbond/node/probe"
)

// TestSentences checks that the text about each common failure names device, hop and port, and that
// its hint says where to do what, at both ends.
func TestSentences(t *testing.T) {
	const at = "203.0.113.9:7600"
	unreached := func(cause fault.Cause) *Problem {
		return &Problem{Kind: fault.Unreachable, Cause: cause, Text: "connect: x"}
	}
	// refusedBy returns the problem for a server's refusal.
	refusedBy := func(version uint8) *Problem {
		r := wire.Refuse{Code: wire.CodeVersion, Version: version, Text: "this server speaks another version"}
		return newProblemAt("home", fmt.Errorf("join %s: %w", at,
			fault.New(fault.Protocol, r, "install the same release")))
	}
	primary := func(more func(*Facts)) Facts {
		f := healthyFacts()
		f.Name, f.CallsAt, f.Calls = "laptop", "[::]:7602", &Calls{Count: 3, Since: time.Hour, Last: time.Minute}
		more(&f)
		return f
	}
	noServer := func(p *Problem) Facts {
		return primary(func(f *Facts) {
			f.Server = Server{Name: "home", Addresses: []Address{{At: at, IP: "203.0.113.9", Problem: p}}}
			f.Subflows = []Subflow{{Name: "laptop", Problem: p}, {Name: "phone", Helper: true, HasPipe: true,
				Problem: p}}
		})
	}
	noHelper := func(l Subflow) Facts {
		l.Name, l.Helper = "phone", true
		return primary(func(f *Facts) { f.Subflows[1] = l })
	}
	helper := func(links ...Pipe) Facts {
		return Facts{Role: identity.RoleHelper, Name: "phone", Running: true,
			Host:   Host{Uplinks: []string{"wwan0"}, IPv6: true},
			Server: Server{Addresses: []Address{{At: at, IP: "203.0.113.9"}}}, Pipes: links}
	}
	pipe := func(p *Problem) Facts { return helper(Pipe{Device: "laptop", Address: "192.168.1.5:7602", Problem: p}) }
	lost := func(p *Problem) Facts {
		f := helper(Pipe{Device: "laptop", Address: "192.168.1.5:7602", Ready: true})
		f.Server.Addresses[0].Problem = p
		return f
	}
	server := func(c Calls) Facts {
		return Facts{Role: identity.RoleServer, Name: "home", Running: true, CallsAt: "[::]:7600", Calls: &c,
			Primaries: []Primary{{Name: "laptop"}},
			Host:      Host{Uplinks: []string{"eth0"}, IPv6: true, Public: true}}
	}
	for _, c := range []struct {
		name         string
		f            Facts
		text, advice string
	}{
		{"server down", noServer(unreached(fault.CauseRefused)),
			"home refuses TCP port 7600 at 203.0.113.9: no `mpbond server` listens there",
			"on home run `mpbond status`, and start `mpbond server`; if its address or port has changed, pair again"},
		{"server down, at the helper", helper(Pipe{Device: "laptop", Address: "192.168.1.5:7602", Ready: true,
			Unused: &Problem{Text: "connect to 203.0.113.9:7600: connection refused"}}),
			"laptop is connected, but cannot reach the server: connect to 203.0.113.9:7600: connection refused",
			"run `mpbond doctor` on laptop"},
		{"port filtered at the server", noServer(unreached(fault.CauseNoAnswer)),
			"home does not answer on TCP port 7600 at 203.0.113.9: a firewall, its own or on the path, blocks it",
			"open TCP port 7600 in the firewall of home and of its provider; if it is open, check that home " +
				"is on and has this address"},
		{"port filtered at the server, there", server(Calls{Since: 5 * time.Minute}),
			"nothing has reached TCP port 7600 of this device (home) since it started 5m0s ago",
			"if the devices are on and have Internet, open TCP port 7600 in this device's firewall and " +
				"at its provider"},
		{"port filtered later, there", server(Calls{Count: 7, Since: time.Hour, Last: 3 * time.Minute}),
			"nothing has reached TCP port 7600 of this device (home) for 3m0s", "if the devices are on and"},
		{"the helper has no Internet", noHelper(Subflow{HasPipe: true, Problem: &Problem{By: "phone", At: at,
			Cause: fault.CauseNoAnswer,
			Text:  "phone has no way to home at 203.0.113.9:7600: no answer", Hint: "open a web page on phone"}}),
			"phone has no way to home at 203.0.113.9:7600: no answer", "open a web page on phone"},
		{"the helper has no Internet, there", lost(unreached(fault.CauseNoRoute)),
			"this device (phone) has no route to the server (203.0.113.9)",
			"connect it to a network with Internet access"},
		{"own firewall drops 7602", noHelper(Subflow{SignedReport: &Problem{By: "phone", At: "192.168.1.5:7602",
			Cause: fault.CauseNoAnswer}}),
			"phone calls TCP port 7602 of this device (laptop) at 192.168.1.5 and gets no answer: a " +
				"firewall blocks it, most likely this device's own",
			"open TCP port 7602 in this device's firewall, for example with `sudo ufw allow 7602/tcp` or " +
				"`sudo firewall-cmd --add-port=7602/tcp`; if it is open, the network isolates devices, as " +
				"guest WiFi does, or this device's address has changed"},
		{"own firewall drops 7602, at the helper", pipe(unreached(fault.CauseNoAnswer)),
			"laptop does not answer on TCP port 7602 at 192.168.1.5: its firewall blocks the call, or its " +
				"address has changed",
			"on laptop open TCP port 7602 in the firewall; check that both are on one network, and that it " +
				"does not isolate devices, as guest WiFi does"},
		{"the helper calls another address", noHelper(Subflow{SignedReport: &Problem{By: "phone",
			At: "192.168.1.5:7602", Cause: fault.CauseRefused}}),
			"phone calls 192.168.1.5, TCP port 7602, and is refused: this device (laptop) is at another " +
				"address or port now", "pair the two again"},
		{"the helper does not run", noHelper(Subflow{LastPipe: 4 * time.Minute}),
			"phone no longer calls TCP port 7602 of this device (laptop): its last call was 4m0s ago",
			"check that phone is on, on this network, and runs `mpbond helper`; `mpbond doctor` there shows the cause"},
		{"nothing ever called", primary(func(f *Facts) {
			f.Subflows[1], f.Calls.Count = Subflow{Name: "phone",
				Helper: true}, 0
		}),
			"nothing has reached TCP port 7602 of this device (laptop) since it started 1h0m0s ago, not even phone",
			"check that phone is on, on this network, and runs `mpbond helper`; `mpbond doctor` there shows " +
				"the cause; open TCP port 7602 in this device's firewall"},
		{"no primary runs, at the helper", pipe(unreached(fault.CauseRefused)),
			"laptop refuses TCP port 7602 at 192.168.1.5: no `mpbond primary` listens there",
			"start `mpbond primary` on laptop"},
		{"revoked at the server", noServer(&Problem{Kind: fault.UnknownDevice, Text: "refused"}),
			"home does not know this device (laptop): it was revoked there, or home was set up again",
			"pair the two again: `mpbond accept` on home, `mpbond pair CODE` here"},
		{"revoked at the primary, at the helper", pipe(&Problem{Kind: fault.UnknownDevice, Text: "refused"}),
			"laptop does not know this device (phone): it was revoked there",
			"pair the two again: `mpbond accept` here, `mpbond pair CODE` on laptop"},
		{"a newer release at the server", noServer(refusedBy(wire.Version + 1)),
			fmt.Sprintf("home on TCP port 7600 at 203.0.113.9: refused: version %d here, %d there: upgrade "+
				"mpbond on this device", wire.Version, wire.Version+1), ""},
		{"an older release at the server", noServer(refusedBy(wire.Version - 1)),
			fmt.Sprintf("home on TCP port 7600 at 203.0.113.9: refused: version %d here, %d there: upgrade "+
				"mpbond on home", wire.Version, wire.Version-1), ""},
		{"no DNS at the server", primary(func(f *Facts) { f.Server.Names = &Problem{Text: "timeout"} }),
			"names do not resolve at the server home: timeout", "fix the name server of home (/etc/resolv.conf there)"},
		{"captive portal", primary(func(f *Facts) {
			f.Server.Addresses = []Address{{At: at, Problem: unreached(fault.CauseNoAnswer),
				Portal: "web pages are redirected to login.example"}}
			f.Subflows = nil
		}), "something else answers in place of the server: web pages are redirected to login.example",
			"open a browser and log in to this network, then try again"},
		{"used-up line", primary(func(f *Facts) {
			f.Subflows[0].QueueTime = 350 * time.Millisecond
			f.Subflows[0].Hops[0].RTT = 400 * time.Millisecond
			f.Subflows[0].Hops[0].Retransmitted = 900
		}),
			"the link of laptop is full: packets wait 350ms on the PS-path by laptop, whose round trip is " +
				"50ms without other traffic",
			"find out what else uses this link (`mpbond top` shows mpbond's part), or let helpers carry more"},
		{"nothing paired", Facts{Setup: &Problem{Kind: fault.NotFound,
			Text: "this device is not paired with any other", Hint: "run `mpbond pair CODE`"}},
			"this device is not paired with any other", "run `mpbond pair CODE`"},
		{"nothing paired, at the helper", func() Facts { f := helper(); f.Server.Addresses = nil; return f }(),
			"this device (phone) helps no primary: it knows none, or finds none on its networks",
			"pair the two: run `mpbond accept` here and `mpbond pair CODE` on the primary"},
		{"a copied key", primary(func(f *Facts) {
			f.Server.Copied, f.Subflows[0].DownRate, f.Subflows[0].UpRate, f.Subflows[1].DownRate,
				f.Subflows[1].UpRate = true, Rate{}, Rate{}, Rate{}, Rate{}
		}), "another mpbond uses the key of this device (laptop) now",
			"another device runs with a copy of this device's files"},
	} {
		v := Evaluate(c.f).Bottleneck
		if v.Text != c.text || !strings.HasPrefix(v.Advice, c.advice) {
			t.Errorf("%s:\n%s\n  %s\nwant\n%s\n  %s", c.name, v.Text, v.Advice, c.text, c.advice)
		}
	}
}

// TestReported checks that only recent reports for this device that are signed with the helper's
// key count.
func TestReported(t *testing.T) {
	phone, unknown, self := generateKey(t), generateKey(t), generateKey(t)
	now := time.Unix(1_800_000_000, 0)
	left := func(by, as *identity.Key, change func(*wire.Report)) probe.Report {
		f := wire.Report{To: self.Public(), From: as.Public(), Unix: now.Unix(), Code: wire.CodeTimeout,
			Address: "192.0.2.1:7602"}
		change(&f)
		f.Sig = by.Sign(f.Signed())
		return probe.Report{Frame: f.AppendPayload(nil)}
	}
	none := func(*wire.Report) {}
	helper := identity.Peer{Name: "phone", Key: phone.Public()}
	for name, c := range map[string]struct {
		r    probe.Report
		want bool
	}{
		"the helper's":        {left(phone, phone, none), true},
		"an unknown key's":    {left(unknown, unknown, none), false},
		"forged":              {left(unknown, phone, none), false},
		"for another device":  {left(phone, phone, func(f *wire.Report) { f.To[3]++ }), false},
		"an old one":          {left(phone, phone, func(f *wire.Report) { f.Unix -= 4000 }), false},
		"of the future":       {left(phone, phone, func(f *wire.Report) { f.Unix += 4000 }), false},
		"nothing of the kind": {probe.Report{Frame: []byte("x")}, false},
	} {
		p := signedReport([]probe.Report{c.r}, helper, self.Public(), now)
		if (p != nil) != c.want || p != nil && (p.At != "192.0.2.1:7602" || p.Cause != fault.CauseNoAnswer ||
			p.By != "phone") {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

func generateKey(t *testing.T) *identity.Key {
	k, err := identity.Generate()
	if err != nil {
		t.Fatal(err)
	}
	return k
}
