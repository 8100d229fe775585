// SPDX-License-Identifier: Apache-2.0

package config

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mpbond/base/fault"
	"mpbond/base/unit"
)

type limits struct {
	Memory unit.Bytes
	Rate   unit.Rate `toml:"max_rate"`
}

type base struct{ Listen string }

type sample struct {
	base   // embedded and unexported: the decoder does not see it
	Name   string
	Count  int
	Rates  []unit.Rate
	Limits limits
	Allow  []netip.Prefix
	Peer   []struct {
		Address string
		Speed   *unit.Rate
	}
	Per map[string]limits
}

func TestParse(t *testing.T) {
	s := sample{Name: "kept"}
	err := Parse("a.toml",
		[]byte("[limits]\nmemory='4MB'\nmax_rate='9600bit/s'\n[[peer]]\naddress='x'\n[per.z]\nmemory=5\n"), &s)
	if err != nil {
		t.Fatal(err)
	}
	if s.Name != "kept" || s.Limits != (limits{4 * unit.MB, 9600}) || s.Peer[0].Address != "x" ||
		s.Per["z"].Memory != 5 {
		t.Errorf("%+v", s)
	}
}

func TestErrorsNameLineKeyAndNearest(t *testing.T) {
	for _, c := range []struct{ in, text, hint string }{
		{"nmae='x'", `a.toml:1: unknown setting "nmae"`, `did you mean "name"?`},
		{"\n[limits]\nmemry=1", `a.toml:3: unknown setting "limits.memry"`, `did you mean "memory"?`},
		{"[[peer]]\naddres='x'", `a.toml:2: unknown setting "peer.addres"`, `did you mean "address"?`},
		{"[per.home]\nmax-rate=1", `a.toml:2: unknown setting "per.home.max-rate"`, `did you mean "max_rate"?`},
		{"[limit]\nmemory=1", `unknown setting "limit`, `did you mean "limits"?`},
		{"zzzzzzzzz=1", `a.toml:1: unknown setting "zzzzzzzzz"`, "valid settings: name, limits, peer, per"},
		{"name=1", "a.toml:1: name", tomlHint},
		{"\nname=", "a.toml:2", tomlHint},
		{"\n[limits]\nmax_rate='fast'", "a.toml:3: limits.max_rate", tomlHint},
	} {
		var s sample
		err := Parse("a.toml", []byte(c.in), &s)
		if !fault.Is(err, fault.Config) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%q: error %v, want %q in it", c.in, err, c.text)
		}
		if h := fault.HintOf(err); h != c.hint &&
			!(strings.HasPrefix(c.hint, "valid settings") && strings.HasPrefix(h, "valid settings")) {
			t.Errorf("%q: hint %q, want %q", c.in, h, c.hint)
		}
	}
}

// TestNumbers checks that a number without a unit is rejected for text settings, wherever it
// stands, and accepted for bytes and where no unit is needed.
func TestNumbers(t *testing.T) {
	for _, c := range []struct{ in, text string }{
		{"\n[limits]\nmax_rate=9600",
			"a.toml:3: limits.max_rate: rate \"9600\": it has no unit (write it like 8Mbit/s)"},
		{"limits.max_rate = 8", "a.toml:1: limits.max_rate: "},
		{"name='x'\nlimits = {memory=1, max_rate = 8}", "a.toml:2: limits.max_rate: "},
		{"[per.home]\nmax_rate=-1", "a.toml:2: per.home.max_rate: "},
		{"[per]\nhome.max_rate=1", "a.toml:2: per.home.max_rate: "},
		{"rates=['8Mbit/s',\n8]", "a.toml:2: rates: "},
		{"[[peer]]\naddress='x'\n[[peer]]\nspeed=5", "a.toml:4: peer.speed: "},
		{"\nallow=[60]", `a.toml:2: allow: "60" is not an address prefix such as`},
		{"\nallow=['10.0.0.1']", `a.toml:2: allow: "10.0.0.1" is not an address prefix such as`},
	} {
		var s sample
		if err := Parse("a.toml", []byte(c.in), &s); !fault.Is(err, fault.Config) ||
			!strings.Contains(err.Error(), c.text) || fault.HintOf(err) == "" {
			t.Errorf("%q: error %v, want %q in it", c.in, err, c.text)
		}
	}
	var s sample
	if err := Parse("a.toml", []byte("count=7\n[limits]\nmemory=512\nmax_rate=0"), &s); err != nil ||
		s.Limits.Memory != 512 || s.Count != 7 {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	var s sample
	if err := Load(filepath.Join(dir, "none.toml"), &s); !fault.Is(err, fault.NotFound) {
		t.Errorf("missing file: %v", err)
	}
	path := filepath.Join(dir, "c.toml")
	if err := os.WriteFile(path, make([]byte, maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Load(path, &s); !fault.Is(err, fault.Limit) {
		t.Errorf("oversize file: %v", err)
	}
	if err := os.WriteFile(path, []byte("name='x'"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Load(path, &s); err != nil || s.Name != "x" {
		t.Errorf("%+v, %v", s, err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("name='x'\n[limits]\nmemory='1KB'")
	f.Add("[[peer]]\naddres=1")
	f.Add("[per.a]\nx=1")
	f.Fuzz(func(t *testing.T, in string) {
		var s sample
		if err := Parse("f", []byte(in), &s); err != nil && fault.KindOf(err) != fault.Config {
			t.Errorf("kind %q: %v", fault.KindOf(err), err)
		}
	})
}
