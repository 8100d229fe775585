package primary

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"

	"mpbond/control/device"
	"mpbond/control/policy"
	"mpbond/link/wire"
	"mpbond/node/intercept"
	"mpbond/node/probe"
)

// plan is what policy says of connections, with the file it comes from.
type plan struct {
	PolicyFile
	modes  policy.Modes // for what rules say nothing of
	names  *intercept.Names
	owners device.Owners

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

func (l *plan) start(modes policy.Modes) {
	l.modes = modes
	l.force.Store(newInForce(new(policy.Rules), nil))
	l.names = &intercept.Names{Wanted: func() bool { return l.force.Load().AskNames() }}
}

// Names are those that the rules want to know; see intercept.Config.
func (p *Primary) Names() *intercept.Names { return p.plan.names }

// decide is the verdict about a flow, which is counted.
func (l *plan) decide(rules *inForce, f policy.Flow) policy.Verdict {
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
func (l *plan) of(rules *policy.Rules, f policy.Flow) policy.Verdict {
	if f.Name == "" && rules.AskNames() {
		if a, err := netip.ParseAddrPort(f.Dest); err == nil {
			f.Name = l.names.Of(a.Addr())
		}
	}
	v := rules.Of(f)
	if v.Mode != policy.Usual {
		return v
	}
	switch mode, _ := l.modes.Of(f); mode {
	case wire.Latency:
		v.Mode = policy.ModeLatency
	case wire.Redundant:
		v.Mode = policy.ModeRedundant
	default:
		v.Mode = policy.ModeBond
	}
	return v
}

// processOf is the program that has an app's socket, nil if it cannot be known.
func (l *plan) processOf(app intercept.App) *policy.Process {
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

// DialStream opens a stream of the bond; see intercept.Dialer.
func (p *Primary) DialStream(ctx context.Context, dest string) (net.Conn, error) {
	if path, ok := probe.Path(dest); ok {
		return p.measuring(ctx, dest, wire.PathID(path))
	}
	app, known := intercept.AppOf(ctx)
	var how treatment
	if known {
		var err error
		if how, err = p.judge(app, dest); err != nil {
			return nil, err
		}
	} else { // it is mpbond's own: a DNS query that it passes on
		how.mode, _ = p.plan.modes.Of(policy.Flow{Dest: dest})
	}
	p.mu.Lock()
	defer p.mu.Unlock() // so that the bond is not replaced meanwhile
	if err := p.awaitSubflow(ctx); err != nil {
		return nil, err
	}
	p.demand.want() // a second subflow
	group, err := p.groupOf(how.treat)
	if err != nil {
		return nil, err
	}
	c, err := p.cur.e.Dial(dest, how.mode, group)
	if err != nil {
		return nil, err
	}
	if known {
		p.remember(app.Addr, c)
		p.owners.ask(question{of: c, app: app, process: how.process, looked: how.looked})
	} else {
		c.SetOwner(ownOwner)
	}
	if t := how.treat; t != nil && len(t.Devices)+len(t.Pipes) > 0 {
		return bondOnly{c}, nil
	}
	return c, nil
}

// treatment is how a connection of an app is carried.
type treatment struct {
	mode    wire.Mode
	treat   *policy.Treatment
	process *policy.Process // that has it, if rules had it looked for
	looked  bool
}

// judge is how a connection of an app is carried, or why not by the bond.
func (p *Primary) judge(app intercept.App, dest string) (how treatment, err error) {
	rules := p.plan.force.Load()
	f := policy.Flow{Dest: dest, DSCP: app.DSCP, Name: app.Name}
	if how.looked = rules.AskProcess(); how.looked {
		f.Process = p.plan.processOf(app)
	}
	v := p.plan.decide(rules, f)
	how.mode, how.treat, how.process = wire.Bond, v.Treat, f.Process
	switch v.Mode {
	case policy.ModeBlock:
		return how, wire.Reset{Code: wire.CodeForbidden, Text: blockedText(dest, v)}
	case policy.ModeDirect:
		return how, intercept.ErrAround
	case policy.ModeLatency:
		how.mode = wire.Latency
	case policy.ModeRedundant:
		how.mode = wire.Redundant
	}
	return how, nil
}

func blockedText(dest string, v policy.Verdict) string {
	return fmt.Sprintf("%s is blocked by policy: %s", dest, v.Reason)
}
