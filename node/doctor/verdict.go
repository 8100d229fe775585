// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"fmt"
	"slices"

	"mpbond/base/fault"
	"mpbond/base/unit"
)

// causeOrder lists the checks that can fail, causes before their effects.
var causeOrder = []string{"configuration", "uplink", "portal", "mtu", "server", "refused", "subflow", "primary",
	"pipe", "helper", "port", "names", "clock"}

// hopVerdicts names the verdict on each slow hop and the advice. The usual remedy is a better link.
var hopVerdicts = map[string]struct{ what, advice string }{
	HopPSPath: {"ps_path",
		"this device's own link is the slowest: move to a better place or network, or let helpers carry more"},
	HopHSPath: {"hs_path",
		"the helper's link to the Internet is the slowest: move the helper, or give it a better network"},
	HopPipe: {"pipe", "the local link to the helper is the slowest: move the devices closer, use 5 GHz " +
		"WiFi, a cable or USB; with several pipes a helper uses the best one"},
}

// outlierFactor is how much slower than the best a subflow must be to stand out.
const outlierFactor = 4

// pickBottleneck chooses the bottleneck: first what does not work, causes before effects; then what
// limits this device itself; then the slowest limiting hop.
func pickBottleneck(f Facts, r Report) (v Verdict, kind fault.Kind) {
	var worst *Finding
	for i := range r.Findings {
		n := &r.Findings[i]
		if n.Level == Bad && (worst == nil || slices.Index(causeOrder, n.Check) < slices.Index(causeOrder,
			worst.Check)) {
			worst = n
		}
	}
	if worst != nil {
		return Verdict{What: worst.Check, Subject: worst.Subject, Level: Bad, Text: worst.Text,
			Advice: worst.Hint}, kindOfCheck(f, worst.Check)
	}
	if f.Host.OwnCPU >= ownFull {
		n := findWarning(r.Findings, "processor")
		return Verdict{"processor", "", Warn, n.Text, n.Hint}, ""
	}
	hop, slow, rate, best := slowestHop(f.Subflows)
	for _, check := range []string{"forged", "buffer", "queue", "loss", "subflow"} {
		n := findWarning(r.Findings, check)
		if n == nil || check == "loss" && hop != "" && n.Subject != hopDisplayName(slow, hop) {
			continue
		}
		return Verdict{check, n.Subject, Warn, n.Text, n.Hint}, ""
	}
	if hop == "" {
		if n := findWarning(r.Findings, ""); n != nil {
			return Verdict{n.Check, n.Subject, Warn, n.Text, n.Hint}, ""
		}
		return Verdict{What: "none", Level: OK, Text: "nothing is wrong" + textWhenTrue(!f.RatesMeasured,
			"; rates were not measured")}, ""
	}
	w := hopVerdicts[hop]
	v = Verdict{What: w.what, Subject: hopDisplayName(slow, hop), Level: Note,
		Text: fmt.Sprintf("the %s carries %v, the lowest rate of all", hopDisplayName(slow, hop), rate), Advice: w.advice}
	if len(f.Subflows) == 1 {
		v.Text = fmt.Sprintf("the %s carries %v, and is the only path", hopDisplayName(slow, hop), rate)
	}
	if rate*outlierFactor < best {
		v.Level = Warn
		v.Text = fmt.Sprintf("the %s carries %v, while another path carries %v", hopDisplayName(slow, hop), rate, best)
	}
	if f.Host.BusyCPU >= busyWarn {
		v.Text += "; but the processors were busy meanwhile, and rates may be too low"
	}
	return v, ""
}

func textWhenTrue(b bool, s string) string {
	if b {
		return s
	}
	return ""
}

// findWarning returns the first warning of a check, "" for any; nil if there is none.
func findWarning(list []Finding, check string) *Finding {
	for i := range list {
		if n := &list[i]; n.Level == Warn && (check == "" || n.Check == check) {
			return n
		}
	}
	return nil
}

// slowestHop returns the hop that limits the slowest subflow, with its rate and the best subflow's
// rate in the same direction. Slowest is relative to the best subflow. hop is "" if no rate was
// measured.
func slowestHop(subflows []Subflow) (hop string, slow Subflow, rate, best unit.Rate) {
	least := 2.0 // rate relative to the best subflow
	for _, rateOf := range []func(Subflow) Rate{func(l Subflow) Rate { return l.DownRate },
		func(l Subflow) Rate { return l.UpRate }} {
		var top unit.Rate
		for _, l := range subflows {
			top = max(top, rateOf(l).Bps)
		}
		for _, l := range subflows {
			r := rateOf(l)
			if r.Bps == 0 || r.Limit == "" {
				continue
			}
			if share := float64(r.Bps) / float64(top); share < least {
				hop, slow, rate, best, least = r.Limit, l, r.Bps, top, share
			}
		}
	}
	return hop, slow, rate, best
}

// kindOfCheck returns the kind of failure for a failed check.
func kindOfCheck(f Facts, check string) fault.Kind {
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
	case "server", "subflow":
		for _, a := range f.Server.Addresses {
			if a.Problem != nil {
				return a.Problem.Kind
			}
		}
		for _, l := range f.Subflows {
			if l.Problem != nil {
				return l.Problem.Kind
			}
		}
		return fault.Unreachable
	}
	return fault.Other
}
