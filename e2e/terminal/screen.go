// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Color is a colour of a cell: DefaultColor, an index of the palette of 256 colours, or 24 bits of
// red, green and blue, marked by trueColor.
type Color int

// DefaultColor is the terminal's own colour of text or background.
const DefaultColor Color = -1

const trueColor = 1 << 24

// Style is the look of a cell.
type Style struct {
	Text, Back                            Color
	Bold, Dim, Italic, Underline, Reverse bool
}

var plainStyle = Style{Text: DefaultColor, Back: DefaultColor}

// Cell is a position of the screen. The zero rune continues a wide character on its left.
type Cell struct {
	Rune  rune
	Style Style
}

var blankCell = Cell{Rune: ' ', Style: plainStyle}

// Screen holds the characters of a terminal of a fixed size. Lines that scroll off its top are
// lost.
type Screen struct {
	Columns, Rows int
	cells         [][]Cell
	x, y          int // cursor; x is Columns after the last column was written
	style         Style
	savedX        int
	savedY        int
	pending       []byte // the start of a sequence or character that is not complete
	answer        string // to requests of the program
	other         [][]Cell
	isOther       bool // the alternate screen is shown; other holds the main one
}

// NewScreen returns an empty screen.
func NewScreen(columns, rows int) *Screen {
	s := &Screen{Columns: columns, Rows: rows, style: plainStyle}
	s.cells = s.blankLines(rows)
	return s
}

func (s *Screen) blankLines(n int) [][]Cell {
	lines := make([][]Cell, n)
	for i := range lines {
		lines[i] = slices.Repeat([]Cell{blankCell}, s.Columns)
	}
	return lines
}

func (s *Screen) cloneScreen() *Screen {
	c := *s
	c.cells = make([][]Cell, len(s.cells))
	for i, line := range s.cells {
		c.cells[i] = slices.Clone(line)
	}
	c.pending, c.other = nil, nil
	return &c
}

// Lines returns the text of all lines without trailing spaces, and without the empty lines at the
// end.
func (s *Screen) Lines() []string {
	lines := make([]string, s.countUsedRows())
	for y := range lines {
		var b strings.Builder
		for _, c := range s.cells[y] {
			if c.Rune != 0 {
				b.WriteRune(c.Rune)
			}
		}
		lines[y] = strings.TrimRight(b.String(), " ")
	}
	return lines
}

// Text returns the text of the screen.
func (s *Screen) Text() string { return strings.Join(s.Lines(), "\n") }

// countUsedRows returns the number of lines up to the last that shows anything.
func (s *Screen) countUsedRows() int {
	n := len(s.cells)
	for n > 0 && !slices.ContainsFunc(s.cells[n-1], func(c Cell) bool { return c != blankCell }) {
		n--
	}
	return n
}

// Prompt writes a line like that of a shell in which the command was typed.
func (s *Screen) Prompt(prompt, command string) {
	s.style = plainStyle
	s.style.Text = 2
	s.Write([]byte(prompt))
	s.style = plainStyle
	s.style.Bold = true
	s.Write([]byte(command))
	s.style = plainStyle
	s.Write([]byte("\r\n"))
}

// Write processes the output of a program.
func (s *Screen) Write(p []byte) {
	p = append(s.pending, p...)
	for len(p) > 0 {
		n := s.processNextToken(p)
		if n == 0 {
			break
		}
		p = p[n:]
	}
	s.pending = slices.Clone(p)
}

// takeAnswer returns what the terminal has to send to the program, once.
func (s *Screen) takeAnswer() string {
	a := s.answer
	s.answer = ""
	return a
}

// processNextToken handles the character or sequence at the start of p and returns its length; 0 if
// more bytes are needed.
func (s *Screen) processNextToken(p []byte) int {
	switch b := p[0]; {
	case b == 0x1b:
		return s.processEscape(p)
	case b == '\r':
		s.x = 0
	case b == '\n', b == '\v', b == '\f':
		s.feedLine()
	case b == '\b':
		s.x = max(0, min(s.x, s.Columns-1)-1)
	case b == '\t':
		s.x = min(s.x/8*8+8, s.Columns-1)
	case b < 0x20, b == 0x7f: // bell, shifts of character sets
	default:
		if !utf8.FullRune(p) {
			return 0
		}
		r, n := utf8.DecodeRune(p)
		s.putRuneAtCursor(r)
		return n
	}
	return 1
}

// putRuneAtCursor writes a character at the cursor. At the end of a line the next one follows.
func (s *Screen) putRuneAtCursor(r rune) {
	width := runeColumns(r)
	if width == 0 {
		return
	}
	if s.x+width > s.Columns {
		s.x = 0
		s.feedLine()
	}
	s.cells[s.y][s.x] = Cell{r, s.style}
	if width == 2 {
		s.cells[s.y][s.x+1] = Cell{0, s.style}
	}
	s.x += width
}

// runeColumns returns the number of columns of a character: 0 of combining marks, 2 of those of
// East Asia and of emoji.
func runeColumns(r rune) int {
	switch {
	case r >= 0x300 && r <= 0x36f, r >= 0x200b && r <= 0x200f, r >= 0xfe00 && r <= 0xfe0f:
		return 0
	case r >= 0x1100 && r <= 0x115f, r >= 0x2e80 && r <= 0xa4cf, r >= 0xac00 && r <= 0xd7a3,
		r >= 0xf900 && r <= 0xfaff, r >= 0xfe30 && r <= 0xfe6f, r >= 0xff00 && r <= 0xff60,
		r >= 0x1f300 && r <= 0x1faff:
		return 2
	}
	return 1
}

// feedLine moves the cursor down, and scrolls at the end of the screen.
func (s *Screen) feedLine() {
	if s.y++; s.y < s.Rows {
		return
	}
	s.y = s.Rows - 1
	s.cells = append(s.cells[1:], s.blankLines(1)...)
}

// processEscape handles a sequence that begins with ESC.
func (s *Screen) processEscape(p []byte) int {
	if len(p) < 2 {
		return 0
	}
	switch p[1] {
	case '[':
		for i := 2; i < len(p); i++ {
			if p[i] >= 0x40 && p[i] <= 0x7e {
				s.runSequence(string(p[2:i]), p[i])
				return i + 1
			}
		}
		return 0
	case ']', 'P', '_', '^', 'X': // strings for the terminal, such as a title, up to BEL or ESC \
		for i := 2; i < len(p); i++ {
			if p[i] == 0x07 {
				return i + 1
			}
			if p[i] == 0x1b && i+1 < len(p) {
				return i + 2
			}
		}
		return 0
	case '(', ')', '*', '+', '#', '%', ' ': // character sets
		if len(p) < 3 {
			return 0
		}
		return 3
	case '7':
		s.savedX, s.savedY = s.x, s.y
	case '8':
		s.x, s.y = s.savedX, s.savedY
	case 'M':
		s.y = max(0, s.y-1)
	case 'c':
		*s = *NewScreen(s.Columns, s.Rows)
	}
	return 2
}

// runSequence executes a control sequence with its parameters and final byte.
func (s *Screen) runSequence(text string, final byte) {
	private := strings.HasPrefix(text, "?")
	var args []int
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ';' || r == ':' || r == '?' }) {
		n, err := strconv.Atoi(word)
		if err != nil {
			return // of another kind of terminal
		}
		args = append(args, n)
	}
	arg := func(i, missing int) int {
		if i < len(args) && args[i] > 0 {
			return args[i]
		}
		return missing
	}
	switch final {
	case 'A':
		s.y = max(0, s.y-arg(0, 1))
	case 'B':
		s.y = min(s.Rows-1, s.y+arg(0, 1))
	case 'C':
		s.x = min(s.Columns-1, s.x+arg(0, 1))
	case 'D':
		s.x = max(0, min(s.x, s.Columns-1)-arg(0, 1))
	case 'G':
		s.x = min(s.Columns, arg(0, 1)) - 1
	case 'd':
		s.y = min(s.Rows, arg(0, 1)) - 1
	case 'H', 'f':
		s.y, s.x = min(s.Rows, arg(0, 1))-1, min(s.Columns, arg(1, 1))-1
	case 'J':
		s.eraseScreen(arg(0, 0))
	case 'K':
		s.erasePartOfLine(arg(0, 0))
	case 'P', 'X':
		s.deleteCells(arg(0, 1), final == 'P')
	case 'm':
		s.selectRendition(args)
	case 'n':
		if arg(0, 0) == 6 {
			s.answer += fmt.Sprintf("\x1b[%d;%dR", s.y+1, s.x+1)
		}
	case 'c':
		s.answer += "\x1b[?62c"
	case 'h', 'l':
		if private && arg(0, 0) == 1049 {
			s.switchScreen(final == 'h')
		}
	}
}

// switchScreen shows the alternate screen, or the main one.
func (s *Screen) switchScreen(other bool) {
	if other == s.isOther {
		return
	}
	s.isOther = other
	if other {
		s.other, s.cells = s.cells, s.blankLines(s.Rows)
		s.savedX, s.savedY = s.x, s.y
		return
	}
	s.cells, s.other = s.other, nil
	s.x, s.y = s.savedX, s.savedY
}

// eraseScreen erases from the cursor (0), up to it (1), or everything (2, 3).
func (s *Screen) eraseScreen(part int) {
	for y := range s.cells {
		switch {
		case part >= 2, part == 0 && y > s.y, part == 1 && y < s.y:
			s.cells[y] = s.blankLines(1)[0]
		}
	}
	if part < 2 {
		s.erasePartOfLine(part)
	}
}

// erasePartOfLine erases from the cursor (0), up to it (1), or the whole line (2).
func (s *Screen) erasePartOfLine(part int) {
	from, to := 0, s.Columns
	if part == 0 {
		from = min(s.x, s.Columns)
	}
	if part == 1 {
		to = min(s.x+1, s.Columns)
	}
	for x := from; x < to; x++ {
		s.cells[s.y][x] = Cell{' ', Style{Text: DefaultColor, Back: s.style.Back}}
	}
}

// deleteCells erases n cells from the cursor on; shift moves the rest of the line there.
func (s *Screen) deleteCells(n int, shift bool) {
	line, from := s.cells[s.y], min(s.x, s.Columns-1)
	n = min(n, s.Columns-from)
	if shift {
		copy(line[from:], line[from+n:])
		from = s.Columns - n
	}
	for x := from; x < from+n; x++ {
		line[x] = blankCell
	}
}

// selectRendition executes "select graphic rendition".
func (s *Screen) selectRendition(args []int) {
	if len(args) == 0 {
		args = []int{0}
	}
	for i := 0; i < len(args); i++ {
		switch n := args[i]; {
		case n == 0:
			s.style = plainStyle
		case n == 1:
			s.style.Bold = true
		case n == 2:
			s.style.Dim = true
		case n == 3:
			s.style.Italic = true
		case n == 4:
			s.style.Underline = true
		case n == 7:
			s.style.Reverse = true
		case n == 22:
			s.style.Bold, s.style.Dim = false, false
		case n == 23:
			s.style.Italic = false
		case n == 24:
			s.style.Underline = false
		case n == 27:
			s.style.Reverse = false
		case n >= 30 && n <= 37:
			s.style.Text = Color(n - 30)
		case n >= 90 && n <= 97:
			s.style.Text = Color(n - 90 + 8)
		case n >= 40 && n <= 47:
			s.style.Back = Color(n - 40)
		case n >= 100 && n <= 107:
			s.style.Back = Color(n - 100 + 8)
		case n == 39:
			s.style.Text = DefaultColor
		case n == 49:
			s.style.Back = DefaultColor
		case n == 38 || n == 48:
			c, used := parseColor(args[i+1:])
			i += used
			if n == 38 {
				s.style.Text = c
			} else {
				s.style.Back = c
			}
		}
	}
}

// parseColor reads a colour of 256 or of 24 bits, and returns how many arguments it takes.
func parseColor(args []int) (c Color, used int) {
	switch {
	case len(args) >= 2 && args[0] == 5:
		return Color(args[1] & 0xff), 2
	case len(args) >= 4 && args[0] == 2:
		return Color(trueColor | args[1]&0xff<<16 | args[2]&0xff<<8 | args[3]&0xff), 4
	}
	return DefaultColor, len(args)
}
