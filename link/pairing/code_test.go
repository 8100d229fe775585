// SPDX-License-Identifier: Apache-2.0

package pairing

import (
	"strings"
	"testing"

	"mpbond/base/fault"
)

func TestCodes(t *testing.T) {
	for in, want := range map[string]string{
		"K7QF-3M2A":                        "K7QF-3M2A",
		" k7qf 3m2a\n":                     "K7QF-3M2A",
		"oilO-3m2a":                        "0110-3M2A",
		"K7QF3M2A@vps.example.org:7700":    "K7QF-3M2A@vps.example.org:7700",
		"K7QF3M2A@vps.example.org":         "K7QF-3M2A@vps.example.org:7600,vps.example.org:7603",
		"K7QF3M2A@10.0.0.1:1,h:2":          "K7QF-3M2A@10.0.0.1:1,h:2",
		"K7QF3M2A@2001:db8::1":             "K7QF-3M2A@[2001:db8::1]:7600,[2001:db8::1]:7603",
		"K7QF3M2A@[2001:db8::1]":           "K7QF-3M2A@[2001:db8::1]:7600,[2001:db8::1]:7603",
		"mpbond:K7QF-3M2A@[2001:db8::1]:1": "K7QF-3M2A@[2001:db8::1]:1",
	} {
		if c, err := ParseCode(in); err != nil || c.String() != want {
			t.Errorf("%q: %v, %v; want %s", in, c, err, want)
		}
	}
	for in, text := range map[string]string{
		"": "0 characters", "K7QF": "4 characters", "K7QF-3M2AX": "9 characters", "K7QF-3M2U": "'U'",
		"K7QF-3M2A@": "no address", "K7QF-3M2A@a:1,": "not an address", "K7QF-3M2A@1,2,3,4,5": "more than 8",
		"K7QF-3M2A@a b": "not an address", "K7QF-3M2A@a@b": "not an address", "日本": "cannot contain",
		"K7QF-3M2A@" + strings.Repeat("x", 300): "not an address",
	} {
		if _, err := ParseCode(in); !fault.Is(err, fault.Usage) || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v, want %q", in, err, text)
		}
	}
	seen := map[string]bool{}
	for range 1000 {
		s := NewSecret()
		c, err := ParseCode(Code{Secret: s, Addrs: []string{"h:1", "[::1]:2"}}.QR())
		if err != nil || c.Secret != s || seen[s] {
			t.Fatalf("%s: %v, %v", s, c, err)
		}
		seen[s] = true
	}
}

func FuzzParseCode(f *testing.F) {
	f.Add("K7QF-3M2A@[2001:db8::1]:7600")
	f.Add("mpbond:oilO 3m2a")
	f.Add("00000000@0]0")
	f.Fuzz(func(t *testing.T, s string) {
		c, err := ParseCode(s)
		if err != nil {
			return
		}
		if again, err := ParseCode(c.String()); err != nil || again.String() != c.String() {
			t.Errorf("%q became %v and then %v, %v", s, c, again, err)
		}
	})
}
