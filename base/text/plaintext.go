// Package text makes text of other devices, of web servers and of strangers fit to be
// shown. It stands before every terminal, page and metric, and imports nothing of ours:
// there is one rule for all of them.
package text

import (
	"bytes"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// IsPrintable reports whether r can be shown as it is: a letter, mark, number,
// punctuation, symbol or space that shows. Others could move a terminal's cursor, begin
// an escape sequence, end the line, hide, or change the order or the look of what follows
// (Unicode's Cc, Cf, Zl, Zp, Co, Cs and Cn), or stand for bytes that are no UTF-8.
func IsPrintable(r rune) bool {
	return unicode.IsGraphic(r) && r != utf8.RuneError && !isInvisible(r)
}

// isInvisible reports letters and marks that show nothing (Default_Ignorable_Code_Point
// of the Unicode standard, and the blank Braille pattern), but for variation selectors,
// which choose how the character before them looks.
func isInvisible(r rune) bool {
	return r == 0x2800 || unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r)
}

// Printable returns s on one line, with a question mark for each character that is not
// printable and each byte that is no UTF-8. The question mark leaves the places of other
// characters as they were.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !IsPrintable(r) {
			return '?'
		}
		return r
	}, s)
}

// Lines returns s as Printable does, but keeps the ends of its lines, and two spaces for
// each tab.
func Lines(s string) string {
	lines := strings.Split(strings.ReplaceAll(s, "\t", "  "), "\n")
	for i, l := range lines {
		lines[i] = Printable(l)
	}
	return strings.Join(lines, "\n")
}

// Short returns s as Printable does, without spaces around it, and with an ellipsis for
// what is beyond most bytes.
func Short(s string, most int) string {
	s = Printable(s)
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return strings.TrimSpace(s)
}

// EscapeJSON returns a JSON text in which all characters that are not printable are
// escapes; the values are the same. It may return b itself.
func EscapeJSON(b []byte) []byte {
	plain := func(r rune) bool { return r < 0x7f || IsPrintable(r) }
	if bytes.IndexFunc(b, func(r rune) bool { return !plain(r) }) < 0 {
		return b
	}
	var out []byte
	for _, r := range string(b) { // beyond ASCII there are only strings
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
