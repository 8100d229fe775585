package primary

import (
	"bytes"
	"fmt"
	"log/slog"
	"time"

	"mpbond/api"
	"mpbond/config"
	"mpbond/fault"
	"mpbond/policy"
)

// planFile is the policy file. Guarded by plan.mu.
type planFile struct {
	path   string    // "": there is none
	must   bool      // it must exist
	text   []byte    // as it was last read, in force or not; nil: it was not
	loaded time.Time // when the rules in force were read; zero: none were
	err    error     // why the file as it is now is not in force, or nil
}

// ParsePolicy makes rules of the text of a policy file; name stands for the file
// in errors, which are faults.
func ParsePolicy(name string, text []byte) (*policy.Rules, error) {
	var f policy.File
	if err := config.Parse(name, text, &f); err != nil {
		return nil, err
	}
	rules, err := f.Compile()
	if err != nil {
		return nil, fault.New(fault.Config, fmt.Errorf("%s: %w", name, err), "")
	}
	return rules, nil
}

// UsePolicy reads the policy file. Unless it must exist it need not, and may come
// later. An error is about this first reading; afterwards, by ReloadPolicy, a file
// that cannot be used changes nothing, and the log and the status say why.
func (p *Primary) UsePolicy(path string, must bool) error {
	p.plan.mu.Lock()
	defer p.plan.mu.Unlock()
	p.plan.file = planFile{path: path, must: must}
	_, err := p.plan.read(p.log)
	return err
}

// PolicyFile is the path that UsePolicy was given.
func (p *Primary) PolicyFile() string {
	p.plan.mu.Lock()
	defer p.plan.mu.Unlock()
	return p.plan.file.path
}

// ReloadPolicy reads the policy file again. If it is what it was, nothing happens,
// and is said only if somebody has asked for it.
func (p *Primary) ReloadPolicy(asked bool) {
	p.plan.mu.Lock()
	defer p.plan.mu.Unlock()
	changed, err := p.plan.read(p.log)
	switch {
	case err != nil && (changed || asked):
		p.log.Error("the policy stays as it was", "err", err, "hint", fault.HintOf(err))
	case err == nil && !changed && asked:
		p.log.Info("the policy has not changed", "file", p.plan.file.path)
	}
}

// read puts the file in force, or keeps why not; changed tells that its text is
// another one than the last time, or that it cannot be read for another reason. Mu
// is held.
func (l *plan) read(log *slog.Logger) (changed bool, err error) {
	f := &l.file
	if f.path == "" {
		return false, nil
	}
	text, err := config.Read(f.path)
	if fault.Is(err, fault.NotFound) && !f.must {
		if changed = f.text != nil || f.err != nil; changed {
			log.Info("the policy file is gone: everything is allowed", "file", f.path)
		}
		l.rules.Store(new(policy.Rules))
		*f = planFile{path: f.path}
		return changed, nil
	}
	if err != nil {
		changed = f.err == nil || f.err.Error() != err.Error()
		f.text, f.err = nil, err
		return changed, err
	}
	if f.text != nil && bytes.Equal(f.text, text) {
		return false, f.err
	}
	f.text = append([]byte{}, text...) // not nil: it is there
	rules, err := ParsePolicy(f.path, text)
	if f.err = err; err != nil {
		return true, err
	}
	l.rules.Store(rules)
	f.loaded = time.Now()
	log.Info("policy in force", "file", f.path, "rules", rules.Len())
	return true, nil
}

// describe tells a status what is in force.
func (l *plan) describe() *api.PolicyStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := &l.file
	if f.loaded.IsZero() && f.err == nil {
		return nil
	}
	s := &api.PolicyStatus{File: f.path, Rules: l.rules.Load().Len(), Loaded: f.loaded, Blocked: l.blocked.Load(), Direct: l.around.Load()}
	if f.err != nil {
		s.Error = f.err.Error()
		if h := fault.HintOf(f.err); h != "" {
			s.Error += " (" + h + ")"
		}
	}
	return s
}

// Policy tells what policy is in force, nil for none.
func (p *Primary) Policy() *api.PolicyStatus { return p.plan.describe() }
