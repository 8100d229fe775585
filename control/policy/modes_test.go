package policy

import (
	"testing"

	"mpbond/link/wire"
)

func TestModes(t *testing.T) {
	m, err := ParseModes([]string{"dscp:46", "port:22", "port:5000-5100", "host:*.Example.org"}, []string{"port:5060", "host:call.example.org"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		flow Flow
		mode wire.Mode
		rule string
	}{
		{Flow{Dest: "example.net:443"}, wire.Bond, ""},
		{Flow{Dest: "example.net:443", DSCP: 46}, wire.Latency, "dscp:46"},
		{Flow{Dest: "example.net:443", DSCP: 45}, wire.Bond, ""},
		{Flow{Dest: "[2001:db8::1]:22"}, wire.Latency, "port:22"},
		{Flow{Dest: "a:4999"}, wire.Bond, ""},
		{Flow{Dest: "a:5000"}, wire.Latency, "port:5000-5100"},
		{Flow{Dest: "a:5100"}, wire.Latency, "port:5000-5100"},
		{Flow{Dest: "a:5101"}, wire.Bond, ""},
		{Flow{Dest: "WWW.example.ORG.:80"}, wire.Latency, "host:*.Example.org"},
		{Flow{Dest: "example.org:80"}, wire.Bond, ""},
		{Flow{Dest: "call.example.org:80"}, wire.Redundant, "host:call.example.org"},
		{Flow{Dest: "a:5060", DSCP: 46}, wire.Redundant, "port:5060"},
	} {
		if mode, rule := m.Of(c.flow); mode != c.mode || rule != c.rule {
			t.Errorf("%+v: %v by %q, want %v by %q", c.flow, mode, rule, c.mode, c.rule)
		}
	}
	for _, bad := range []string{"", "22", "port:", "port:0", "port:70000", "port:9-8", "dscp:64", "dscp:ef", "host:", "host:[", "app:ssh"} {
		if _, err := ParseModes([]string{bad}, nil); err == nil {
			t.Errorf("rule %q is accepted", bad)
		}
		if _, err := ParseModes(nil, []string{bad}); err == nil {
			t.Errorf("rule %q is accepted for redundant", bad)
		}
	}
}
