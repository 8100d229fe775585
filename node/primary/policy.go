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

// Policy is the policy in force at a primary: the rules of the policy file, and the
// primary's own settings where these leave a connection open. It decides how each
// connection of an app is carried, counts what matched, and explains what a rule means
// with the subflows of the moment. Rules never change: a new reading of the file replaces
// them at once for all that begins later. Safe for concurrent use. No method blocks on the
// network, and the lock of the file is held only while it is read or written.
type Policy struct {
	file          PolicyFile
	settings      *policy.Rules // of the settings, for what the file says nothing of
	names         *intercept.Names
	processes     device.ProcessFinder
	currentRoutes func() routeSnapshot // what there is to carry something

	blockedCount, directCount atomic.Int64 // connections, and destinations of datagrams
}

// activeRules are rules in force. They do not change.
type activeRules struct {
	*policy.Rules
	matchCounts []atomic.Int64 // by rule: connections, and destinations of datagrams
	text        []byte         // that they were read from
}

func newActiveRules(rules *policy.Rules, text []byte) *activeRules {
	return &activeRules{rules, make([]atomic.Int64, rules.Len()), text}
}

// newPolicy returns a policy without a file. Rec is told of changes, nil is nobody.
func newPolicy(usual *policy.Rules, routes func() routeSnapshot, log *slog.Logger, rec *trace.Recorder) *Policy {
	l := &Policy{settings: usual, currentRoutes: routes, file: PolicyFile{log: log, rec: rec}}
	l.file.active.Store(newActiveRules(new(policy.Rules), nil))
	l.names = &intercept.Names{Wanted: func() bool { return l.active().NeedsNames() }}
	return l
}

// Names returns the names that the rules ask for; see intercept.Config.
func (l *Policy) Names() *intercept.Names { return l.names }

// File returns the file that Use was given.
func (l *Policy) File() *PolicyFile { return &l.file }

// Rules returns those in force, with the tables of devices.
func (l *Policy) Rules() *policy.Rules { return l.file.Rules() }

func (l *Policy) active() *activeRules { return l.file.active.Load() }

// decideCounted is the verdict about a flow, which is counted.
func (l *Policy) decideCounted(rules *activeRules, f policy.Flow) policy.Verdict {
	v := l.verdictFor(rules.Rules, f)
	if v.Index >= 0 {
		rules.matchCounts[v.Index].Add(1)
	}
	switch v.Mode {
	case policy.ModeBlock:
		l.blockedCount.Add(1)
	case policy.ModeDirect:
		l.directCount.Add(1)
	}
	return v
}

// verdictFor is the verdict about a flow, where its rules leave it open by the primary's
// own settings.
func (l *Policy) verdictFor(rules *policy.Rules, f policy.Flow) policy.Verdict {
	if f.Name == "" && rules.NeedsNames() {
		if a, err := netip.ParseAddrPort(f.Dest); err == nil {
			f.Name = l.names.Of(a.Addr())
		}
	}
	v := rules.Decide(f)
	if v.Mode == policy.ModeUnset {
		v.Mode = cmp.Or(l.settings.Decide(f).Mode, policy.ModeBond)
	}
	return v
}

// defaultMode returns the mode of a connection that no app has made, for which rules do
// not count.
func (l *Policy) defaultMode(dest string) wire.Mode {
	return l.settings.Decide(policy.Flow{Dest: dest}).Mode.StreamMode()
}

// findProcess is the program that has an app's socket, nil if it cannot be known.
func (l *Policy) findProcess(app intercept.App) *policy.Process {
	if !app.Addr.IsValid() || !app.Peer.IsValid() {
		return nil
	}
	o, err := l.processes.FindBySocket(app.Network, app.Addr, app.Peer)
	if err == nil && app.ByRun {
		o, err = l.processes.FindChild(o)
	}
	if err != nil {
		return nil // of another machine, say: rules that ask for programs do not match
	}
	return &policy.Process{Exe: o.Exe, Cgroup: o.Cgroup, Label: intercept.LabelOf(o.Cgroup), UID: o.UID}
}

// flowHandling is how a connection of an app is carried.
type flowHandling struct {
	mode         wire.Mode
	class        *policy.TrafficClass
	process      *policy.Process // that has it, if rules had it looked for
	processKnown bool
}

// decideConn is how a connection of an app is carried, or why not by the bond.
func (l *Policy) decideConn(app intercept.App, dest string) (how flowHandling, err error) {
	rules := l.active()
	f := policy.Flow{Dest: dest, DSCP: app.DSCP, Name: app.Name}
	if how.processKnown = rules.NeedsProcess(); how.processKnown {
		f.Process = l.findProcess(app)
	}
	v := l.decideCounted(rules, f)
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
