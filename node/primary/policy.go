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
	file   PolicyFile
	usual  *policy.Rules // of the settings, for what the file says nothing of
	names  *intercept.Names
	owners device.Owners
	routes func() routing // what there is to carry something

	blocked, around atomic.Int64 // connections, and destinations of datagrams
}

// inForce are rules in force. They do not change.
type inForce struct {
	*policy.Rules
	matched []atomic.Int64 // by rule: connections, and destinations of datagrams
	text    []byte         // that they were read from
}

func newInForce(rules *policy.Rules, text []byte) *inForce {
	return &inForce{rules, make([]atomic.Int64, rules.Len()), text}
}

// newPolicy returns a policy without a file. Rec is told of changes, nil is nobody.
func newPolicy(usual *policy.Rules, routes func() routing, log *slog.Logger, rec *trace.Recorder) *Policy {
	l := &Policy{usual: usual, routes: routes, file: PolicyFile{log: log, rec: rec}}
	l.file.force.Store(newInForce(new(policy.Rules), nil))
	l.names = &intercept.Names{Wanted: func() bool { return l.inForce().AskNames() }}
	return l
}

// Names returns the names that the rules ask for; see intercept.Config.
func (l *Policy) Names() *intercept.Names { return l.names }

// File returns the file that Use was given.
func (l *Policy) File() *PolicyFile { return &l.file }

// Rules returns those in force, with the tables of devices.
func (l *Policy) Rules() *policy.Rules { return l.file.Rules() }

func (l *Policy) inForce() *inForce { return l.file.force.Load() }

// decide is the verdict about a flow, which is counted.
func (l *Policy) decide(rules *inForce, f policy.Flow) policy.Verdict {
	v := l.of(rules.Rules, f)
	if v.Index >= 0 {
		rules.matched[v.Index].Add(1)
	}
	switch v.Mode {
	case policy.ModeBlock:
		l.blocked.Add(1)
	case policy.ModeDirect:
		l.around.Add(1)
	}
	return v
}

// of is the verdict about a flow, where its rules leave it open by the primary's
// own settings.
func (l *Policy) of(rules *policy.Rules, f policy.Flow) policy.Verdict {
	if f.Name == "" && rules.AskNames() {
		if a, err := netip.ParseAddrPort(f.Dest); err == nil {
			f.Name = l.names.Of(a.Addr())
		}
	}
	v := rules.Of(f)
	if v.Mode == policy.Usual {
		v.Mode = cmp.Or(l.usual.Of(f).Mode, policy.ModeBond)
	}
	return v
}

// usualMode returns the mode of a connection that no app has made, for which rules do
// not count.
func (l *Policy) usualMode(dest string) wire.Mode {
	return l.usual.Of(policy.Flow{Dest: dest}).Mode.Wire()
}

// processOf is the program that has an app's socket, nil if it cannot be known.
func (l *Policy) processOf(app intercept.App) *policy.Process {
	if !app.Addr.IsValid() || !app.Peer.IsValid() {
		return nil
	}
	o, err := l.owners.Find(app.Network, app.Addr, app.Peer)
	if err == nil && app.ByRun {
		o, err = l.owners.Child(o)
	}
	if err != nil {
		return nil // of another machine, say: rules that ask for programs do not match
	}
	return &policy.Process{Exe: o.Exe, Cgroup: o.Cgroup, Label: intercept.LabelOf(o.Cgroup), UID: o.UID}
}

// treatment is how a connection of an app is carried.
type treatment struct {
	mode    wire.Mode
	treat   *policy.Treatment
	process *policy.Process // that has it, if rules had it looked for
	looked  bool
}

// judge is how a connection of an app is carried, or why not by the bond.
func (l *Policy) judge(app intercept.App, dest string) (how treatment, err error) {
	rules := l.inForce()
	f := policy.Flow{Dest: dest, DSCP: app.DSCP, Name: app.Name}
	if how.looked = rules.AskProcess(); how.looked {
		f.Process = l.processOf(app)
	}
	v := l.decide(rules, f)
	how.mode, how.treat, how.process = v.Mode.Wire(), v.Treat, f.Process
	switch v.Mode {
	case policy.ModeBlock:
		return how, wire.Reset{Code: wire.CodeForbidden, Text: blockedText(dest, v)}
	case policy.ModeDirect:
		return how, intercept.ErrAround
	}
	return how, nil
}

func blockedText(dest string, v policy.Verdict) string {
	return fmt.Sprintf("%s is blocked by policy: %s", dest, v.Reason)
}
