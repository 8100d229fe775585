// SPDX-License-Identifier: Apache-2.0

// Package unit names the quantities of mpbond, so that no bare int means Mbit/s. Every package may
// use it; it imports none of them.
//
// KB and MB are 2^10 and 2^20 bytes; rates are decimal bits per second, as is common in the field.
// Decimal formats sizes for comparison with a provider's bill or a web site.
package unit

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Bytes is an amount of data.
type Bytes int64

// Sizes.
const (
	KB Bytes = 1 << 10
	MB Bytes = 1 << 20
	GB Bytes = 1 << 30
)

// Rate is a throughput in bits per second. Zero means unknown (estimates) or unlimited
// (configuration); the user of a Rate defines which.
type Rate int64

// Rates.
const (
	Kbps Rate = 1e3
	Mbps Rate = 1e6
	Gbps Rate = 1e9
)

// RateOf returns the rate that carries n bytes in d, and 0 if d is not positive.
func RateOf(n Bytes, d time.Duration) Rate {
	if d <= 0 {
		return 0
	}
	return Rate(float64(n) * 8 * float64(time.Second) / float64(d))
}

// Time returns how long n bytes take at rate r: the longest duration at a rate of zero, and never a
// negative one.
func (r Rate) Time(n Bytes) time.Duration {
	if n <= 0 {
		return 0
	}
	if r <= 0 {
		return math.MaxInt64
	}
	s := float64(n) * 8 / float64(r) * float64(time.Second)
	if s >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(s)
}

// Bytes returns how much rate r carries in d, and 0 if d is not positive.
func (r Rate) Bytes(d time.Duration) Bytes {
	if d <= 0 || r <= 0 {
		return 0
	}
	return Bytes(float64(r) / 8 * d.Seconds())
}

// String returns a rate as people read it: "8 Mbit/s", "12.5 kbit/s".
func (r Rate) String() string {
	switch a := max(r, -r); {
	case a >= Gbps:
		return formatShort(float64(r)/1e9) + " Gbit/s"
	case a >= Mbps:
		return formatShort(float64(r)/1e6) + " Mbit/s"
	case a >= Kbps:
		return formatShort(float64(r)/1e3) + " kbit/s"
	}
	return strconv.FormatInt(int64(r), 10) + " bit/s"
}

// String returns a size as people read it: "512 KB", "1.5 MB".
func (b Bytes) String() string {
	switch a := max(b, -b); {
	case a >= GB:
		return formatShort(float64(b)/float64(GB)) + " GB"
	case a >= MB:
		return formatShort(float64(b)/float64(MB)) + " MB"
	case a >= KB:
		return formatShort(float64(b)/float64(KB)) + " KB"
	}
	return strconv.FormatInt(int64(b), 10) + " B"
}

// Decimal returns a size as providers count it, in powers of 1000 and with three digits: "512 kB",
// "1.5 MB".
func (b Bytes) Decimal() string {
	for _, u := range []struct {
		size float64
		name string
	}{{1e12, "TB"}, {1e9, "GB"}, {1e6, "MB"}, {1e3, "kB"}} {
		if f := float64(b); f >= 0.9995*u.size { // also values that round up to 1000 of the next unit
			digits := math.Pow(10, 2-math.Floor(math.Log10(f/u.size)))
			return strconv.FormatFloat(math.Round(f/u.size*digits)/digits, 'f', -1, 64) + " " + u.name
		}
	}
	return fmt.Sprintf("%d B", int64(b))
}

// formatShort formats v with three significant digits and no trailing zeros.
func formatShort(v float64) string {
	prec := 2
	if a := math.Abs(v); a >= 100 {
		prec = 0
	} else if a >= 10 {
		prec = 1
	}
	s := strconv.FormatFloat(v, 'f', prec, 64)
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

// ParseRate parses "8Mbit/s", "8 mbit", "500 kbit/s", "1.5Gbps" or "9600" (bits per second). It
// rejects negative and non-finite values.
func ParseRate(s string) (Rate, error) {
	v, suffix, err := splitNumberUnit(s)
	if err != nil {
		return 0, fmt.Errorf("rate %q: %w (write it like 8Mbit/s)", s, err)
	}
	scale := 0.0
	suffix = strings.TrimSuffix(strings.TrimSuffix(suffix, "/s"), "ps")
	switch suffix {
	case "", "b", "bit":
		scale = 1
	case "k", "kb", "kbit":
		scale = 1e3
	case "m", "mb", "mbit":
		scale = 1e6
	case "g", "gb", "gbit":
		scale = 1e9
	default:
		return 0, fmt.Errorf("rate %q: unknown unit (write it like 8Mbit/s)", s)
	}
	if v*scale >= math.MaxInt64 {
		return 0, fmt.Errorf("rate %q: too large", s)
	}
	return Rate(math.Round(v * scale)), nil
}

// ParseBytes parses "512KB", "10 MB", "1GiB" or "1500". KB, MB and GB are powers of 1024 with or
// without the "i".
func ParseBytes(s string) (Bytes, error) {
	v, suffix, err := splitNumberUnit(s)
	if err != nil {
		return 0, fmt.Errorf("size %q: %w (write it like 512KB)", s, err)
	}
	scale := Bytes(0)
	switch suffix {
	case "", "b":
		scale = 1
	case "k", "kb", "kib":
		scale = KB
	case "m", "mb", "mib":
		scale = MB
	case "g", "gb", "gib":
		scale = GB
	default:
		return 0, fmt.Errorf("size %q: unknown unit (write it like 512KB)", s)
	}
	if v*float64(scale) >= math.MaxInt64 {
		return 0, fmt.Errorf("size %q: too large", s)
	}
	return Bytes(math.Round(v * float64(scale))), nil
}

// splitNumberUnit splits a number and its unit, which it returns in lower case.
func splitNumberUnit(s string) (v float64, suffix string, err error) {
	s = strings.ToLower(strings.TrimSpace(s))
	i := 0
	for i < len(s) && (s[i] >= '0' && s[i] <= '9' || s[i] == '.') {
		i++
	}
	v, err = strconv.ParseFloat(s[:i], 64)
	if err != nil || math.IsInf(v, 0) {
		return 0, "", fmt.Errorf("no number found")
	}
	return v, strings.TrimSpace(s[i:]), nil
}

// UnmarshalText implements encoding.TextUnmarshaler with ParseRate. It rejects a number without a
// unit, except 0.
func (r *Rate) UnmarshalText(t []byte) (err error) {
	*r, err = ParseRate(string(t))
	if _, unit, e := splitNumberUnit(string(t)); err == nil && e == nil && unit == "" && *r != 0 {
		return fmt.Errorf("rate %q: it has no unit (write it like 8Mbit/s)", t)
	}
	return err
}

// UnmarshalText implements encoding.TextUnmarshaler with ParseBytes.
func (b *Bytes) UnmarshalText(t []byte) (err error) { *b, err = ParseBytes(string(t)); return err }

// UnmarshalJSON accepts a number of bits per second, as rates are written in JSON, or a text for
// ParseRate.
func (r *Rate) UnmarshalJSON(j []byte) error {
	if text, ok := unquoteJSON(j); ok {
		return r.UnmarshalText([]byte(text))
	}
	return json.Unmarshal(j, (*int64)(r))
}

// UnmarshalJSON accepts a number of bytes, as sizes are written in JSON, or a text for ParseBytes.
func (b *Bytes) UnmarshalJSON(j []byte) error {
	if text, ok := unquoteJSON(j); ok {
		return b.UnmarshalText([]byte(text))
	}
	return json.Unmarshal(j, (*int64)(b))
}

// unquoteJSON returns the text of a JSON string. ok is false if j is anything else.
func unquoteJSON(j []byte) (s string, ok bool) {
	if len(j) == 0 || j[0] != '"' {
		return "", false
	}
	return s, json.Unmarshal(j, &s) == nil
}
