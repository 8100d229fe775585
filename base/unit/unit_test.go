// SPDX-License-Identifier: Apache-2.0

package unit

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
)

func TestParse(t *testing.T) {
	for _, c := range []struct {
		in   string
		want Rate
	}{{"8Mbit/s", 8e6}, {"8 mbit", 8e6}, {"1.5Gbps", 15e8}, {"500 kbit/s", 5e5}, {"9600", 9600}, {"0", 0}} {
		if got, err := ParseRate(c.in); err != nil || got != c.want {
			t.Errorf("ParseRate(%q) = %v, %v; want %v", c.in, got, err, c.want)
		}
	}
	for _, c := range []struct {
		in   string
		want Bytes
	}{{"512KB", 512 << 10}, {"10 MB", 10 << 20}, {"1GiB", 1 << 30}, {"1500", 1500}, {"0.5k", 512}} {
		if got, err := ParseBytes(c.in); err != nil || got != c.want {
			t.Errorf("ParseBytes(%q) = %v, %v; want %v", c.in, got, err, c.want)
		}
	}
	for _, bad := range []string{"", "fast", "-1Mbit/s", "8 furlongs", "1e99Mbit/s", "..", "99999999999999Gbit/s",
		"NaN"} {
		if v, err := ParseRate(bad); err == nil {
			t.Errorf("ParseRate(%q) = %v, want an error", bad, v)
		}
		if v, err := ParseBytes(bad); err == nil {
			t.Errorf("ParseBytes(%q) = %v, want an error", bad, v)
		}
	}
	var r Rate
	for _, bare := range []string{"8", "9600", "1.5"} {
		if err := r.UnmarshalText([]byte(bare)); err == nil || !strings.Contains(err.Error(), "no unit") {
			t.Errorf("%q is %v, %v, want that it has no unit", bare, r, err)
		}
	}
	for text, want := range map[string]Rate{"0": 0, "8Mbit/s": 8e6} {
		if err := r.UnmarshalText([]byte(text)); err != nil || r != want {
			t.Errorf("%q is %v, %v", text, r, err)
		}
	}
}

func TestRateArithmetic(t *testing.T) {
	if got := (8 * Mbps).Time(1000); got != time.Millisecond {
		t.Errorf("1000 bytes at 8 Mbit/s take %v, want 1ms", got)
	}
	if got := (8 * Mbps).Bytes(time.Second); got != 1e6 {
		t.Errorf("8 Mbit/s for 1 s is %d bytes, want 1e6", got)
	}
	if got := RateOf(1000, time.Millisecond); got != 8*Mbps {
		t.Errorf("RateOf = %v", got)
	}
	if Rate(0).Time(1) != math.MaxInt64 || Rate(1).Time(math.MaxInt64) != math.MaxInt64 {
		t.Error("a rate of zero, or an overflow, must take for ever")
	}
	if Rate(5).Time(-1) != 0 || Rate(5).Bytes(-1) != 0 || RateOf(5, 0) != 0 {
		t.Error("negative amounts must count as none")
	}
}

func TestString(t *testing.T) {
	for got, want := range map[string]string{
		(8 * Mbps).String(): "8 Mbit/s", Rate(12500).String(): "12.5 kbit/s", Rate(2500 * 1e6).String(): "2.5 Gbit/s",
		Bytes(0).String(): "0 B", (512 * KB).String(): "512 KB", (3 * MB / 2).String(): "1.5 MB",
		Bytes(700).String():     "700 B",
		Joules(0.0123).String(): "12.3 mJ", Joules(1.9).String(): "1.9 J", Joules(5400).String(): "5.4 kJ",
		Joules(0).String(): "0 J",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestJSON(t *testing.T) {
	type both struct {
		R Rate
		B Bytes
	}
	want := both{8 * Mbps, 512 * KB}
	written, err := json.Marshal(want)
	if err != nil || string(written) != `{"R":8000000,"B":524288}` {
		t.Errorf("written as %s, %v", written, err)
	}
	for _, in := range []string{string(written), `{"R":"8Mbit/s","B":"512KB"}`} {
		var got both
		if err := json.Unmarshal([]byte(in), &got); err != nil || got != want {
			t.Errorf("%s: %+v, %v", in, got, err)
		}
	}
	for _, bad := range []string{`{"R":"fast"}`, `{"B":1.5}`, `{"R":true}`, `{"B":[]}`, `{"B":"-1"}`} {
		var got both
		if err := json.Unmarshal([]byte(bad), &got); err == nil {
			t.Errorf("%s passed as %+v", bad, got)
		}
	}
}
