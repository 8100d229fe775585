package primary

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"mpbond/api"
	"mpbond/base/config"
	"mpbond/base/fault"
	"mpbond/control/policy"
	"mpbond/core/trace"
)

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

// PolicyFile is a policy file, and what of it is in force. It is read again when
// ReloadFile is called, and written by SetText. Safe for concurrent use.
type PolicyFile struct {
	path   string // "": there is none
	must   bool   // it must exist
	tables bool   // only the tables of devices count
	log    *slog.Logger
	rec    *trace.Recorder         // nil: nobody is told of changes
	force  atomic.Pointer[inForce] // never nil

	mu     sync.Mutex // guards below
	text   []byte     // as it was last read, in force or not; nil: it was not
	loaded time.Time  // when the rules in force were read; zero: none were
	err    error      // why the file as it is now is not in force, or nil
}

// OpenTables reads the policy file of a role that has no rules for apps: of it only
// the tables of devices count, and rules are left to a primary beside it. It need
// not exist, and may come later. An error is about this first reading; see
// PolicyFile.Use. Rec is told of changes, nil is nobody.
func OpenTables(path string, log *slog.Logger, rec *trace.Recorder) (*PolicyFile, error) {
	f := &PolicyFile{path: path, tables: true, log: log, rec: rec}
	f.force.Store(newInForce(new(policy.Rules), nil))
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err := f.read()
	return f, err
}

// Use reads the policy file. Unless it must exist it need not, and may come later. An
// error is about this first reading; afterwards, by ReloadFile, a file that cannot be
// used changes nothing, and the log, an event and the status say why.
func (f *PolicyFile) Use(path string, must bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.path, f.must = path, must
	f.forget()
	_, err := f.read()
	return err
}

// Rules are those in force, with the tables of devices.
func (f *PolicyFile) Rules() *policy.Rules { return f.force.Load().Rules }

// Path is where the file is.
func (f *PolicyFile) Path() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.path
}

// ReloadFile reads the policy file again. If it is what it was, nothing happens,
// and is said only if somebody has asked for it.
func (f *PolicyFile) ReloadFile(asked bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed, err := f.read()
	switch {
	case err != nil && (changed || asked):
		f.log.Error("the policy stays as it was", "err", err, "hint", fault.HintOf(err))
		f.rec.Add(trace.Event{Kind: trace.PolicyRefused, Text: err.Error()})
	case err == nil && !changed && asked:
		f.log.Info("the policy has not changed", "file", f.path)
	}
}

// forget is for a file that was never read. mu must be held.
func (f *PolicyFile) forget() { f.text, f.loaded, f.err = nil, time.Time{}, nil }

// read puts the file in force, or keeps why not; changed tells that its text is
// another one than the last time, or that it cannot be read for another reason. mu
// must be held.
func (f *PolicyFile) read() (changed bool, err error) {
	if f.path == "" {
		return false, nil
	}
	text, err := config.Read(f.path)
	if fault.Is(err, fault.NotFound) && !f.must {
		if changed = f.text != nil || f.err != nil; changed {
			f.log.Info("the policy file is gone: everything is allowed, and nothing is capped", "file", f.path)
			f.rec.Add(trace.Event{Kind: trace.PolicyChanged, Text: f.path, Reason: "the file is gone"})
		}
		f.force.Store(newInForce(new(policy.Rules), nil))
		f.forget()
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
	f.putInForce(rules, text)
	return true, nil
}

// putInForce has rules hold from now on. mu must be held.
func (f *PolicyFile) putInForce(rules *policy.Rules, text []byte) {
	f.text, f.err, f.loaded = nonNil(text), nil, time.Now()
	f.force.Store(newInForce(rules, f.text))
	f.log.Info("policy in force", "file", f.path, "rules", rules.Len(), "devices", len(rules.Devices()))
	if f.tables && (rules.Len() > 0 || rules.Default() == policy.Deny) {
		f.log.Info("rules and default are for a primary: only the [device] tables count here", "file", f.path)
	}
	f.rec.Add(trace.Event{Kind: trace.PolicyChanged, Text: f.path})
}

// nonNil is text, of a file that is there.
func nonNil(text []byte) []byte {
	if text == nil {
		return []byte{}
	}
	return text
}

// Set writes the policy file, and puts it in force. A text that cannot be used changes
// nothing, nor does one that was made from another than the file has now.
func (l *Policy) Set(t api.PolicyText) (api.Policy, error) {
	if err := l.file.write(t); err != nil {
		return api.Policy{}, err
	}
	return l.Full(), nil
}

// SetTables is Policy.Set for a role that has no rules for apps.
func (f *PolicyFile) SetTables(t api.PolicyText) (api.Policy, error) {
	if err := f.write(t); err != nil {
		return api.Policy{}, err
	}
	return f.Tables(), nil
}

func (f *PolicyFile) write(t api.PolicyText) error {
	f.mu.Lock()
	defer f.mu.Unlock()
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
	f.putInForce(rules, []byte(t.Text))
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

// Status returns in short what policy is in force, nil for none.
func (l *Policy) Status() *api.PolicyStatus {
	s := l.file.Status()
	if s != nil {
		s.Blocked, s.Direct = l.blocked.Load(), l.around.Load()
	}
	return s
}

// Status tells in short what is in force, nil for nothing.
func (f *PolicyFile) Status() *api.PolicyStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.loaded.IsZero() && f.err == nil {
		return nil
	}
	s := &api.PolicyStatus{File: f.path, Tables: len(f.Rules().Devices()), Loaded: f.loaded}
	if !f.tables {
		s.Rules = f.Rules().Len()
	}
	if f.err != nil {
		s.Error = f.err.Error()
		if h := fault.HintOf(f.err); h != "" {
			s.Error += " (" + h + ")"
		}
	}
	return s
}
