// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/unit"
)

// Thresholds of findings. They are ours unless a source is given.
const (
	// Certificates and users tolerate about clockWarn. Some certificates do not tolerate clockBad.
	clockWarn, clockBad = time.Minute, time.Hour
	// leastMTU is the minimum of IPv6 (RFC 8200 section 5). usualMTU is Ethernet's MTU less what
	// providers' tunnels take.
	leastMTU, usualMTU = 1280, 1400
	// Above lossWarn a loss-based congestion control no longer fills a link: 1.22·MSS/(RTT·√p) is
	// 3.5 Mbit/s at 2 %, 30 ms (Mathis et al., 1997).
	lossWarn = 0.02
	// leastPackets is the number of packets needed to estimate a loss.
	leastPackets = 200
	busyWarn     = 0.9
	// queueWarn indicates a queue of other traffic before rates are measured. It is twice what a
	// radio's scheduler and its retransmissions take.
	queueWarn = 150 * time.Millisecond
	// Above ownFull, a share of one processor, this program is the limit.
	ownFull = 0.85
)

// carrierNAT is the shared address space (RFC 6598).
var carrierNAT = netip.MustParsePrefix("100.64.0.0/10")

// Evaluate derives findings and the bottleneck from the facts. It is pure.
func Evaluate(f Facts) Report {
	j := evaluator{facts: f}
	j.checkSetup()
	if f.Setup == nil {
		j.checkHostState()
		switch f.Role {
		case identity.RoleHelper:
			j.checkAddresses()
			j.checkPipes()
		case identity.RoleServer:
			j.checkPrimaries()
		default:
			j.checkServer()
			j.checkSubflows()
			j.checkPipes()
			j.checkPrimaryRole()
		}
		j.checkRunning()
		j.checkRefused()
		j.checkCells()
	}
	r := Report{Findings: j.findings, Subflows: reportSubflows(f.Subflows)}
	if r.Findings == nil {
		r.Findings = []Finding{}
	}
	r.Bottleneck, r.Kind = pickBottleneck(f, r)
	return r
}

type evaluator struct {
	facts    Facts
	findings []Finding
}

// topic is the subject of a finding: the check, and the examined object.
type topic struct{ check, subject string }

func (j *evaluator) addFinding(a topic, level Level, hint, text string, args ...any) {
	if len(args) > 0 {
		text = fmt.Sprintf(text, args...)
	}
	j.findings = append(j.findings, Finding{a.check, a.subject, level, text, hint})
}

func (j *evaluator) checkSetup() {
	if p := j.facts.Setup; p != nil {
		j.addFinding(topic{"configuration", ""}, Bad, p.Hint, "%s", p.Text)
		return
	}
	j.addFinding(topic{"configuration", ""}, OK, "", "configuration, key and trust file are valid")
}

// checkHostState reports the state of this device.
func (j *evaluator) checkHostState() {
	h := j.facts.Host
	reached := j.facts.Role == identity.RoleServer || slices.ContainsFunc(j.facts.Server.Addresses,
		func(a Address) bool { return a.Problem == nil })
	if len(h.Uplinks) == 0 && reached {
		j.addFinding(topic{"uplink", ""}, Note, "", "no interface has a default route")
	} else if len(h.Uplinks) == 0 {
		j.addFinding(topic{"uplink", ""}, Bad, "connect this device to a network", "no interface has a default route")
	} else {
		j.addFinding(topic{"uplink", ""}, OK, "", "%s", strings.Join(h.Uplinks, ", "))
	}
	switch {
	case h.NoResolver:
		j.addFinding(topic{"names", ""}, Note, "",
			"this device has no name server; names given to the proxy resolve at the server")
	case h.Names != nil:
		j.addFinding(topic{"names", ""}, Bad,
			"set another name server (/etc/resolv.conf), or let apps pass names to the proxy (socks5h)",
			"this device's resolver does not answer: %s", h.Names.Text)
	default:
		j.addFinding(topic{"names", ""}, OK, "", "this device's resolver answers")
	}
	if h.IPv6 {
		j.addFinding(topic{"ipv6", ""}, OK, "", "this device has IPv6")
	} else {
		j.addFinding(topic{"ipv6", ""}, Note, "", "this device has no IPv6")
	}
	j.checkProcessor()
	j.checkBuffers()
	for _, e := range h.Features {
		if e.Missing == "" {
			j.addFinding(topic{"feature", e.Name}, OK, "", "%s", featureNames[e.Name]+" can be used")
		} else {
			j.addFinding(topic{"feature", e.Name}, Note, "", "%s", featureNames[e.Name]+" cannot be used: "+e.Missing)
		}
	}
	if h.Congestion != "" {
		j.addFinding(topic{"congestion", ""}, OK, "", "congestion control of new connections is %s", h.Congestion)
	}
	if h.RestartsIdle {
		j.addFinding(topic{"idle_window", ""}, Note,
			"sysctl -w net.ipv4.tcp_slow_start_after_idle=0 keeps the window, for all programs of this device",
			"after a pause, connections with CUBIC begin with a small window again")
	}
}

var featureNames = map[string]string{"tun": "`mpbond primary --tun`", "run": "`mpbond run`"}

// checkProcessor reports whether the processors were busy while rates were measured.
func (j *evaluator) checkProcessor() {
	h := j.facts.Host
	switch {
	case h.OwnCPU >= ownFull:
		j.addFinding(topic{"processor", ""}, Warn, "use a faster device, or one with AES instructions",
			"this program needed %.0f %% of a processor to receive", 100*h.OwnCPU)
	case h.BusyCPU >= busyWarn:
		j.addFinding(topic{"processor", ""}, Warn, "stop other programs and measure again",
			"the processors were busy for %.0f %% of the time: rates may be too low", 100*h.BusyCPU)
	case h.BusyCPU > 0:
		j.addFinding(topic{"processor", ""}, OK, "", "busy for %.0f %% of the time while rates were measured",
			100*h.BusyCPU)
	}
}

// checkBuffers compares the kernel's limits with what the subflows need.
func (j *evaluator) checkBuffers() {
	for _, b := range []struct {
		what string
		most unit.Bytes
		rate func(Subflow) unit.Rate
	}{
		{"tcp_rmem", j.facts.Host.ReadBuffer, func(l Subflow) unit.Rate { return l.DownRate.Bps }},
		{"tcp_wmem", j.facts.Host.WriteBuffer, func(l Subflow) unit.Rate { return l.UpRate.Bps }},
	} {
		if b.most == 0 {
			continue
		}
		var need unit.Bytes
		for _, l := range j.facts.Subflows {
			if len(l.Hops) > 0 { // on a helped subflow our hop is the pipe
				need = max(need, 2*b.rate(l).Bytes(l.Hops[0].RTT))
			}
		}
		if need > b.most*9/10 {
			j.addFinding(topic{"buffer", b.what}, Warn,
				fmt.Sprintf("sysctl -w net.ipv4.%s: raise the last of its three numbers to %d", b.what, 2*need),
				"connections may buffer %v, which one subflow filled", b.most)
		} else {
			j.addFinding(topic{"buffer", b.what}, OK, "", "connections may buffer %v", b.most)
		}
	}
}

// checkAddresses reports which addresses of the servers answer.
func (j *evaluator) checkAddresses() {
	s := j.facts.Server
	answers := slices.ContainsFunc(s.Addresses, func(a Address) bool { return a.Problem == nil })
	for _, a := range s.Addresses {
		subject := a.At
		if a.IP != "" && !strings.Contains(a.At, a.IP) {
			subject += " (" + a.IP + ")"
		}
		switch {
		case a.Portal != "":
			j.addFinding(topic{"portal", a.At}, Bad,
				"open a browser and log in to this network, then try again",
				"something else answers in place of the server: %s", a.Portal)
		case a.BlackHole:
			j.addFinding(topic{"mtu", subject}, Bad, blackHoleHint,
				"it answers short packets only: long packets are lost on the way")
		case a.Problem == nil:
			j.addFinding(topic{"server", subject}, OK, "", "answers in %v", roundForDisplay(a.RTT))
		default:
			level := Bad
			if answers {
				level = Warn
			}
			w := j.facts.explainServer(a.At, *a.Problem)
			j.addFinding(topic{"server", subject}, level, w.hint, "%s", w.text)
		}
	}
}

// checkServer reports what the server says about itself.
func (j *evaluator) checkServer() {
	j.checkAddresses()
	s := j.facts.Server
	if !s.HasAnswered {
		return
	}
	off := max(s.ClockAhead, -s.ClockAhead) - s.ClockError
	direction := "behind"
	if s.ClockAhead < 0 {
		direction = "ahead of"
	}
	const clockHint = "set the clock, for example with `timedatectl set-ntp true`: TLS certificates and " +
		"pairing codes depend on it"
	switch {
	case off > clockWarn:
		level := Warn
		if off > clockBad {
			level = Bad
		}
		j.addFinding(topic{"clock", ""}, level, clockHint,
			"this device's clock is %v %s the server's: one of them is wrong",
			max(s.ClockAhead, -s.ClockAhead).Round(time.Second), direction)
	default:
		j.addFinding(topic{"clock", ""}, OK, "", "this device's clock and the server's agree")
	}
	switch {
	case s.Names == nil:
		j.addFinding(topic{"names", "server"}, OK, "", "names resolve at the server")
	case s.Names.Kind == fault.NotFound:
		j.addFinding(topic{"names", "server"}, Note, "",
			"the server has no name server: apps must resolve names themselves")
	default:
		j.addFinding(topic{"names", "server"}, Bad,
			fmt.Sprintf("fix the name server of %s (/etc/resolv.conf there)", cmp.Or(s.Name, "the server")),
			"names do not resolve at the server %s: %s", s.Name, s.Names.Text)
	}
	if j.facts.Host.IPv6 && !slices.ContainsFunc(s.Addresses,
		func(a Address) bool { return strings.Contains(a.IP, ":") }) {
		j.addFinding(topic{"ipv6", "to the server"}, Note, "add the server's IPv6 address, if it has one",
			"the server is known by IPv4 addresses only")
	}
	if s.IPv6 {
		j.addFinding(topic{"ipv6", "server"}, OK, "", "the server reaches IPv6 destinations")
	} else {
		j.addFinding(topic{"ipv6", "server"}, Note, "enable IPv6 at the server, if its provider offers it",
			"the server has no IPv6: destinations with IPv6 only cannot be reached")
	}
	if s.Copied {
		j.addFinding(topic{"key", ""}, Warn,
			"another device runs with a copy of this device's files: `mpbond revoke` this device on the "+
				"server, then pair both again with separate keys",
			"another mpbond uses the key of %s now", j.facts.thisDevice())
	}
	if s.Version != j.facts.Version {
		j.addFinding(topic{"version", "server"}, Warn, "install the same release on all devices",
			"the server runs %s, this device %s", s.Version, j.facts.Version)
	}
}

// checkSubflows reports the state of the subflows.
func (j *evaluator) checkSubflows() {
	for _, l := range j.facts.Subflows {
		switch {
		case !l.Up && l.Refuses != "":
			j.addFinding(topic{"helper", l.Name}, Note, "", "it is not used, because of its own settings: %s",
				l.Refuses)
			continue
		case !l.Up && l.Suspended != "":
			j.addFinding(topic{"helper", l.Name}, Note, "",
				"it is not used, because of this device's settings: %s", l.Suspended)
			continue
		case !l.Up && l.Helper:
			w := j.facts.explainHelper(l)
			j.addFinding(topic{"helper", l.Name}, Bad, w.hint, "%s", w.text)
			continue
		case !l.Up:
			w := explanation{"no path to the server", ""}
			if l.Problem != nil {
				w = j.facts.explainServer(cmp.Or(l.Problem.At, j.facts.Server.firstAddress()), *l.Problem)
			}
			j.addFinding(topic{"subflow", l.Name}, Bad, w.hint, "%s", w.text)
			continue
		case l.Silent:
			j.addFinding(topic{"subflow", l.Name}, Warn,
				"it recovers or is replaced within seconds; if not, check its link", "its subflow makes no progress")
		case l.Problem != nil:
			j.addFinding(topic{"subflow", l.Name}, Warn, l.Problem.Hint, "the running primary says: %s", l.Problem.Text)
		default:
			j.addFinding(topic{"subflow", l.Name}, OK, "", "reaches the server")
		}
		switch {
		case l.WhyNotUDP != "":
			j.addFinding(topic{"transport", l.Name}, Note,
				"open the server's UDP port too, and run it with --udp",
				"its subflow uses TCP instead of the configured UDP: %s", l.WhyNotUDP)
		case l.UDP:
			j.addFinding(topic{"transport", l.Name}, OK, "", "its subflow uses UDP")
		}
		j.checkNATAddress(l)
		j.checkQueue(l)
		j.checkStalls(l)
		for _, h := range l.Hops {
			j.checkHopHealth(l, h)
		}
		if l.NotMeasured != "" {
			j.addFinding(topic{"rate", l.Name}, Note, "", "not measured: %s", l.NotMeasured)
		}
	}
}

// firstAddress returns the first address of the server, "" if none is known.
func (s Server) firstAddress() string {
	if len(s.Addresses) == 0 {
		return ""
	}
	return s.Addresses[0].At
}

const blackHoleHint = "set a smaller MTU on the link (`ip link set dev NAME mtu 1280`), or have the " +
	"firewall let ICMP \"too big\" pass"

// checkStalls reports bulk data that stalled on a subflow, and rates that could not be measured.
func (j *evaluator) checkStalls(l Subflow) {
	for _, d := range []struct {
		name string
		r    Rate
	}{{"down", l.DownRate}, {"up", l.UpRate}} {
		switch {
		case d.r.Stalled:
			j.addFinding(topic{"mtu", l.Name}, Bad, blackHoleHint,
				"short packets pass, bulk data %s does not: long packets seem to be lost on the way", d.name)
		case d.r.Problem != nil:
			j.addFinding(topic{"rate", l.Name}, Warn, d.r.Problem.Hint, "no rate %s: %s", d.name, d.r.Problem.Text)
		}
	}
}

// checkNATAddress compares the address of a direct subflow with the one that the server sees.
func (j *evaluator) checkNATAddress(l Subflow) {
	seen, local := ipFromHostPort(l.Seen), ipFromHostPort(l.Local)
	switch {
	case l.Helper && seen.IsValid():
		j.addFinding(topic{"nat", l.Name}, OK, "", "the server sees its helper at %v", seen)
	case !seen.IsValid() || !local.IsValid():
	case seen == local:
		j.addFinding(topic{"nat", l.Name}, OK, "", "no NAT: the server sees %v", seen)
	case carrierNAT.Contains(local):
		j.addFinding(topic{"nat", l.Name}, OK, "", "a NAT of the provider: the server sees %v instead of %v",
			seen, local)
	default:
		j.addFinding(topic{"nat", l.Name}, OK, "", "a NAT: the server sees %v instead of %v", seen, local)
	}
}

// ipFromHostPort returns the IP address of "address:port".
func ipFromHostPort(s string) netip.Addr {
	a, _ := netip.ParseAddrPort(s)
	return a.Addr().Unmap().WithZone("")
}

// checkHopHealth reports the MTU, forged reports and loss of a hop.
func (j *evaluator) checkHopHealth(l Subflow, h Hop) {
	subject := hopDisplayName(l, h.Name)
	switch {
	case h.MTU == 0 || h.MTU >= usualMTU:
	case h.MTU < leastMTU:
		j.addFinding(topic{"mtu", subject}, Warn,
			"raise the MTU of the link, unless something on the path needs it",
			"its packets have at most %d bytes: IPv6 needs %d, and headers cost more than usual", h.MTU, leastMTU)
	default:
		j.addFinding(topic{"mtu", subject}, Note, "", "its packets have at most %d bytes, as in a tunnel", h.MTU)
	}
	if h.RejectedReports > 0 {
		j.addFinding(topic{"forged", subject}, Warn,
			"have "+l.Name+" use another network, and ask who runs the present one",
			"somebody on the %s forges reports of %s: the server ignored %d of them; data is safe, but may be slower",
			subject, l.Name, h.RejectedReports)
	}
	if loss := hopLossRate(h); loss > lossWarn {
		where := "check for other traffic on this link, and for a weak radio signal"
		if h.Name == HopPipe {
			where = "move the two devices closer, or use another channel, 5 GHz or a cable"
		}
		j.addFinding(topic{"loss", subject}, Warn,
			where,
			"%.1f %% of the packets on the %s were lost and sent again", 100*loss, subject)
	}
}

// checkQueue compares the current round trip with the minimum seen by the running primary.
func (j *evaluator) checkQueue(l Subflow) {
	if l.QueueTime < queueWarn || len(l.Hops) == 0 {
		return
	}
	best := l.Hops[0].RTT - l.QueueTime
	j.addFinding(topic{"queue", hopDisplayName(l, l.Hops[0].Name)}, Warn,
		"find out what else uses this link (`mpbond top` shows mpbond's part), or let helpers carry more",
		"the link of %s is full: packets wait %v on the %s, whose round trip is %v without other traffic",
		l.Name, roundForDisplay(l.QueueTime), hopDisplayName(l, l.Hops[0].Name), roundForDisplay(best))
}

func hopLossRate(h Hop) float64 {
	if h.Packets < leastPackets {
		return 0
	}
	return float64(h.Retransmitted) / float64(h.Packets)
}

// hopDisplayName returns the name of a hop in texts.
func hopDisplayName(l Subflow, hop string) string {
	switch hop {
	case HopPipe:
		return "pipe to " + l.Name
	case HopHSPath:
		return "HS-path of " + l.Name
	}
	return "PS-path by " + l.Name
}

func roundForDisplay(d time.Duration) time.Duration {
	if d < 10*time.Millisecond {
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(time.Millisecond)
}

// reportSubflows returns the subflows for the report.
func reportSubflows(list []Subflow) []SubflowReport {
	out := []SubflowReport{}
	for _, l := range list {
		r := SubflowReport{Name: l.Name, Kind: "direct", Up: l.Up, DownBps: l.DownRate.Bps, UpBps: l.UpRate.Bps,
			Seen: l.Seen, Hops: []HopReport{}}
		if l.Helper {
			r.Kind = "helped"
		} else if s, local := ipFromHostPort(l.Seen), ipFromHostPort(l.Local); s.IsValid() && local.IsValid() {
			r.NAT = s != local
		}
		for _, h := range l.Hops {
			r.Hops = append(r.Hops, HopReport{Name: h.Name, RTTms: float64(h.RTT.Microseconds()) / 1000,
				Loss: hopLossRate(h), MTU: h.MTU,
				DownBps: l.DownRate.Bps, DownAtLeast: l.DownRate.Limit != h.Name, UpBps: l.UpRate.Bps,
				UpAtLeast: l.UpRate.Limit != h.Name})
		}
		out = append(out, r)
	}
	return out
}
