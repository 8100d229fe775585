package primary

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"mpbond/api"
	"mpbond/config"
	"mpbond/fault"
	"mpbond/policy"
	"mpbond/trace"
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
// in errors, which are faults that wrap a *config.Error.
func ParsePolicy(name string, text []byte) (*policy.Rules, error) {
	var f policy.File
	if err := config.Parse(name, text, &f); err != nil {
		return nil, err
	}
	rules, err := f.Compile()
	if err == nil {
		return rules, nil
	}
	at := &config.Error{File: name, Err: err}
	var m *policy.Misfit
	if errors.As(err, &m) {
		at.Line, at.Column = config.NewLocate(text).Table(m.Table, m.N, m.Key)
	}
	return nil, fault.New(fault.Config, at, "")
}

// UsePolicy reads the policy file. Unless it must exist it need not, and may come
// later. An error is about this first reading; afterwards, by ReloadPolicy, a file
// that cannot be used changes nothing, and the log, an event and the status say
// why.
func (p *Primary) UsePolicy(path string, must bool) error {
	p.plan.mu.Lock()
	defer p.plan.mu.Unlock()
	p.plan.file = planFile{path: path, must: must}
	_, err := p.readPolicy()
	return err
}

// Rules are those in force.
func (p *Primary) Rules() *policy.Rules { return p.plan.force.Load().Rules }

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
	changed, err := p.readPolicy()
	switch {
	case err != nil && (changed || asked):
		p.log.Error("the policy stays as it was", "err", err, "hint", fault.HintOf(err))
		p.rec.Add(trace.Event{Kind: trace.PolicyRefused, Text: err.Error()})
	case err == nil && !changed && asked:
		p.log.Info("the policy has not changed", "file", p.plan.file.path)
	}
}

// readPolicy puts the file in force, or keeps why not; changed tells that its text
// is another one than the last time, or that it cannot be read for another reason.
// The plan's mu is held.
func (p *Primary) readPolicy() (changed bool, err error) {
	f := &p.plan.file
	if f.path == "" {
		return false, nil
	}
	text, err := config.Read(f.path)
	if fault.Is(err, fault.NotFound) && !f.must {
		if changed = f.text != nil || f.err != nil; changed {
			p.log.Info("the policy file is gone: everything is allowed", "file", f.path)
			p.rec.Add(trace.Event{Kind: trace.PolicyChanged, Text: f.path, Reason: "the file is gone"})
		}
		p.plan.force.Store(newInForce(new(policy.Rules), nil))
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
	rules, err := ParsePolicy(f.path, text)
	if err != nil {
		f.text, f.err = nonNil(text), err
		return true, err
	}
	p.putInForce(rules, text)
	return true, nil
}

// putInForce has rules hold from now on. The plan's mu is held.
func (p *Primary) putInForce(rules *policy.Rules, text []byte) {
	f := &p.plan.file
	f.text, f.err, f.loaded = nonNil(text), nil, time.Now()
	p.plan.force.Store(newInForce(rules, f.text))
	p.log.Info("policy in force", "file", f.path, "rules", rules.Len())
	p.rec.Add(trace.Event{Kind: trace.PolicyChanged, Text: f.path})
}

// nonNil is text, of a file that is there.
func nonNil(text []byte) []byte {
	if text == nil {
		return []byte{}
	}
	return text
}

// SetPolicy writes the policy file, and puts it in force. A text that cannot be
// used changes nothing, nor does one that was made from another than the file
// has now.
func (p *Primary) SetPolicy(t api.PolicyText) (api.Policy, error) {
	if err := p.writePolicy(t); err != nil {
		return api.Policy{}, err
	}
	return p.FullPolicy(), nil
}

func (p *Primary) writePolicy(t api.PolicyText) error {
	p.plan.mu.Lock()
	defer p.plan.mu.Unlock()
	f := &p.plan.file
	if f.path == "" {
		return fault.New(fault.Unsupported, errors.New("this primary has no policy file"), "")
	}
	now, err := config.Read(f.path)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	if t.Version != nil && *t.Version != versionOf(now) {
		return fault.New(fault.Exists, fmt.Errorf("%s has changed meanwhile", f.path), "get it again, and change that")
	}
	rules, err := ParsePolicy(f.path, []byte(t.Text))
	if err != nil {
		return err
	}
	if err := config.Write(f.path, []byte(t.Text)); err != nil {
		return err
	}
	p.putInForce(rules, []byte(t.Text))
	return nil
}

// versionOf names a text, "" for none.
func versionOf(text []byte) string {
	if text == nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:12])
}

// Policy tells in short what policy is in force, nil for none.
func (p *Primary) Policy() *api.PolicyStatus {
	p.plan.mu.Lock()
	defer p.plan.mu.Unlock()
	f := &p.plan.file
	if f.loaded.IsZero() && f.err == nil {
		return nil
	}
	s := &api.PolicyStatus{File: f.path, Rules: p.plan.force.Load().Len(), Loaded: f.loaded,
		Blocked: p.plan.blocked.Load(), Direct: p.plan.around.Load()}
	if f.err != nil {
		s.Error = f.err.Error()
		if h := fault.HintOf(f.err); h != "" {
			s.Error += " (" + h + ")"
		}
	}
	return s
}
