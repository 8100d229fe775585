// SPDX-License-Identifier: Apache-2.0

// Package text makes text from other devices, web servers and unknown callers safe to show. Every
// terminal, page and metric uses it, so that there is one rule for all. It imports no package of
// this module.
package text

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// IsPrintable reports whether r can be shown as it is: a visible letter, mark, number, punctuation,
// symbol or space. Other characters could move a terminal's cursor, begin an escape sequence, end
// the line, hide, or change the order or look of what follows (Unicode's Cc, Cf, Zl, Zp, Co, Cs and
// Cn), or stand for invalid UTF-8.
func IsPrintable(r rune) bool {
	return unicode.IsGraphic(r) && r != utf8.RuneError && !isInvisible(r)
}

// isInvisible reports whether r is a letter or mark that shows nothing
// (Default_Ignorable_Code_Point of the Unicode standard, and the blank Braille pattern). Variation
// selectors, which choose the look of the character before them, do not count.
func isInvisible(r rune) bool {
	return r == 0x2800 || unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r)
}

// Printable returns s on one line, with a question mark for each unprintable character and each
// invalid UTF-8 byte. Other characters keep their positions.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !IsPrintable(r) {
			return '?'
		}
		return r
	}, s)
}

// Lines returns s as Printable does, but keeps line ends, and replaces each tab by two spaces.
func Lines(s string) string {
	lines := strings.Split(strings.ReplaceAll(s, "\t", "  "), "\n")
	for i, l := range lines {
		lines[i] = Printable(l)
	}
	return strings.Join(lines, "\n")
}

// Short returns s as Printable does, without surrounding spaces, truncated to maxBytes with an
// ellipsis.
func Short(s string, maxBytes int) string {
	s = Printable(s)
	if len(s) > maxBytes {
		s = strings.ToValidUTF8(s[:maxBytes], "") + "…"
	}
	return strings.TrimSpace(s)
}

// EscapeJSON returns a JSON text with all unprintable characters escaped; the values are the same.
// It may return b itself.
func EscapeJSON(b []byte) []byte {
	plain := func(r rune) bool { return r < 0x7f || IsPrintable(r) }
	if bytes.IndexFunc(b, func(r rune) bool { return !plain(r) }) < 0 {
		return b
	}
	var out []byte
	for _, r := range string(b) { // JSON has non-ASCII only in strings
		if plain(r) {
			out = utf8.AppendRune(out, r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			out = fmt.Appendf(out, `\u%04x`, unit)
		}
	}
	return out
}
