// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"mpbond/api"
	"mpbond/base/config"
	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/control/policy"
	"mpbond/link/wire"
)

// View returns the policy file and what is in force, with what each rule means now.
func (p *Policy) View() api.Policy {
	a, force, places := p.file.describeFile()
	a.Default, a.Blocked, a.Direct = force.Default().String(), p.blockedCount.Load(), p.directCount.Load()
	now := p.currentSubflows()
	for i, r := range force.List() {
		rule := api.PolicyRule{
			Name:        r.Name,
			When:        r.Conditions(),
			PolicyClass: now.explainClass(r.Mode, r.TrafficClass()),
			Matched:     force.matchCounts[i].Load(),
		}
		rule.Line, _ = places.FindTable(policy.TableRule, i, "")
		a.Rules = append(a.Rules, rule)
	}
	return a
}

// Tables returns the policy file of a role without rules for apps, and what is in force.
func (f *PolicyFile) Tables() api.Policy {
	a, _, _ := f.describeFile()
	a.Default = policy.Allow.String()
	return a
}

// describeFile returns the file with the device tables in force, the rules, and the positions of
// both in the text.
func (f *PolicyFile) describeFile() (api.Policy, *activeRules, *config.Locator) {
	f.mu.Lock()
	defer f.mu.Unlock()
	force := f.active.Load()
	places := config.NewLocator(force.text)
	a := api.Policy{
		File:     f.path,
		Text:     string(f.text),
		Version:  textVersion(f.text),
		ReadOnly: !config.Writable(f.path),
		Rules:    []api.PolicyRule{},
		Devices:  []api.PolicyDevice{},
	}
	if !f.loadedAt.IsZero() {
		loaded := f.loadedAt
		a.Loaded = &loaded
	}
	if f.err != nil {
		a.Refused = PolicyErrorOf(f.err)
	}
	devices := force.Devices()
	for _, name := range slices.Sorted(maps.Keys(devices)) {
		d := devices[name]
		t := api.PolicyDevice{
			Name:                name,
			Metered:             d.Metered,
			BatteryFloorPercent: d.BatteryFloor,
			MaxTemperatureC:     d.MaxTemperature,
			DailyCapBytes:       unit.Bytes(d.Daily),
			MonthlyCapBytes:     unit.Bytes(d.Monthly),
			ResetDay:            d.ResetDay,
		}
		t.Line, _ = places.FindTable(policy.TableDevice+name, 0, "")
		if d.Tier != nil {
			t.Tier = d.Tier.String()
		}
		if d.HasCap() {
			warn, stop := d.Thresholds()
			t.WarnAtPercent, t.StopAtPercent = warn.Percent(), stop.Percent()
		}
		a.Devices = append(a.Devices, t)
	}
	return a, force, places
}

// PolicyErrorOf describes for programs why a text is unusable.
func PolicyErrorOf(err error) *api.PolicyError {
	e := &api.PolicyError{Text: err.Error(), Hint: fault.HintOf(err)}
	var at *config.Error
	if errors.As(err, &at) {
		e.Line, e.Column, e.Nearest = at.Place()
	}
	return e
}

// CheckTables checks a text as Policy.Check does, for a role without rules for apps. It rejects
// questions about connections.
func (f *PolicyFile) CheckTables(c api.PolicyCheck) (a api.PolicyAnswer, err error) {
	if c.Text != nil {
		if _, err = ParsePolicy("policy.toml", []byte(*c.Text)); err != nil {
			return a, err
		}
	}
	if c.Flow != nil {
		err = fault.New(
			fault.Unsupported,
			errors.New("a helper applies no rules to connections of apps"),
			"ask the primary, which applies the rules",
		)
	}
	return a, err
}

// Check reports whether a text is usable and what would happen to a connection. It changes nothing.
func (p *Policy) Check(c api.PolicyCheck) (a api.PolicyAnswer, err error) {
	rules := p.Rules()
	if c.Text != nil {
		if rules, err = ParsePolicy("policy.toml", []byte(*c.Text)); err != nil {
			return a, err
		}
	}
	a.Rules = rules.Len()
	if c.Flow == nil {
		return a, nil
	}
	v := p.verdictFor(rules, toPolicyConnection(*c.Flow))
	t := p.currentSubflows().explainClass(v.Mode, v.Class)
	t.Reason = v.Reason + "; " + t.Reason
	a.Rule, a.Verdict = v.Rule, &t
	return a, nil
}

// toPolicyConnection returns a connection of the API as package policy sees it.
func toPolicyConnection(f api.PolicyFlow) policy.Connection {
	c := policy.Connection{
		Dest: net.JoinHostPort(strings.Trim(f.Host, "[]"), strconv.Itoa(int(f.Port))),
		Name: f.Name,
		DSCP: f.DSCP,
	}
	if f.App != "" || f.Cgroup != "" || f.Label != "" || f.UID != nil {
		c.Process = &policy.Process{Exe: f.App, Cgroup: f.Cgroup, Label: f.Label, UID: policy.NoUID}
		if f.UID != nil {
			c.Process.UID = *f.UID
		}
	}
	return c
}

// subflowSnapshot is the subflows that could carry something, at one moment.
type subflowSnapshot struct {
	all    []policy.ClassSubflow
	single map[string]wire.SubflowID // the subflow of each single-subflow class, by settings key
}

// explainClass explains what a mode and class mean now. A nil class has no settings.
func (s subflowSnapshot) explainClass(m policy.Mode, t *policy.TrafficClass) api.PolicyClass {
	a := api.PolicyClass{Mode: m.String()}
	switch m {
	case policy.ModeBlock:
		a.Reason = "it is not carried"
		return a
	case policy.ModeDirect:
		a.Reason = "it bypasses the bond"
		return a
	}
	if t == nil {
		t = &policy.TrafficClass{Weight: 1}
	}
	a.Device, a.Pipe, a.Priority, a.Weight = t.Devices, t.Pipes, t.Priority.String(), int(t.Weight)
	g := t.BuildGroup(1, s.all, s.single[t.Key()])
	var by []string
	for _, one := range s.all {
		if g.Limited && !slices.Contains(g.Subflows, one.ID) {
			continue
		}
		a.Subflows = append(a.Subflows, uint32(one.ID))
		by = append(by, fmt.Sprintf("%d by %s", one.ID, cmp.Or(slices.Concat(one.Names, []string{"?"})...)))
	}
	switch {
	case len(by) > 0 && t.Single:
		a.Reason = "one subflow at a time carries it, now " + by[0]
	case len(by) > 0 && m == policy.ModeLatency:
		a.Reason = "the quickest carries it, of subflows " + strings.Join(by, ", ")
	case len(by) > 0 && m == policy.ModeRedundant:
		a.Reason = "all carry it: subflows " + strings.Join(by, ", ")
	case len(by) > 0:
		a.Reason = "the scheduler has subflows " + strings.Join(by, ", ")
	case g.Limited:
		a.Reason = "it waits: no device of the rule has a subflow"
	default:
		a.Reason = "it waits: there is no subflow"
	}
	return a
}
