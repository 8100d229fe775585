package text

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestPrintable(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"laptop of Zoë, 東京 ❤️ 10 MB", "laptop of Zoë, 東京 ❤️ 10 MB"},
		{"a\x1b[2Jb\nc\u009bd\te\x7f", "a?[2Jb?c?d?e?"},
		{"\u202etxt.exe", "?txt.exe"},                   // the order of what follows
		{"a\u2028b\u2029c\u0085d", "a?b?c?d"},           // lines that some terminals end
		{"\u2066a\u2069\u200b\ufeff\u00ad", "?a????"},   // isolates, no width, byte order, soft hyphen
		{"\xff\xfe\xc3(", "???("},                       // no UTF-8
		{"\U000e0041\ue000\u3164\u2800\u115f", "?????"}, // tags, private use, fillers
		{"\ufffd", "?"},                                      // which may stand for anything
		{"a\u00a0b\u3000c", "a\u00a0b\u3000c"},               // spaces
		{strings.Repeat("x", 100), strings.Repeat("x", 100)}, // lengths are the caller's
	} {
		if got := Printable(c.in); got != c.want {
			t.Errorf("%+q: %+q, want %+q", c.in, got, c.want)
		}
	}
}

// FuzzPrintable: whatever comes, the result is one line of UTF-8 without anything that
// controls a terminal.
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
