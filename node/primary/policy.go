// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/netip"
	"sync/atomic"

	"mpbond/control/device"
	"mpbond/control/policy"
	"mpbond/core/trace"
	"mpbond/link/wire"
	"mpbond/node/intercept"
)

// Policy is the policy in force at a primary: the rules of the policy file and, where these leave a
// connection open, the primary's own settings. It decides how each connection of an app is carried,
// counts the matches of each rule, and explains what a rule means with the current subflows. Rules
// never change: reading the file again replaces them for all later connections. Safe for concurrent
// use. No method blocks on the network; the lock of the file is held only while it is read or
// written.
type Policy struct {
	file            PolicyFile
	settings        *policy.Rules // of the configuration, where the file has no rule
	names           *intercept.Names
	processes       device.ProcessFinder
	currentSubflows func() subflowSnapshot // the subflows that could carry something

	blockedCount, directCount atomic.Int64 // connections, and destinations of datagrams
}

// activeRules are the rules in force. They do not change.
type activeRules struct {
	*policy.Rules
	matchCounts []atomic.Int64 // by rule: connections, and destinations of datagrams
	text        []byte         // the source of the rules
}

func newActiveRules(rules *policy.Rules, text []byte) *activeRules {
	return &activeRules{rules, make([]atomic.Int64, rules.Len()), text}
}

// newPolicy returns a policy without a file. rec, if not nil, records changes.
func newPolicy(usual *policy.Rules, subflows func() subflowSnapshot, log *slog.Logger, rec *trace.Recorder) *Policy {
	l := &Policy{settings: usual, currentSubflows: subflows, file: PolicyFile{log: log, rec: rec}}
	l.file.active.Store(newActiveRules(new(policy.Rules), nil))
	l.names = &intercept.Names{Wanted: func() bool { return l.currentRules().NeedsNames() }}
	return l
}

// Names returns the DNS names that the rules need; see intercept.Config.
func (p *Policy) Names() *intercept.Names { return p.names }

// File returns the policy file.
func (p *Policy) File() *PolicyFile { return &p.file }

// Rules returns the rules in force, with the device tables.
func (p *Policy) Rules() *policy.Rules { return p.file.Rules() }

func (p *Policy) currentRules() *activeRules { return p.file.active.Load() }

// decideCounted returns the verdict for a connection and counts it.
func (p *Policy) decideCounted(rules *activeRules, f policy.Connection) policy.Verdict {
	v := p.verdictFor(rules.Rules, f)
	if v.Index >= 0 {
		rules.matchCounts[v.Index].Add(1)
	}
	switch v.Mode {
	case policy.ModeBlock:
		p.blockedCount.Add(1)
	case policy.ModeDirect:
		p.directCount.Add(1)
	}
	return v
}

// verdictFor returns the verdict for a connection. Where the rules leave it open, the primary's
// settings decide.
func (p *Policy) verdictFor(rules *policy.Rules, f policy.Connection) policy.Verdict {
	if f.Name == "" && rules.NeedsNames() {
		if a, err := netip.ParseAddrPort(f.Dest); err == nil {
			f.Name = p.names.Of(a.Addr())
		}
	}
	v := rules.Decide(f)
	if v.Mode == policy.ModeUnset {
		v.Mode = cmp.Or(p.settings.Decide(f).Mode, policy.ModeBond)
	}
	return v
}

// defaultMode returns the mode of a connection that no app has made; rules do not apply to it.
func (p *Policy) defaultMode(dest string) wire.Mode {
	return p.settings.Decide(policy.Connection{Dest: dest}).Mode.StreamMode()
}

// findAppProcess returns the process that owns an app's socket, or nil if it is unknown.
func (p *Policy) findAppProcess(app intercept.App) *policy.Process {
	if !app.Addr.IsValid() || !app.Peer.IsValid() {
		return nil
	}
	o, err := p.processes.FindBySocket(app.Network, app.Addr, app.Peer)
	if err == nil && app.ByRun {
		o, err = p.processes.FindChild(o)
	}
	if err != nil {
		return nil // such as of another machine: rules that name programs do not match
	}
	return &policy.Process{Exe: o.Exe, Cgroup: o.Cgroup, Label: intercept.LabelOf(o.Cgroup), UID: o.UID}
}

// connHandling is how a connection of an app is carried.
type connHandling struct {
	mode         wire.Mode
	class        *policy.TrafficClass
	process      *policy.Process // that owns the socket, if a rule needed it
	processKnown bool
}

// decideConn decides how a connection of an app is carried. An error tells why the bond does not
// carry it.
func (p *Policy) decideConn(app intercept.App, dest string) (how connHandling, err error) {
	rules := p.currentRules()
	f := policy.Connection{Dest: dest, DSCP: app.DSCP, Name: app.Name}
	if how.processKnown = rules.NeedsProcess(); how.processKnown {
		f.Process = p.findAppProcess(app)
	}
	v := p.decideCounted(rules, f)
	how.mode, how.class, how.process = v.Mode.StreamMode(), v.Class, f.Process
	switch v.Mode {
	case policy.ModeBlock:
		return how, wire.Reset{Code: wire.CodeForbidden, Text: formatBlocked(dest, v)}
	case policy.ModeDirect:
		return how, intercept.ErrAround
	}
	return how, nil
}

func formatBlocked(dest string, v policy.Verdict) string {
	return fmt.Sprintf("%s is blocked by policy: %s", dest, v.Reason)
}
