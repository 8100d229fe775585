// SPDX-License-Identifier: Apache-2.0

package text

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestPrintable(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"laptop of Zoë, 東京 ❤️ 10 MB", "laptop of Zoë, 東京 ❤️ 10 MB"},
		{"a\x1b[2Jb\nc\u009bd\te\x7f", "a?[2Jb?c?d?e?"},
		{"\u202etxt.exe", "?txt.exe"},                   // reverses the following text
		{"a\u2028b\u2029c\u0085d", "a?b?c?d"},           // ends a line on some terminals
		{"\u2066a\u2069\u200b\ufeff\u00ad", "?a????"},   // isolates, zero width, byte order mark, soft hyphen
		{"\xff\xfe\xc3(", "???("},                       // invalid UTF-8
		{"\U000e0041\ue000\u3164\u2800\u115f", "?????"}, // tags, private use, fillers
		{"\ufffd", "?"},                                      // may stand for anything
		{"a\u00a0b\u3000c", "a\u00a0b\u3000c"},               // spaces
		{strings.Repeat("x", 100), strings.Repeat("x", 100)}, // length is up to the caller
	} {
		if got := Printable(c.in); got != c.want {
			t.Errorf("%+q: %+q, want %+q", c.in, got, c.want)
		}
	}
}

// TestLines checks that line ends stay, and that the text of lines is that of Printable.
func TestLines(t *testing.T) {
	if got := Lines("a\x1b[2Jb\n\tc\u009bd ü\u202e\u2028\r\n"); got != "a?[2Jb\n  c?d ü???\n" {
		t.Errorf("%q", got)
	}
}

func TestShort(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", ""}, {" \tno\u200b ", "?no?"}, {"  ab ", "ab"}, {"abcdefgh", "abcdefgh"}, {"abcdefghi", "abcdefgh…"},
		{"abcdefgü", "abcdefg…"},
	} {
		if got := Short(c.in, 8); got != c.want {
			t.Errorf("%q: %q, want %q", c.in, got, c.want)
		}
	}
}

// TestHidden checks that characters that reorder, hide or control others are never shown.
func TestHidden(t *testing.T) {
	for _, c := range []struct{ from, to rune }{
		{0, 0x1f}, {0x7f, 0x9f}, {0x00ad, 0x00ad}, {0x061c, 0x061c}, {0x200b, 0x200f}, {0x2028, 0x202e},
		{0x2060, 0x206f}, {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0xfffd, 0xfffd}, {0xe0001, 0xe007f},
	} {
		for r := c.from; r <= c.to; r++ {
			if IsPrintable(r) {
				t.Errorf("%U is printable", r)
			}
		}
	}
	for _, r := range "aZ09é東ß €—\u00a0\u0301\ufe0f🙂\u0627\u05d0" { // right-to-left letters are printable
		if !IsPrintable(r) {
			t.Errorf("%U is not printable", r)
		}
	}
}

// FuzzEscapeJSON checks that values stay the same, without control characters for a terminal.
func FuzzEscapeJSON(f *testing.F) {
	for _, s := range []string{"", "plain", "ü\u202e\u009b\x7f\x1b[2J\n", "\U000e0041🙂\u2028\"\\", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		in, err := json.Marshal(map[string]any{"a": []string{s}, "b": 1})
		if err != nil {
			t.Fatal(err)
		}
		out := EscapeJSON(in)
		var want, got any
		if json.Unmarshal(in, &want) != nil || json.Unmarshal(out, &got) != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s became %s", in, out)
		}
		for _, r := range string(out) {
			if !IsPrintable(r) {
				t.Errorf("%q has %U", out, r)
			}
		}
	})
}

// FuzzPrintable checks that any result is one line of UTF-8 without control characters for a
// terminal.
func FuzzPrintable(f *testing.F) {
	f.Add("a\x1b]0;title\a\u202e\u2028\xf0")
	f.Fuzz(func(t *testing.T, s string) {
		got := Printable(s)
		for _, r := range got {
			if unicode.In(r, unicode.C, unicode.Zl, unicode.Zp, unicode.Bidi_Control) || r == utf8.RuneError {
				t.Errorf("%+q: %+q", s, got)
			}
		}
		if Printable(got) != got {
			t.Errorf("%+q: again it is another", s)
		}
	})
}
