package doctor

import (
	"fmt"
	"slices"

	"mpbond/base/fault"
	"mpbond/base/unit"
)

// causes are the checks that can fail, those that make others fail first.
var causes = []string{"configuration", "uplink", "portal", "mtu", "server", "refused", "lane", "primary", "pipe", "helper", "port", "names", "clock"}

// words of a verdict on a hop, and advice. What can be done about a link's rate
// is mostly to have a better link: so it is told what the other lanes can carry.
var hopWords = map[string]struct{ what, advice string }{
	PSPath: {"ps_path", "this device's own link is the slow one: move to a better place or network, or let helpers carry more"},
	HSPath: {"hs_path", "the helper's own link to the Internet is the slow one: move the helper, or give it a better network"},
	Pipe:   {"pipe", "the local link to the helper is the slow one: bring the two nearer, use 5 GHz WiFi, a cable or USB; a helper takes several addresses and uses the best pipe"},
}

// far is how much slower than the best lane one is to stand out.
const far = 4

// verdict names the bottleneck: what does not work, first causes first; else what
// limits this device itself; else the slowest hop that is a limit.
func verdict(f Facts, r Report) (v Verdict, kind fault.Kind) {
	var worst *Finding
	for i := range r.Findings {
		n := &r.Findings[i]
		if n.Level == Bad && (worst == nil || slices.Index(causes, n.Check) < slices.Index(causes, worst.Check)) {
			worst = n
		}
	}
	if worst != nil {
		return Verdict{What: worst.Check, Subject: worst.Subject, Level: Bad, Text: worst.Text, Advice: worst.Hint}, kindOf(f, worst.Check)
	}
	if f.Host.Own >= ownFull {
		n := find(r.Findings, "processor")
		return Verdict{"processor", "", Warn, n.Text, n.Hint}, ""
	}
	hop, lane, rate, best := slowest(f.Lanes)
	for _, check := range []string{"forged", "buffer", "queue", "loss", "lane"} {
		n := find(r.Findings, check)
		if n == nil || check == "loss" && hop != "" && n.Subject != hopName(lane, hop) {
			continue
		}
		return Verdict{check, n.Subject, Warn, n.Text, n.Hint}, ""
	}
	if hop == "" {
		if n := find(r.Findings, ""); n != nil {
			return Verdict{n.Check, n.Subject, Warn, n.Text, n.Hint}, ""
		}
		return Verdict{What: "none", Level: OK, Text: "nothing is wrong" + ifTrue(!f.Rated, "; rates were not measured")}, ""
	}
	w := hopWords[hop]
	v = Verdict{What: w.what, Subject: hopName(lane, hop), Level: Note, Text: fmt.Sprintf("the %s carries %v, the least of all", hopName(lane, hop), rate), Advice: w.advice}
	if len(f.Lanes) == 1 {
		v.Text = fmt.Sprintf("the %s carries %v, and is the only way", hopName(lane, hop), rate)
	}
	if rate*far < best {
		v.Level = Warn
		v.Text = fmt.Sprintf("the %s carries %v, where another way carries %v", hopName(lane, hop), rate, best)
	}
	if f.Host.Busy >= busyWarn {
		v.Text += "; but the processors were busy meanwhile, and rates may be too low"
	}
	return v, ""
}

func ifTrue(b bool, s string) string {
	if b {
		return s
	}
	return ""
}

// find is the first warning of a check, "" for any; nil if there is none.
func find(list []Finding, check string) *Finding {
	for i := range list {
		if n := &list[i]; n.Level == Warn && (check == "" || n.Check == check) {
			return n
		}
	}
	return nil
}

// slowest is the hop that limits the slowest lane, by the direction in which it is
// slower compared with the best lane, and the rate of that one; "" if no rate was
// measured.
func slowest(lanes []Lane) (hop string, lane Lane, rate, best unit.Rate) {
	least := 2.0 // of a lane's rate and the best one's
	for _, of := range []func(Lane) Rate{func(l Lane) Rate { return l.Down }, func(l Lane) Rate { return l.ToUp }} {
		var top unit.Rate
		for _, l := range lanes {
			top = max(top, of(l).Bps)
		}
		for _, l := range lanes {
			r := of(l)
			if r.Bps == 0 || r.Limit == "" {
				continue
			}
			if share := float64(r.Bps) / float64(top); share < least {
				hop, lane, rate, best, least = r.Limit, l, r.Bps, top, share
			}
		}
	}
	return hop, lane, rate, best
}

// kindOf is the kind of failure that a bad finding of a check is.
func kindOf(f Facts, check string) fault.Kind {
	switch check {
	case "configuration":
		if f.Setup.Kind == fault.Permission {
			return fault.Permission
		}
		return fault.Config
	case "refused":
		return fault.Protocol
	case "uplink", "portal", "helper", "pipe":
		return fault.Unreachable
	case "server", "lane":
		for _, a := range f.Server.Addresses {
			if a.Problem != nil {
				return a.Problem.Kind
			}
		}
		for _, l := range f.Lanes {
			if l.Problem != nil {
				return l.Problem.Kind
			}
		}
		return fault.Unreachable
	}
	return fault.Other
}
