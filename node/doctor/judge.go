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

// Where a finding begins to be one. Ours, unless a source is named.
const (
	// clockWarn is about what certificates and people bear; clockBad is beyond
	// what some certificates bear.
	clockWarn, clockBad = time.Minute, time.Hour
	// leastMTU is what IPv6 asks of every link (RFC 8200 section 5); usual is
	// Ethernet's, less what tunnels of providers take.
	leastMTU, usualMTU = 1280, 1400
	// lossWarn is where a loss-based congestion control does not fill a link any
	// more: 1.22·MSS/(RTT·√p) is 3.5 Mbit/s at 2 %, 30 ms (Mathis et al., 1997).
	lossWarn = 0.02
	// leastPackets are too few to tell a loss from.
	leastPackets = 200
	busyWarn     = 0.9
	// queueWarn is a queue that nothing but other traffic makes: before rates are
	// measured, at twice of what a radio's scheduler and its retransmissions take.
	queueWarn = 150 * time.Millisecond
	// ownFull is the part of a processor at which this program is the limit.
	ownFull = 0.85
)

// carrierNAT is shared address space (RFC 6598).
var carrierNAT = netip.MustParsePrefix("100.64.0.0/10")

// Evaluate says what the facts mean. It is pure.
func Evaluate(f Facts) Report {
	j := evaluator{facts: f}
	j.checkSetup()
	if f.Setup == nil {
		j.checkHost()
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
			j.checkPrimary()
		}
		j.checkRunning()
		j.checkRefused()
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

// topic is what a finding is about: the check, and what it looked at.
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
	j.addFinding(topic{"configuration", ""}, OK, "", "configuration, key and trust file are right")
}

func (j *evaluator) checkHost() {
	h := j.facts.Host
	reached := j.facts.Role == identity.RoleServer || slices.ContainsFunc(j.facts.Server.Addresses, func(a Address) bool { return a.Problem == nil })
	if len(h.Uplinks) == 0 && reached {
		j.addFinding(topic{"uplink", ""}, Note, "", "no interface has a default route")
	} else if len(h.Uplinks) == 0 {
		j.addFinding(topic{"uplink", ""}, Bad, "connect this device to a network", "no interface has a default route")
	} else {
		j.addFinding(topic{"uplink", ""}, OK, "", "%s", strings.Join(h.Uplinks, ", "))
	}
	switch {
	case h.NoResolver:
		j.addFinding(topic{"names", ""}, Note, "", "this device has no name server; names that the proxy is given resolve at the server")
	case h.Names != nil:
		j.addFinding(topic{"names", ""}, Bad, "give this device another name server (/etc/resolv.conf), or have apps hand names to the proxy (socks5h)",
			"this device's resolver does not answer: %s", h.Names.Text)
	default:
		j.addFinding(topic{"names", ""}, OK, "", "this device's resolver answers")
	}
	if h.IPv6 {
		j.addFinding(topic{"ipv6", ""}, OK, "", "this device has IPv6")
	} else {
		j.addFinding(topic{"ipv6", ""}, Note, "", "this device has no IPv6 of its own")
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
}

var featureNames = map[string]string{"tun": "`mpbond primary --tun`", "run": "`mpbond run`"}

func (j *evaluator) checkProcessor() {
	h := j.facts.Host
	switch {
	case h.OwnCPU >= ownFull:
		j.addFinding(topic{"processor", ""}, Warn, "a quicker device, or one with instructions for AES, carries more", "this program needed %.0f %% of a processor to receive", 100*h.OwnCPU)
	case h.BusyCPU >= busyWarn:
		j.addFinding(topic{"processor", ""}, Warn, "end what else works here, and measure again", "the processors were busy for %.0f %% of the time: rates may be too low", 100*h.BusyCPU)
	case h.BusyCPU > 0:
		j.addFinding(topic{"processor", ""}, OK, "", "busy for %.0f %% of the time while rates were measured", 100*h.BusyCPU)
	}
}

// checkBuffers compares what the kernel allows with what the lanes were seen to need.
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
			if len(l.Hops) > 0 { // of a helped lane this end has the pipe only
				need = max(need, 2*b.rate(l).Bytes(l.Hops[0].RTT))
			}
		}
		if need > b.most*9/10 {
			j.addFinding(topic{"buffer", b.what}, Warn, fmt.Sprintf("sysctl -w net.ipv4.%s: raise the last of its three numbers to %d", b.what, 2*need), "connections may buffer %v, which a lane used up", b.most)
		} else {
			j.addFinding(topic{"buffer", b.what}, OK, "", "connections may buffer %v", b.most)
		}
	}
}

// checkAddresses tells which of the servers' addresses answer.
func (j *evaluator) checkAddresses() {
	s := j.facts.Server
	answers := slices.ContainsFunc(s.Addresses, func(a Address) bool { return a.Problem == nil })
	for _, a := range s.Addresses {
		what := a.At
		if a.IP != "" && !strings.Contains(a.At, a.IP) {
			what += " (" + a.IP + ")"
		}
		switch {
		case a.Portal != "":
			j.addFinding(topic{"portal", a.At}, Bad, "open a browser and agree to what this network asks, then try again", "something else answers for the server: %s", a.Portal)
		case a.BlackHole:
			j.addFinding(topic{"mtu", what}, Bad, blackHoleHint, "it answers when packets are short, else not: long packets are lost on the way")
		case a.Problem == nil:
			j.addFinding(topic{"server", what}, OK, "", "answers in %v", roundTime(a.RTT))
		default:
			level := Bad
			if answers {
				level = Warn
			}
			w := j.facts.explainServer(a.At, *a.Problem)
			j.addFinding(topic{"server", what}, level, w.hint, "%s", w.text)
		}
	}
}

// checkServer tells of the server what it told itself.
func (j *evaluator) checkServer() {
	j.checkAddresses()
	s := j.facts.Server
	if !s.HasAnswered {
		return
	}
	off := max(s.ClockAhead, -s.ClockAhead) - s.ClockError
	way := "behind"
	if s.ClockAhead < 0 {
		way = "ahead of"
	}
	const clockHint = "set the clock, for example with `timedatectl set-ntp true`: certificates of web servers, and codes for pairing, depend on it"
	switch {
	case off > clockWarn:
		level := Warn
		if off > clockBad {
			level = Bad
		}
		j.addFinding(topic{"clock", ""}, level, clockHint, "this device's clock is %v %s the server's: one of them is wrong", max(s.ClockAhead, -s.ClockAhead).Round(time.Second), way)
	default:
		j.addFinding(topic{"clock", ""}, OK, "", "this device's clock and the server's agree")
	}
	switch {
	case s.Names == nil:
		j.addFinding(topic{"names", "server"}, OK, "", "names resolve at the server")
	case s.Names.Kind == fault.NotFound:
		j.addFinding(topic{"names", "server"}, Note, "", "the server has no name server: apps must resolve names themselves")
	default:
		j.addFinding(topic{"names", "server"}, Bad, fmt.Sprintf("mend the name server of %s (/etc/resolv.conf there)", cmp.Or(s.Name, "the server")),
			"names do not resolve at the server %s: %s", s.Name, s.Names.Text)
	}
	if j.facts.Host.IPv6 && !slices.ContainsFunc(s.Addresses, func(a Address) bool { return strings.Contains(a.IP, ":") }) {
		j.addFinding(topic{"ipv6", "to the server"}, Note, "give the server's name or address for IPv6 too, if it has one", "the server is known by IPv4 addresses only")
	}
	if s.IPv6 {
		j.addFinding(topic{"ipv6", "server"}, OK, "", "the server reaches IPv6 destinations")
	} else {
		j.addFinding(topic{"ipv6", "server"}, Note, "give the server IPv6, if its provider has it", "the server has no IPv6: destinations that have nothing else are not reached")
	}
	if s.Copied {
		j.addFinding(topic{"key", ""}, Warn, "a copy of this device's files runs on another device: on the server `mpbond revoke` this device, then pair each of the two anew, with a key of its own",
			"another mpbond uses the key of %s now", j.facts.thisDevice())
	}
	if s.Version != j.facts.Version {
		j.addFinding(topic{"version", "server"}, Warn, "install the same release on all devices", "the server runs %s, this device %s", s.Version, j.facts.Version)
	}
}

// checkSubflows tells of the ways to the server.
func (j *evaluator) checkSubflows() {
	for _, l := range j.facts.Subflows {
		switch {
		case !l.Up && l.Refuses != "":
			j.addFinding(topic{"helper", l.Name}, Note, "", "it carries nothing at present, as its owner wants: %s", l.Refuses)
			continue
		case !l.Up && l.Suspended != "":
			j.addFinding(topic{"helper", l.Name}, Note, "", "it carries nothing at present, as this device wants: %s", l.Suspended)
			continue
		case !l.Up && l.Helper:
			w := j.facts.explainHelper(l)
			j.addFinding(topic{"helper", l.Name}, Bad, w.hint, "%s", w.text)
			continue
		case !l.Up:
			w := explanation{"no way to the server", ""}
			if l.Problem != nil {
				w = j.facts.explainServer(cmp.Or(l.Problem.At, j.facts.Server.firstAddress()), *l.Problem)
			}
			j.addFinding(topic{"subflow", l.Name}, Bad, w.hint, "%s", w.text)
			continue
		case l.Silent:
			j.addFinding(topic{"subflow", l.Name}, Warn, "it comes back by itself, or is made anew within seconds; if not, look at its link", "its subflow makes no progress")
		case l.Problem != nil:
			j.addFinding(topic{"subflow", l.Name}, Warn, l.Problem.Hint, "the running primary says: %s", l.Problem.Text)
		default:
			j.addFinding(topic{"subflow", l.Name}, OK, "", "reaches the server")
		}
		switch {
		case l.WhyNotUDP != "":
			j.addFinding(topic{"transport", l.Name}, Note, "open the server's UDP port too, and run it with --udp", "its subflow goes over TCP, and not over UDP as is asked for: %s", l.WhyNotUDP)
		case l.UDP:
			j.addFinding(topic{"transport", l.Name}, OK, "", "its subflow goes over UDP")
		}
		j.checkNAT(l)
		j.checkQueue(l)
		j.checkStalls(l)
		for _, h := range l.Hops {
			j.checkHop(l, h)
		}
		if l.NotMeasured != "" {
			j.addFinding(topic{"rate", l.Name}, Note, "", "not measured: %s", l.NotMeasured)
		}
	}
}

// firstAddress is the first of the server's, "" if none is known.
func (s Server) firstAddress() string {
	if len(s.Addresses) == 0 {
		return ""
	}
	return s.Addresses[0].At
}

const blackHoleHint = "set a smaller MTU on the link (`ip link set dev NAME mtu 1280`), or have the firewall let ICMP \"too big\" pass"

func (j *evaluator) checkStalls(l Subflow) {
	for _, d := range []struct {
		name string
		r    Rate
	}{{"down", l.DownRate}, {"up", l.UpRate}} {
		switch {
		case d.r.Stalled:
			j.addFinding(topic{"mtu", l.Name}, Bad, blackHoleHint,
				"short packets pass, bulk %s does not: long packets seem to be lost on the way", d.name)
		case d.r.Problem != nil:
			j.addFinding(topic{"rate", l.Name}, Warn, d.r.Problem.Hint, "no rate %s: %s", d.name, d.r.Problem.Text)
		}
	}
}

// checkNAT compares the address of a direct lane with the one that the server sees.
func (j *evaluator) checkNAT(l Subflow) {
	seen, local := addrOf(l.Seen), addrOf(l.Local)
	switch {
	case l.Helper && seen.IsValid():
		j.addFinding(topic{"nat", l.Name}, OK, "", "the server sees its helper at %v", seen)
	case !seen.IsValid() || !local.IsValid():
	case seen == local:
		j.addFinding(topic{"nat", l.Name}, OK, "", "no NAT: the server sees %v", seen)
	case carrierNAT.Contains(local):
		j.addFinding(topic{"nat", l.Name}, OK, "", "a NAT of the provider: the server sees %v instead of %v", seen, local)
	default:
		j.addFinding(topic{"nat", l.Name}, OK, "", "a NAT: the server sees %v instead of %v", seen, local)
	}
}

// addrOf is the IP address of "address:port".
func addrOf(s string) netip.Addr {
	a, _ := netip.ParseAddrPort(s)
	return a.Addr().Unmap().WithZone("")
}

func (j *evaluator) checkHop(l Subflow, h Hop) {
	subject := hopTitle(l, h.Name)
	switch {
	case h.MTU == 0 || h.MTU >= usualMTU:
	case h.MTU < leastMTU:
		j.addFinding(topic{"mtu", subject}, Warn, "raise the MTU of the link, if nothing on the way needs it so small", "its packets have at most %d bytes: IPv6 needs %d, and headers cost more than usual", h.MTU, leastMTU)
	default:
		j.addFinding(topic{"mtu", subject}, Note, "", "its packets have at most %d bytes, as in a tunnel", h.MTU)
	}
	if h.RejectedReports > 0 {
		j.addFinding(topic{"forged", subject}, Warn, "have "+l.Name+" use another network, and ask who runs this one",
			"somebody on the %s forges what %s reports: the server ignored it %d times; data are safe, and may be slower", subject, l.Name, h.RejectedReports)
	}
	if loss := lossRate(h); loss > lossWarn {
		where := "see what else uses this line, and whether its radio is weak"
		if h.Name == HopPipe {
			where = "bring the two nearer, or use another channel, 5 GHz or a cable"
		}
		j.addFinding(topic{"loss", subject}, Warn, where+"; with much loss --congestion bbr carries more than cubic", "%.1f %% of the packets on the %s were lost and sent again", 100*loss, subject)
	}
}

// checkQueue compares a round trip now with the best one that the running primary has seen.
func (j *evaluator) checkQueue(l Subflow) {
	if l.QueueTime < queueWarn || len(l.Hops) == 0 {
		return
	}
	best := l.Hops[0].RTT - l.QueueTime
	j.addFinding(topic{"queue", hopTitle(l, l.Hops[0].Name)}, Warn, "find out what else uses this line (`mpbond top` shows what mpbond carries), or let helpers carry more",
		"the line of %s is full: packets wait %v on the %s, whose round trip is %v when nothing else uses it", l.Name, roundTime(l.QueueTime), hopTitle(l, l.Hops[0].Name), roundTime(best))
}

func lossRate(h Hop) float64 {
	if h.Packets < leastPackets {
		return 0
	}
	return float64(h.Retransmitted) / float64(h.Packets)
}

// hopTitle is a hop as people call it.
func hopTitle(l Subflow, hop string) string {
	switch hop {
	case HopPipe:
		return "pipe to " + l.Name
	case HopHSPath:
		return "HS-path of " + l.Name
	}
	return "PS-path by " + l.Name
}

func roundTime(d time.Duration) time.Duration {
	if d < 10*time.Millisecond {
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(time.Millisecond)
}

func reportSubflows(list []Subflow) []SubflowReport {
	out := []SubflowReport{}
	for _, l := range list {
		r := SubflowReport{Name: l.Name, Kind: "direct", Up: l.Up, DownBps: l.DownRate.Bps, UpBps: l.UpRate.Bps, Seen: l.Seen, Hops: []HopReport{}}
		if l.Helper {
			r.Kind = "helped"
		} else if s, own := addrOf(l.Seen), addrOf(l.Local); s.IsValid() && own.IsValid() {
			r.NAT = s != own
		}
		for _, h := range l.Hops {
			r.Hops = append(r.Hops, HopReport{Name: h.Name, RTTms: float64(h.RTT.Microseconds()) / 1000, Loss: lossRate(h), MTU: h.MTU,
				DownBps: l.DownRate.Bps, DownAtLeast: l.DownRate.Limit != h.Name, UpBps: l.UpRate.Bps, UpAtLeast: l.UpRate.Limit != h.Name})
		}
		out = append(out, r)
	}
	return out
}
