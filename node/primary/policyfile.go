// SPDX-License-Identifier: Apache-2.0

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

// ParsePolicy compiles the text of a policy file. name stands for the file in errors, which are
// faults that wrap a *config.Error.
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
	var m *policy.FileError
	if errors.As(err, &m) {
		at.Line, at.Column = config.NewLocator(text).FindTable(m.Table, m.Index, m.Key)
	}
	return nil, fault.New(fault.Config, at, "")
}

// PolicyFile is a policy file and the rules of it in force. Reload reads it again; Policy.SetText
// and SetTables write it. Safe for concurrent use.
type PolicyFile struct {
	path       string // "": no file
	isRequired bool   // the file must exist
	tablesOnly bool   // only the device tables apply
	log        *slog.Logger
	rec        *trace.Recorder             // nil: no trace
	active     atomic.Pointer[activeRules] // never nil

	mu       sync.Mutex // guards the fields below
	text     []byte     // as last read, in force or not; nil if it was not read
	loadedAt time.Time  // when the rules in force were read; zero for none
	err      error      // why the current file is not in force, or nil
}

// OpenTables reads the policy file of a role without rules for apps: only the device tables apply.
// The file need not exist and may be created later. An error is about this first reading; see
// PolicyFile.Use. rec, if not nil, records changes.
func OpenTables(path string, log *slog.Logger, rec *trace.Recorder) (*PolicyFile, error) {
	f := &PolicyFile{path: path, tablesOnly: true, log: log, rec: rec}
	f.active.Store(newActiveRules(new(policy.Rules), nil))
	f.mu.Lock()
	defer f.mu.Unlock()
	_, err := f.readPolicyFile()
	return f, err
}

// Use reads the policy file. Unless must is set, the file need not exist and may be created later.
// An error is about this first reading. Later, an unusable file changes nothing; the log, an event
// and the status tell why.
func (f *PolicyFile) Use(path string, must bool) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.path, f.isRequired = path, must
	f.forgetPolicyText()
	_, err := f.readPolicyFile()
	return err
}

// Rules returns the rules in force, with the device tables.
func (f *PolicyFile) Rules() *policy.Rules { return f.active.Load().Rules }

// Path returns the path of the file.
func (f *PolicyFile) Path() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.path
}

// Reload reads the policy file again. An unchanged file has no effect, and is logged only if
// requested by the user.
func (f *PolicyFile) Reload(requested bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	changed, err := f.readPolicyFile()
	switch {
	case err != nil && (changed || requested):
		f.log.Error("policy not reloaded", "err", err, "hint", fault.HintOf(err))
		f.rec.Add(trace.Event{Kind: trace.PolicyRefused, Text: err.Error()})
	case err == nil && !changed && requested:
		f.log.Info("policy unchanged", "file", f.path)
	}
}

// forgetPolicyText forgets what was read. mu must be held.
func (f *PolicyFile) forgetPolicyText() { f.text, f.loadedAt, f.err = nil, time.Time{}, nil }

// readPolicyFile reads the file and puts it in force, or stores why it is unusable. changed reports
// that its text differs from the last reading, or that it is unreadable for a new reason. mu must
// be held.
func (f *PolicyFile) readPolicyFile() (changed bool, err error) {
	if f.path == "" {
		return false, nil
	}
	text, err := config.ReadFile(f.path)
	if fault.Is(err, fault.NotFound) && !f.isRequired {
		if changed = f.text != nil || f.err != nil; changed {
			f.log.Info("the policy file is gone: everything is allowed, without caps", "file", f.path)
			f.rec.Add(trace.Event{Kind: trace.PolicyChanged, Text: f.path, Reason: "the file is gone"})
		}
		f.active.Store(newActiveRules(new(policy.Rules), nil))
		f.forgetPolicyText()
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
		f.text, f.err = emptyTextIfNil(text), err
		return true, err
	}
	f.activateRules(rules, text)
	return true, nil
}

// activateRules puts rules in force. mu must be held.
func (f *PolicyFile) activateRules(rules *policy.Rules, text []byte) {
	f.text, f.err, f.loadedAt = emptyTextIfNil(text), nil, time.Now()
	f.active.Store(newActiveRules(rules, f.text))
	f.log.Info("policy in force", "file", f.path, "rules", rules.Len(), "devices", len(rules.Devices()))
	if f.tablesOnly && (rules.Len() > 0 || rules.Default() == policy.Deny) {
		f.log.Info("ignoring rules and default: a helper uses only the [device] tables", "file", f.path)
	}
	f.rec.Add(trace.Event{Kind: trace.PolicyChanged, Text: f.path})
}

// emptyTextIfNil returns text, or an empty slice for nil, which stands for a missing file.
func emptyTextIfNil(text []byte) []byte {
	if text == nil {
		return []byte{}
	}
	return text
}

// SetText writes the policy file and puts it in force. It fails without a change if the text is
// unusable or was made from an older version of the file.
func (p *Policy) SetText(t api.PolicyText) (api.Policy, error) {
	if err := p.file.replacePolicyText(t); err != nil {
		return api.Policy{}, err
	}
	return p.View(), nil
}

// SetTables writes the policy file of a role without rules for apps; see Policy.SetText.
func (f *PolicyFile) SetTables(t api.PolicyText) (api.Policy, error) {
	if err := f.replacePolicyText(t); err != nil {
		return api.Policy{}, err
	}
	return f.Tables(), nil
}

// replacePolicyText replaces the policy file and activates its rules. It changes nothing if the
// text is invalid, or if the file differs from the version that the text was made from.
func (f *PolicyFile) replacePolicyText(t api.PolicyText) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.path == "" {
		return fault.New(fault.Unsupported, errors.New("this primary has no policy file"), "")
	}
	now, err := config.ReadFile(f.path)
	if err != nil && !fault.Is(err, fault.NotFound) {
		return err
	}
	if t.Version != nil && *t.Version != textVersion(now) {
		return fault.New(
			fault.Exists,
			fmt.Errorf("%s has changed meanwhile", f.path),
			"read it again and change that version",
		)
	}
	rules, err := ParsePolicy(f.path, []byte(t.Text))
	if err != nil {
		return err
	}
	if err := config.Write(f.path, []byte(t.Text)); err != nil {
		return err
	}
	f.activateRules(rules, []byte(t.Text))
	return nil
}

// textVersion returns a version string of a text, "" for none.
func textVersion(text []byte) string {
	if text == nil {
		return ""
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:12])
}

// Status summarizes the policy in force; nil if there is none.
func (p *Policy) Status() *api.PolicyStatus {
	s := p.file.Status()
	if s != nil {
		s.Blocked, s.Direct = p.blockedCount.Load(), p.directCount.Load()
	}
	return s
}

// Status summarizes the file in force; nil if there is none.
func (f *PolicyFile) Status() *api.PolicyStatus {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.loadedAt.IsZero() && f.err == nil {
		return nil
	}
	s := &api.PolicyStatus{File: f.path, Tables: len(f.Rules().Devices()), Loaded: f.loadedAt}
	if !f.tablesOnly {
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
