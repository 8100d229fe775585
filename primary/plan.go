package primary

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"mpbond/api"
	"mpbond/config"
	"mpbond/device"
	"mpbond/fault"
	"mpbond/intercept"
	"mpbond/policy"
	"mpbond/wire"
)

// planEvery is how often the policy file is looked at for changes. One that
// changes from one look to the next is still being written.
const planEvery = 400 * time.Millisecond

// plan is what policy says of connections, with the file it comes from.
type plan struct {
	modes  policy.Modes                 // for what rules say nothing of
	rules  atomic.Pointer[policy.Rules] // never nil
	names  *intercept.Names
	owners device.Owners

	blocked, around atomic.Int64 // connections, and destinations of datagrams

	mu     sync.Mutex
	file   string // "": there is none
	must   bool   // it must exist
	seen   stamp
	loaded time.Time // when the rules in force were read
	err    error     // why the file as it is now is not in force, or nil
}

// stamp tells versions of a file apart.
type stamp struct {
	size int64
	at   time.Time
}

func (l *plan) start(modes policy.Modes) {
	l.modes = modes
	l.rules.Store(new(policy.Rules))
	l.names = &intercept.Names{Wanted: func() bool { return l.rules.Load().AskNames() }}
}

// Names are those that the rules want to know; see intercept.Config.
func (p *Primary) Names() *intercept.Names { return p.plan.names }

// UsePolicy reads the policy file, and has it read again whenever it has changed
// while Run runs. Unless it must exist it need not, and may come later. An error
// is about this first reading; afterwards a file that cannot be used changes
// nothing, and the log and the status say why.
func (p *Primary) UsePolicy(file string, must bool) error {
	p.plan.mu.Lock()
	defer p.plan.mu.Unlock()
	p.plan.file, p.plan.must = file, must
	return p.plan.read(p.log)
}

// ReloadPolicy reads the policy file again.
func (p *Primary) ReloadPolicy() {
	p.plan.mu.Lock()
	defer p.plan.mu.Unlock()
	if err := p.plan.read(p.log); err != nil {
		p.log.Error("the policy stays as it was", "err", err, "hint", fault.HintOf(err))
	}
}

// read puts the file in force, or keeps why not. Mu is held.
func (l *plan) read(log *slog.Logger) error {
	if l.file == "" {
		return nil
	}
	l.seen = stampOf(l.file)
	var f policy.File
	err := config.Load(l.file, &f)
	if fault.Is(err, fault.NotFound) && !l.must {
		if l.rules.Load().Len() > 0 {
			log.Info("the policy file is gone: everything is allowed", "file", l.file)
		}
		l.rules.Store(new(policy.Rules))
		l.err, l.loaded = nil, time.Time{}
		return nil
	}
	var rules *policy.Rules
	if err == nil {
		if rules, err = f.Compile(); err != nil {
			err = fault.New(fault.Config, fmt.Errorf("%s: %w", l.file, err), "")
		}
	}
	if l.err = err; err != nil {
		return err
	}
	l.rules.Store(rules)
	l.loaded = time.Now()
	log.Info("policy in force", "file", l.file, "rules", rules.Len())
	return nil
}

// stampOf is the zero stamp for a file that there is not.
func stampOf(file string) stamp {
	st, err := os.Stat(file)
	if err != nil {
		return stamp{}
	}
	return stamp{st.Size(), st.ModTime()}
}

// followPolicy reads the policy file when it has changed, until ctx ends.
func (p *Primary) followPolicy(ctx context.Context) {
	t := time.NewTicker(planEvery)
	defer t.Stop()
	for last := (stamp{}); ; {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		p.plan.mu.Lock()
		now := stampOf(p.plan.file)
		changed := p.plan.file != "" && now != p.plan.seen && now == last
		p.plan.mu.Unlock()
		if last = now; changed {
			p.ReloadPolicy()
		}
	}
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
	app, known := intercept.AppOf(ctx)
	mode, _ := p.plan.modes.Of(policy.Flow{Dest: dest})
	var treat *policy.Treatment
	if known { // else it is mpbond's own: a DNS query that it passes on
		var err error
		if mode, treat, err = p.judge(app, dest); err != nil {
			return nil, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock() // so that the bond is not replaced meanwhile
	if err := p.awaitSubflow(ctx); err != nil {
		return nil, err
	}
	p.demand.want() // a second subflow
	group, err := p.groupOf(treat)
	if err != nil {
		return nil, err
	}
	c, err := p.cur.e.Dial(dest, mode, group)
	if err != nil {
		return nil, err
	}
	if known {
		p.remember(app.Addr, c)
	}
	if treat != nil && len(treat.Devices)+len(treat.Pipes) > 0 {
		return bondOnly{c}, nil
	}
	return c, nil
}

// judge is how a connection of an app is carried, or why not by the bond.
func (p *Primary) judge(app intercept.App, dest string) (wire.Mode, *policy.Treatment, error) {
	rules := p.plan.rules.Load()
	f := policy.Flow{Dest: dest, DSCP: app.DSCP, Name: app.Name}
	if rules.AskProcess() {
		f.Process = p.plan.processOf(app)
	}
	v := p.plan.of(rules, f)
	switch v.Mode {
	case policy.ModeBlock:
		p.plan.blocked.Add(1)
		return 0, nil, wire.Reset{Code: wire.CodeForbidden, Text: blockedText(dest, v)}
	case policy.ModeDirect:
		p.plan.around.Add(1)
		return 0, nil, intercept.ErrAround
	case policy.ModeLatency:
		return wire.Latency, v.Treat, nil
	case policy.ModeRedundant:
		return wire.Redundant, v.Treat, nil
	}
	return wire.Bond, v.Treat, nil
}

func blockedText(dest string, v policy.Verdict) string {
	return fmt.Sprintf("%s is blocked by policy: %s", dest, v.Reason)
}

// describe tells a status what is in force.
func (l *plan) describe() *api.PolicyStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	rules := l.rules.Load()
	if l.file == "" || rules.Len() == 0 && l.loaded.IsZero() && l.err == nil {
		return nil
	}
	s := &api.PolicyStatus{File: l.file, Rules: rules.Len(), Loaded: l.loaded, Blocked: l.blocked.Load(), Direct: l.around.Load()}
	if l.err != nil {
		s.Error = l.err.Error()
		if h := fault.HintOf(l.err); h != "" {
			s.Error += " (" + h + ")"
		}
	}
	return s
}

// Policy tells what policy is in force, nil for none.
func (p *Primary) Policy() *api.PolicyStatus { return p.plan.describe() }
