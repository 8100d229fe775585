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

// Judge says what the facts mean. It is pure.
func Judge(f Facts) Report {
	j := judge{f: f}
	j.setup()
	if f.Setup == nil {
		j.host()
		switch f.Role {
		case identity.RoleHelper:
			j.addresses()
			j.links()
		case identity.RoleServer:
			j.devices()
		default:
			j.server()
			j.lanes()
			j.links()
			j.primary()
		}
		j.running()
		j.refused()
	}
	r := Report{Findings: j.found, Lanes: laneReports(f.Lanes)}
	if r.Findings == nil {
		r.Findings = []Finding{}
	}
	r.Bottleneck, r.Kind = verdict(f, r)
	return r
}

type judge struct {
	f     Facts
	found []Finding
}

// about is what a finding is about: the check, and what it looked at.
type about struct{ check, subject string }

func (j *judge) say(a about, level Level, hint, text string, args ...any) {
	if len(args) > 0 {
		text = fmt.Sprintf(text, args...)
	}
	j.found = append(j.found, Finding{a.check, a.subject, level, text, hint})
}

func (j *judge) setup() {
	if p := j.f.Setup; p != nil {
		j.say(about{"configuration", ""}, Bad, p.Hint, "%s", p.Text)
		return
	}
	j.say(about{"configuration", ""}, OK, "", "configuration, key and trust file are right")
}

func (j *judge) host() {
	h := j.f.Host
	reached := j.f.Role == identity.RoleServer || slices.ContainsFunc(j.f.Server.Addresses, func(a Address) bool { return a.Problem == nil })
	if len(h.Uplinks) == 0 && reached {
		j.say(about{"uplink", ""}, Note, "", "no interface has a default route")
	} else if len(h.Uplinks) == 0 {
		j.say(about{"uplink", ""}, Bad, "connect this device to a network", "no interface has a default route")
	} else {
		j.say(about{"uplink", ""}, OK, "", "%s", strings.Join(h.Uplinks, ", "))
	}
	switch {
	case h.NoResolver:
		j.say(about{"names", ""}, Note, "", "this device has no name server; names that the proxy is given resolve at the server")
	case h.Names != nil:
		j.say(about{"names", ""}, Bad, "give this device another name server (/etc/resolv.conf), or have apps hand names to the proxy (socks5h)",
			"this device's resolver does not answer: %s", h.Names.Text)
	default:
		j.say(about{"names", ""}, OK, "", "this device's resolver answers")
	}
	if h.IPv6 {
		j.say(about{"ipv6", ""}, OK, "", "this device has IPv6")
	} else {
		j.say(about{"ipv6", ""}, Note, "", "this device has no IPv6 of its own")
	}
	j.processor()
	j.buffers()
	for _, e := range h.Features {
		if e.Missing == "" {
			j.say(about{"feature", e.Name}, OK, "", "%s", featureWords[e.Name]+" can be used")
		} else {
			j.say(about{"feature", e.Name}, Note, "", "%s", featureWords[e.Name]+" cannot be used: "+e.Missing)
		}
	}
	if h.Congestion != "" {
		j.say(about{"congestion", ""}, OK, "", "congestion control of new connections is %s", h.Congestion)
	}
}

var featureWords = map[string]string{"tun": "`mpbond primary --tun`", "run": "`mpbond run`"}

func (j *judge) processor() {
	h := j.f.Host
	switch {
	case h.Own >= ownFull:
		j.say(about{"processor", ""}, Warn, "a quicker device, or one with instructions for AES, carries more", "this program needed %.0f %% of a processor to receive", 100*h.Own)
	case h.Busy >= busyWarn:
		j.say(about{"processor", ""}, Warn, "end what else works here, and measure again", "the processors were busy for %.0f %% of the time: rates may be too low", 100*h.Busy)
	case h.Busy > 0:
		j.say(about{"processor", ""}, OK, "", "busy for %.0f %% of the time while rates were measured", 100*h.Busy)
	}
}

// buffers compares what the kernel allows with what the lanes were seen to need.
func (j *judge) buffers() {
	for _, b := range []struct {
		what string
		most unit.Bytes
		rate func(Lane) unit.Rate
	}{
		{"tcp_rmem", j.f.Host.ReadBuffer, func(l Lane) unit.Rate { return l.Down.Bps }},
		{"tcp_wmem", j.f.Host.WriteBuffer, func(l Lane) unit.Rate { return l.ToUp.Bps }},
	} {
		if b.most == 0 {
			continue
		}
		var need unit.Bytes
		for _, l := range j.f.Lanes {
			if len(l.Hops) > 0 { // of a helped lane this end has the pipe only
				need = max(need, 2*b.rate(l).Bytes(l.Hops[0].RTT))
			}
		}
		if need > b.most*9/10 {
			j.say(about{"buffer", b.what}, Warn, fmt.Sprintf("sysctl -w net.ipv4.%s: raise the last of its three numbers to %d", b.what, 2*need), "connections may buffer %v, which a lane used up", b.most)
		} else {
			j.say(about{"buffer", b.what}, OK, "", "connections may buffer %v", b.most)
		}
	}
}

// addresses tells which of the servers' addresses answer.
func (j *judge) addresses() {
	s := j.f.Server
	answers := slices.ContainsFunc(s.Addresses, func(a Address) bool { return a.Problem == nil })
	for _, a := range s.Addresses {
		what := a.At
		if a.IP != "" && !strings.Contains(a.At, a.IP) {
			what += " (" + a.IP + ")"
		}
		switch {
		case a.Portal != "":
			j.say(about{"portal", a.At}, Bad, "open a browser and agree to what this network asks, then try again", "something else answers for the server: %s", a.Portal)
		case a.BlackHole:
			j.say(about{"mtu", what}, Bad, blackHoleHint, "it answers when packets are short, else not: long packets are lost on the way")
		case a.Problem == nil:
			j.say(about{"server", what}, OK, "", "answers in %v", round(a.RTT))
		default:
			level := Bad
			if answers {
				level = Warn
			}
			w := j.f.serverUnreached(a.At, *a.Problem)
			j.say(about{"server", what}, level, w.hint, "%s", w.text)
		}
	}
}

// server tells of the server what it told itself.
func (j *judge) server() {
	j.addresses()
	s := j.f.Server
	if !s.Known {
		return
	}
	off := max(s.Ahead, -s.Ahead) - s.Error
	way := "behind"
	if s.Ahead < 0 {
		way = "ahead of"
	}
	const clockHint = "set the clock, for example with `timedatectl set-ntp true`: certificates of web servers, and codes for pairing, depend on it"
	switch {
	case off > clockWarn:
		level := Warn
		if off > clockBad {
			level = Bad
		}
		j.say(about{"clock", ""}, level, clockHint, "this device's clock is %v %s the server's: one of them is wrong", max(s.Ahead, -s.Ahead).Round(time.Second), way)
	default:
		j.say(about{"clock", ""}, OK, "", "this device's clock and the server's agree")
	}
	switch {
	case s.Names == nil:
		j.say(about{"names", "server"}, OK, "", "names resolve at the server")
	case s.Names.Kind == fault.NotFound:
		j.say(about{"names", "server"}, Note, "", "the server has no name server: apps must resolve names themselves")
	default:
		j.say(about{"names", "server"}, Bad, fmt.Sprintf("mend the name server of %s (/etc/resolv.conf there)", cmp.Or(s.Name, "the server")),
			"names do not resolve at the server %s: %s", s.Name, s.Names.Text)
	}
	if j.f.Host.IPv6 && !slices.ContainsFunc(s.Addresses, func(a Address) bool { return strings.Contains(a.IP, ":") }) {
		j.say(about{"ipv6", "to the server"}, Note, "give the server's name or address for IPv6 too, if it has one", "the server is known by IPv4 addresses only")
	}
	if s.IPv6 {
		j.say(about{"ipv6", "server"}, OK, "", "the server reaches IPv6 destinations")
	} else {
		j.say(about{"ipv6", "server"}, Note, "give the server IPv6, if its provider has it", "the server has no IPv6: destinations that have nothing else are not reached")
	}
	if s.Copied {
		j.say(about{"key", ""}, Warn, "a copy of this device's files runs on another device: on the server `mpbond revoke` this device, then pair each of the two anew, with a key of its own",
			"another mpbond uses the key of %s now", j.f.this())
	}
	if s.Version != j.f.Version {
		j.say(about{"version", "server"}, Warn, "install the same release on all devices", "the server runs %s, this device %s", s.Version, j.f.Version)
	}
}

// lanes tells of the ways to the server.
func (j *judge) lanes() {
	for _, l := range j.f.Lanes {
		switch {
		case !l.Up && l.Refuses != "":
			j.say(about{"helper", l.Name}, Note, "", "it carries nothing at present, as its owner wants: %s", l.Refuses)
			continue
		case !l.Up && l.Rests != "":
			j.say(about{"helper", l.Name}, Note, "", "it carries nothing at present, as this device wants: %s", l.Rests)
			continue
		case !l.Up && l.Helper:
			w := j.f.helperMissing(l)
			j.say(about{"helper", l.Name}, Bad, w.hint, "%s", w.text)
			continue
		case !l.Up:
			w := said{"no way to the server", ""}
			if l.Problem != nil {
				w = j.f.serverUnreached(cmp.Or(l.Problem.At, j.f.Server.firstAddress()), *l.Problem)
			}
			j.say(about{"lane", l.Name}, Bad, w.hint, "%s", w.text)
			continue
		case l.Silent:
			j.say(about{"lane", l.Name}, Warn, "it comes back by itself, or is made anew within seconds; if not, look at its link", "its subflow makes no progress")
		case l.Problem != nil:
			j.say(about{"lane", l.Name}, Warn, l.Problem.Hint, "the running primary says: %s", l.Problem.Text)
		default:
			j.say(about{"lane", l.Name}, OK, "", "reaches the server")
		}
		switch {
		case l.NoUDP != "":
			j.say(about{"transport", l.Name}, Note, "open the server's UDP port too, and run it with --udp", "its subflow goes over TCP, and not over UDP as is asked for: %s", l.NoUDP)
		case l.UDP:
			j.say(about{"transport", l.Name}, OK, "", "its subflow goes over UDP")
		}
		j.nat(l)
		j.queue(l)
		j.stalls(l)
		for _, h := range l.Hops {
			j.hop(l, h)
		}
		if l.NotAsked != "" {
			j.say(about{"rate", l.Name}, Note, "", "not measured: %s", l.NotAsked)
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

func (j *judge) stalls(l Lane) {
	for _, d := range []struct {
		name string
		r    Rate
	}{{"down", l.Down}, {"up", l.ToUp}} {
		switch {
		case d.r.Stalled:
			j.say(about{"mtu", l.Name}, Bad, blackHoleHint,
				"short packets pass, bulk %s does not: long packets seem to be lost on the way", d.name)
		case d.r.Problem != nil:
			j.say(about{"rate", l.Name}, Warn, d.r.Problem.Hint, "no rate %s: %s", d.name, d.r.Problem.Text)
		}
	}
}

// nat compares the address of a direct lane with the one that the server sees.
func (j *judge) nat(l Lane) {
	seen, local := host(l.Seen), host(l.Local)
	switch {
	case l.Helper && seen.IsValid():
		j.say(about{"nat", l.Name}, OK, "", "the server sees its helper at %v", seen)
	case !seen.IsValid() || !local.IsValid():
	case seen == local:
		j.say(about{"nat", l.Name}, OK, "", "no NAT: the server sees %v", seen)
	case carrierNAT.Contains(local):
		j.say(about{"nat", l.Name}, OK, "", "a NAT of the provider: the server sees %v instead of %v", seen, local)
	default:
		j.say(about{"nat", l.Name}, OK, "", "a NAT: the server sees %v instead of %v", seen, local)
	}
}

// host is the IP address of "address:port".
func host(s string) netip.Addr {
	a, _ := netip.ParseAddrPort(s)
	return a.Addr().Unmap().WithZone("")
}

func (j *judge) hop(l Lane, h Hop) {
	subject := hopName(l, h.Name)
	switch {
	case h.MTU == 0 || h.MTU >= usualMTU:
	case h.MTU < leastMTU:
		j.say(about{"mtu", subject}, Warn, "raise the MTU of the link, if nothing on the way needs it so small", "its packets have at most %d bytes: IPv6 needs %d, and headers cost more than usual", h.MTU, leastMTU)
	default:
		j.say(about{"mtu", subject}, Note, "", "its packets have at most %d bytes, as in a tunnel", h.MTU)
	}
	if h.RejectedReports > 0 {
		j.say(about{"forged", subject}, Warn, "have "+l.Name+" use another network, and ask who runs this one",
			"somebody on the %s forges what %s reports: the server ignored it %d times; data are safe, and may be slower", subject, l.Name, h.RejectedReports)
	}
	if loss := loss(h); loss > lossWarn {
		where := "see what else uses this line, and whether its radio is weak"
		if h.Name == Pipe {
			where = "bring the two nearer, or use another channel, 5 GHz or a cable"
		}
		j.say(about{"loss", subject}, Warn, where+"; with much loss --congestion bbr carries more than cubic", "%.1f %% of the packets on the %s were lost and sent again", 100*loss, subject)
	}
}

// queue compares a round trip now with the best one that the running primary has seen.
func (j *judge) queue(l Lane) {
	if l.Queue < queueWarn || len(l.Hops) == 0 {
		return
	}
	best := l.Hops[0].RTT - l.Queue
	j.say(about{"queue", hopName(l, l.Hops[0].Name)}, Warn, "find out what else uses this line (`mpbond top` shows what mpbond carries), or let helpers carry more",
		"the line of %s is full: packets wait %v on the %s, whose round trip is %v when nothing else uses it", l.Name, round(l.Queue), hopName(l, l.Hops[0].Name), round(best))
}

func loss(h Hop) float64 {
	if h.Packets < leastPackets {
		return 0
	}
	return float64(h.Resent) / float64(h.Packets)
}

// hopName is a hop as people call it.
func hopName(l Lane, hop string) string {
	switch hop {
	case Pipe:
		return "pipe to " + l.Name
	case HSPath:
		return "HS-path of " + l.Name
	}
	return "PS-path by " + l.Name
}

func round(d time.Duration) time.Duration {
	if d < 10*time.Millisecond {
		return d.Round(10 * time.Microsecond)
	}
	return d.Round(time.Millisecond)
}

func laneReports(list []Lane) []LaneReport {
	out := []LaneReport{}
	for _, l := range list {
		r := LaneReport{Name: l.Name, Kind: "direct", Up: l.Up, DownBps: l.Down.Bps, UpBps: l.ToUp.Bps, Seen: l.Seen, Hops: []HopReport{}}
		if l.Helper {
			r.Kind = "helped"
		} else if s, own := host(l.Seen), host(l.Local); s.IsValid() && own.IsValid() {
			r.NAT = s != own
		}
		for _, h := range l.Hops {
			r.Hops = append(r.Hops, HopReport{Name: h.Name, RTTms: float64(h.RTT.Microseconds()) / 1000, Loss: loss(h), MTU: h.MTU,
				DownBps: l.Down.Bps, DownAtLeast: l.Down.Limit != h.Name, UpBps: l.ToUp.Bps, UpAtLeast: l.ToUp.Limit != h.Name})
		}
		out = append(out, r)
	}
	return out
}
