// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"strings"
	"testing"

	"mpbond/base/fault"
)

func TestRFCOMMAddresses(t *testing.T) {
	for s, want := range map[string]string{
		"00:1a:7D:da:71:13/5":           "rfcomm://00:1A:7D:DA:71:13/5",
		"rfcomm://AA:BB:CC:DD:EE:FF/30": "rfcomm://AA:BB:CC:DD:EE:FF/30",
	} {
		if a, err := parseRFCOMM(s, false); err != nil || a.String() != want {
			t.Errorf("%s: %v, %v", s, a, err)
		}
	}
	for _, s := range []string{"", "5", "AA:BB:CC:DD:EE:FF", "AA:BB:CC:DD:EE:FF/", "AA:BB:CC:DD:EE:FF/0",
		"AA:BB:CC:DD:EE:FF/31",
		"AA:BB:CC:DD:EE/5", "AA:BB:CC:DD:EE:F/5", "AA:BB:CC:DD:EE:GG/5", "192.0.2.1:7602"} {
		if a, err := parseRFCOMM(s, false); !fault.Is(err, fault.Config) || fault.HintOf(err) == "" {
			t.Errorf("%q: %v, %v", s, a, err)
		}
	}
	if a, err := parseRFCOMM("7", true); err != nil || a.String() != "rfcomm://7" {
		t.Errorf("a channel alone: %v, %v", a, err)
	}
}

func TestAny(t *testing.T) {
	m := &Memory{}
	a := Any{m, TCP{}}
	for addr, network := range map[string]string{"here": "memory", "tcp://127.0.0.1:0": "tcp",
		"memory://there": "memory"} {
		l, err := a.Listen(t.Context(), addr)
		if err != nil {
			t.Fatal(err)
		}
		if got := l.Addr().Network(); got != network {
			t.Errorf("%s is %s", addr, got)
		}
		l.Close()
	}
	if _, err := a.Dial(t.Context(), "smoke://signals"); !fault.Is(err, fault.Config) ||
		!strings.Contains(fault.HintOf(err), "tcp://") {
		t.Errorf("%v", err)
	}
}
