// Package text makes text of other devices, of web servers and of strangers fit to be
// shown. It stands before every terminal, page and metric, and imports nothing of ours:
// there is one rule for all of them.
package text

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable returns s on one line, with a question mark for each character that could
// move a terminal's cursor, begin an escape sequence, end the line, or change the order
// or the look of what follows: what is no letter, mark, number, punctuation, symbol or
// space (Unicode's Cc, Cf, Zl, Zp, Co, Cs and Cn), and bytes that are no UTF-8. The
// question mark leaves the places of other characters as they were.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsGraphic(r) || r == utf8.RuneError || isInvisible(r) {
			return '?'
		}
		return r
	}, s)
}

// isInvisible reports letters and marks that show nothing (Default_Ignorable_Code_Point
// of the Unicode standard, and the blank Braille pattern), but for variation selectors,
// which choose how the character before them looks.
func isInvisible(r rune) bool {
	return r == 0x2800 || unicode.Is(unicode.Other_Default_Ignorable_Code_Point, r)
}
