// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"errors"
	"math"
	"net/netip"
	"strings"
	"testing"
)

func TestAddrOf(t *testing.T) {
	for dest, want := range map[string]string{
		"example.org:53":                "example.org:53",
		"192.0.2.1:1":                   "192.0.2.1:1",
		"[::ffff:192.0.2.1]:1":          "192.0.2.1:1",
		"[2001:db8::1]:443":             "[2001:db8::1]:443",
		"x:0":                           "x:0",
		"":                              "",
		"x":                             "",
		":1":                            "",
		"x:65536":                       "",
		"x:http":                        "",
		"[fe80::1%eth0]:1":              "",
		strings.Repeat("a", 256) + ":1": "",
	} {
		a, err := AddrOf(dest)
		if got := a.String(); want != "" && (err != nil || got != want) || want == "" && err == nil {
			t.Errorf("AddrOf(%q) = %v, %v; want %q", dest, got, err, want)
		}
		if err != nil {
			continue
		}
		b := a.Append(nil)
		for n := range b {
			if _, _, err := CutAddr(b[:n]); !errors.Is(err, ErrMalformed) {
				t.Errorf("%v cut to %d bytes: %v", a, n, err)
			}
		}
		if got, rest, err := CutAddr(append(b, "rest"...)); err != nil || got != a || string(rest) != "rest" {
			t.Errorf("%v was read as %v, %q, %v", a, got, rest, err)
		}
	}
}

func TestAddrIsThatOfSOCKS5(t *testing.T) {
	for want, dest := range map[string]string{
		"\x01\xc0\x00\x02\x01\x00\x35": "192.0.2.1:53",
		"\x03\x01x\x01\x00":            "x:256",
		"\x04 \x01\x0d\xb8" + strings.Repeat("\x00", 11) + "\x01\x01\xbb": "[2001:db8::1]:443",
	} {
		if a, _ := AddrOf(dest); string(a.Append(nil)) != want {
			t.Errorf("%s is written % x, want % x", dest, a.Append(nil), want)
		}
	}
	if _, _, err := CutAddr([]byte{3, 0, 0, 1}); err == nil {
		t.Error("a name without bytes was taken")
	}
}

func TestAddrFromLeavesTheZoneOut(t *testing.T) {
	if a := AddrFrom(netip.MustParseAddrPort("[fe80::1%eth0]:5")); a.String() != "[fe80::1]:5" {
		t.Errorf("%v", a)
	}
}

// TestLargestDatagramFits: what UDP can carry fits a frame, whatever its header.
func TestLargestDatagramFits(t *testing.T) {
	head := Datagram{Flow: MaxSeq, Number: MaxSeq >> 1, Redundant: true, Group: math.MaxUint32}
	for _, dest := range []string{"192.0.2.1:1", "[2001:db8::1]:1"} {
		f := head
		f.Addr, _ = AddrOf(dest)
		f.Bytes = make([]byte, MaxDatagram)
		if n := len(f.AppendPayload(nil)); n > MaxPayload {
			t.Errorf("%d bytes to %s take a payload of %d", MaxDatagram, dest, n)
		}
	}
	// To a name it comes by SOCKS5, in one datagram of IPv4 with the name.
	f := head
	f.Addr = Addr{Name: strings.Repeat("n", MaxHost), Port: 1}
	f.Bytes = make([]byte, 65507-4-MaxHost-3)
	if n := len(f.AppendPayload(nil)); n > MaxPayload {
		t.Errorf("to a name it takes a payload of %d", n)
	}
	f.Addr = Addr{Name: "n", Port: 1}
	f.Bytes = make([]byte, MaxDatagram+1)
	if _, err := ParseDatagram(f.AppendPayload(nil)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a datagram larger than UDP's: %v", err)
	}
}

func TestDatagramHeaderIsWhole(t *testing.T) {
	for _, dest := range []string{"192.0.2.1:1", "[2001:db8::1]:1", "example.org:1"} {
		a, _ := AddrOf(dest)
		b := Datagram{Flow: 300, Number: 1 << 20, Addr: a}.AppendPayload(nil)
		for n := range b {
			if _, err := ParseDatagram(b[:n]); !errors.Is(err, ErrMalformed) {
				t.Errorf("to %s, cut to %d of %d: %v", dest, n, len(b), err)
			}
		}
		f, err := ParseDatagram(append(b, "x"...))
		if err != nil || f.Addr != a || f.Redundant || !bytes.Equal(f.Bytes, []byte("x")) {
			t.Errorf("to %s: %+v, %v", dest, f, err)
		}
	}
}
