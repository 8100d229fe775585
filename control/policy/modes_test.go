// SPDX-License-Identifier: Apache-2.0

package policy

import "testing"

// TestSettings: settings are rules like those of a file, redundant ones first.
func TestSettings(t *testing.T) {
	m, err := CompileSettings([]string{"dscp:46", "port:22", "port:5000-5100", "host:*.Example.org"},
		[]string{"port:5060", "host:call.example.org"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		conn Connection
		mode Mode
		rule string
	}{
		{Connection{Dest: "example.net:443"}, ModeUnset, ""},
		{Connection{Dest: "example.net:443", DSCP: 46}, ModeLatency, "dscp:46"},
		{Connection{Dest: "example.net:443", DSCP: 45}, ModeUnset, ""},
		{Connection{Dest: "[2001:db8::1]:22"}, ModeLatency, "port:22"},
		{Connection{Dest: "a:4999"}, ModeUnset, ""},
		{Connection{Dest: "a:5000"}, ModeLatency, "port:5000-5100"},
		{Connection{Dest: "a:5100"}, ModeLatency, "port:5000-5100"},
		{Connection{Dest: "a:5101"}, ModeUnset, ""},
		{Connection{Dest: "WWW.example.ORG.:80"}, ModeLatency, "host:*.Example.org"},
		{Connection{Dest: "example.org:80"}, ModeUnset, ""},
		{Connection{Dest: "call.example.org:80"}, ModeRedundant, "host:call.example.org"},
		{Connection{Dest: "a:5060", DSCP: 46}, ModeRedundant, "port:5060"},
	} {
		if v := m.Decide(c.conn); v.Mode != c.mode || v.Rule != c.rule {
			t.Errorf("%+v: %v by %q, want %v by %q", c.conn, v.Mode, v.Rule, c.mode, c.rule)
		}
	}
	for _, bad := range []string{"", "22", "port:", "port:0", "port:70000", "port:9-8", "dscp:64", "dscp:ef", "host:",
		"host:[", "app:ssh"} {
		if _, err := CompileSettings([]string{bad}, nil); err == nil {
			t.Errorf("rule %q is accepted", bad)
		}
		if _, err := CompileSettings(nil, []string{bad}); err == nil {
			t.Errorf("rule %q is accepted for redundant", bad)
		}
	}
}
