// SPDX-License-Identifier: Apache-2.0

package terminal

import (
	"fmt"
	"html"
	"slices"
	"strconv"
	"strings"
)

// Sizes of the picture in pixels.
const (
	cellWidth  = 7.8
	cellHeight = 17
	fontSize   = 13
	baseline   = 13 // of a line, from its top
	margin     = 14
	titleBar   = 28
)

// A theme has the colours of text and background, then the sixteen of the palette. Those for light
// backgrounds are darker.
type theme struct {
	text, back, bar, edge string
	palette               [16]string
}

var light = theme{"#1f2328", "#ffffff", "#f0f2f5", "#c8ced6", [16]string{
	"#24292f", "#c62828", "#19702f", "#7d5a00", "#0a58c2", "#8230c8", "#136f7d", "#57606a",
	"#57606a", "#a40e26", "#1a7f37", "#633c01", "#218bff", "#a475f9", "#3192aa", "#24292f"}}

var dark = theme{"#e6edf3", "#0d1117", "#1b2129", "#3a434e", [16]string{
	"#6e7681", "#ff8b82", "#56d364", "#e3b341", "#79c0ff", "#d2a8ff", "#5fd3e0", "#c9d1d9",
	"#8b949e", "#ffa198", "#7ee787", "#f2cc60", "#a5d6ff", "#e2c5ff", "#8ce5ee", "#ffffff"}}

// styleSheet returns the rules of both themes. The viewer's system chooses one.
func styleSheet() string {
	rules := func(t theme) string {
		var b strings.Builder
		fmt.Fprintf(&b, "text{fill:%s}.back{fill:%s;stroke:%s}.bar{fill:%s}.block{fill:%s}", t.text, t.back, t.edge,
			t.bar, t.text)
		for i, c := range t.palette {
			fmt.Fprintf(&b, ".c%d{fill:%s}", i, c)
		}
		return b.String()
	}
	return fmt.Sprintf("text{font:%dpx ui-monospace,SFMono-Regular,Menlo,Consolas,\"DejaVu Sans Mono\",monospace;"+
		"white-space:pre}.bold{font-weight:bold}.dim{opacity:.65}.italic{font-style:italic}"+
		".underline{text-decoration:underline}.block{shape-rendering:crispEdges}\n%s\n@media (prefers-color-scheme:dark){%s}",
		fontSize, rules(light), rules(dark))
}

// SVG returns a picture of the screen with a title, as tall as the used lines.
func (s *Screen) SVG(title string) []byte {
	rows := max(1, s.countUsedRows())
	width := 2*margin + float64(s.Columns)*cellWidth
	height := titleBar + 2*margin - 4 + rows*cellHeight
	var b strings.Builder
	b.WriteString("<!-- SPDX-License-Identifier: Apache-2.0 -->\n")
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %s %d" width="%s" height="%d" role="img">`,
		formatPixels(width), height, formatPixels(width), height)
	fmt.Fprintf(&b, "\n<title>%s</title>\n<style>%s</style>\n", html.EscapeString(title), styleSheet())
	fmt.Fprintf(&b, "<rect class=\"back\" x=\".5\" y=\".5\" width=\"%s\" height=\"%d\" rx=\"8\"/>\n",
		formatPixels(width-1),
		height-1)
	fmt.Fprintf(&b, "<path class=\"bar\" d=\"M1 %d V8.5 Q1 1 8.5 1 H%s Q%s 1 %s 8.5 V%d Z\"/>\n", titleBar,
		formatPixels(width-8.5), formatPixels(width-1), formatPixels(width-1), titleBar)
	fmt.Fprintf(&b, "<text x=\"%s\" y=\"18\" text-anchor=\"middle\" class=\"dim\">%s</text>\n", formatPixels(width/2),
		html.EscapeString(title))
	for y := range rows {
		s.drawScreenRow(&b, y)
	}
	b.WriteString("</svg>\n")
	return []byte(b.String())
}

// formatPixels formats a coordinate with at most one decimal.
func formatPixels(v float64) string {
	return strconv.FormatFloat(float64(int(v*10+0.5))/10, 'f', -1, 64)
}

func columnPosition(x int) float64 { return margin + float64(x)*cellWidth }

func rowPosition(y int) float64 { return titleBar + margin - 4 + float64(y)*cellHeight }

// drawScreenRow draws a line: backgrounds, block characters, then text.
func (s *Screen) drawScreenRow(b *strings.Builder, y int) {
	line := s.cells[y]
	for x := 0; x < len(line); {
		end := endOfCellRun(line, x, func(a, c Cell) bool { return a.Style.backgroundColor() == c.Style.backgroundColor() })
		if paper := line[x].Style.backgroundColor(); paper != DefaultColor {
			drawRectangle(b, box{columnPosition(x), rowPosition(y), float64(end-x) * cellWidth, cellHeight},
				fillAttribute(paper))
		}
		x = end
	}
	for x := 0; x < len(line); {
		end := endOfCellRun(line, x, func(a, c Cell) bool { return a == c })
		if shape, ok := blockShape(line[x].Rune); ok {
			step := cellWidth
			if shape.width == 1 { // such blocks touch each other
				step, shape.width = float64(end-x)*cellWidth, float64(end-x)
			}
			for at := columnPosition(x); at < columnPosition(end)-0.1; at += step {
				drawRectangle(b, box{at + shape.left*cellWidth, rowPosition(y) + shape.top*cellHeight, shape.width * cellWidth,
					shape.height * cellHeight}, line[x].Style.attributes("block"))
			}
		}
		x = end
	}
	for _, part := range splitTextParts(line) {
		s.drawTextCells(b, y, part[0], part[1])
	}
}

// endOfCellRun returns the end of the cells from x on that are like the one at x.
func endOfCellRun(line []Cell, x int, alike func(a, b Cell) bool) int {
	end := x + 1
	for end < len(line) && alike(line[x], line[end]) {
		end++
	}
	return end
}

// splitTextParts returns the parts of a line, as columns, between two or more blanks. Each part is
// put at its own column, so that tables stay aligned whatever the font.
func splitTextParts(line []Cell) (parts [][2]int) {
	isBlank := func(x int) bool {
		_, isBlock := blockShape(line[x].Rune)
		return line[x].Rune == ' ' && !line[x].Style.Underline || isBlock
	}
	for x := 0; x < len(line); x++ {
		if isBlank(x) {
			continue
		}
		end := x + 1
		for end < len(line) && !(isBlank(end) && (end+1 == len(line) || isBlank(end+1) || line[end].Rune != ' ')) {
			end++
		}
		parts = append(parts, [2]int{x, end})
		x = end
	}
	return parts
}

// drawTextCells draws the cells of a line from a column up to another one.
func (s *Screen) drawTextCells(b *strings.Builder, y, from, to int) {
	line := s.cells[y]
	fmt.Fprintf(b, `<text x="%s" y="%s"`, formatPixels(columnPosition(from)), formatPixels(rowPosition(y)+baseline))
	if to-from > 1 {
		fmt.Fprintf(b, ` textLength="%s"`, formatPixels(float64(to-from)*cellWidth))
	}
	alike := func(a, c Cell) bool { return a.Style.visibleTextStyle() == c.Style.visibleTextStyle() }
	whole := endOfCellRun(line[:to], from, alike) == to
	if whole {
		b.WriteString(line[from].Style.attributes(""))
	}
	b.WriteString(">")
	for x := from; x < to; {
		end := endOfCellRun(line[:to], x, alike)
		var text strings.Builder
		for _, c := range line[x:end] {
			if c.Rune != 0 {
				text.WriteRune(c.Rune)
			}
		}
		if attributes := line[x].Style.attributes(""); !whole && attributes != "" {
			fmt.Fprintf(b, "<tspan%s>%s</tspan>", attributes, html.EscapeString(text.String()))
		} else {
			b.WriteString(html.EscapeString(text.String()))
		}
		x = end
	}
	b.WriteString("</text>\n")
}

// box is a rectangle.
type box struct{ left, top, width, height float64 }

func drawRectangle(b *strings.Builder, r box, attributes string) {
	fmt.Fprintf(b, "<rect x=\"%s\" y=\"%s\" width=\"%s\" height=\"%s\"%s/>\n", formatPixels(r.left), formatPixels(r.top),
		formatPixels(r.width), formatPixels(r.height), attributes)
}

// blockShape returns the part of a cell that a block character fills, in fractions of the cell.
func blockShape(r rune) (shape box, ok bool) {
	switch {
	case r == '▀':
		return box{0, 0, 1, 0.5}, true
	case r >= '▁' && r <= '█':
		part := float64(r-'▁'+1) / 8
		return box{0, 1 - part, 1, part}, true
	case r >= '▉' && r <= '▏':
		return box{0, 0, float64('▐'-r) / 8, 1}, true
	case r == '▐':
		return box{0.5, 0, 0.5, 1}, true
	}
	return box{}, false
}

// backgroundColor returns the colour behind the text.
func (s Style) backgroundColor() Color {
	if !s.Reverse {
		return s.Back
	}
	if s.Text == DefaultColor {
		return reverseBack
	}
	return s.Text
}

// reverseBack marks the colour of plain text as background, and reverseText that of the background
// as text.
const (
	reverseBack Color = -2 - iota
	reverseText
)

// visibleTextStyle returns what of the style shows in text.
func (s Style) visibleTextStyle() Style {
	switch {
	case s.Reverse && s.Back == DefaultColor:
		s.Text = reverseText
	case s.Reverse:
		s.Text = s.Back
	case s.Back != DefaultColor && s.Text == 0: // as it is, since the program chose what is behind it
		s.Text = trueColor
	case s.Back != DefaultColor && s.Text == 15:
		s.Text = trueColor | 0xffffff
	}
	s.Back, s.Reverse = DefaultColor, false
	return s
}

// attributes returns the attributes of an element with this style and a further class.
func (s Style) attributes(class string) string {
	ink := s.visibleTextStyle()
	classes := strings.Fields(class)
	for _, c := range []struct {
		on   bool
		name string
	}{{ink.Bold, "bold"}, {ink.Dim, "dim"}, {ink.Italic, "italic"}, {ink.Underline, "underline"}} {
		if c.on {
			classes = append(classes, c.name)
		}
	}
	color := fillAttribute(ink.Text)
	if name, ok := strings.CutPrefix(color, ` class="`); ok {
		classes, color = append(classes, strings.TrimSuffix(name, `"`)), ""
	}
	slices.Sort(classes)
	if len(classes) > 0 {
		color += fmt.Sprintf(` class="%s"`, strings.Join(classes, " "))
	}
	return color
}

// fillAttribute returns the attribute that paints with a colour.
func fillAttribute(c Color) string {
	switch {
	case c == DefaultColor:
		return ""
	case c == reverseBack:
		return ` class="block"`
	case c == reverseText:
		return ` class="back"`
	case c < 16:
		return fmt.Sprintf(` class="c%d"`, c)
	case c&trueColor != 0:
		return fmt.Sprintf(` style="fill:#%06x"`, int(c&^trueColor))
	case c >= 232:
		v := 8 + 10*int(c-232)
		return fmt.Sprintf(` style="fill:#%02x%02x%02x"`, v, v, v)
	}
	level := func(v int) int {
		if v == 0 {
			return 0
		}
		return 55 + 40*v
	}
	i := int(c - 16)
	return fmt.Sprintf(` style="fill:#%02x%02x%02x"`, level(i/36), level(i/6%6), level(i%6))
}
