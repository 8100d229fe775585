// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"cmp"
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"
)

// Table is a table for people, on screens and in documents alike. Each row has as many cells as the
// head. Empty columns are omitted.
type Table struct {
	Title string     `json:"title,omitempty"`
	Head  []string   `json:"head"`
	Rows  [][]string `json:"rows"`
	// linked says that cells of the first column link to sections of the document.
	linked bool
}

// Add adds a row.
func (t *Table) Add(cells ...string) { t.Rows = append(t.Rows, cells) }

// shownColumns returns the columns that are not empty.
func (t Table) shownColumns() (keep []int) {
	for i := range t.Head {
		if slices.ContainsFunc(t.Rows, func(r []string) bool { return r[i] != "" }) {
			keep = append(keep, i)
		}
	}
	return keep
}

// Print prints the table after an empty line; nothing without rows.
func (t Table) Print(w io.Writer) error { return t.PrintWithin(w, math.MaxInt) }

// PrintWithin is Print for a screen of that width. Columns that do not fit follow in a further
// block, which begins with the first column again.
func (t Table) PrintWithin(w io.Writer, width int) error {
	if len(t.Rows) == 0 {
		return nil
	}
	for n, columns := range t.splitColumns(width) {
		fmt.Fprintln(w)
		if n == 0 && t.Title != "" {
			fmt.Fprintln(w, t.Title)
		}
		tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
		for _, row := range append([][]string{t.Head}, t.Rows...) {
			for _, i := range columns {
				fmt.Fprintf(tw, "%s\t", cmp.Or(row[i], "-"))
			}
			fmt.Fprintln(tw)
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	return nil
}

// splitColumns returns the shown columns in blocks of at most that width, as far as possible. Each
// block begins with the first column.
func (t Table) splitColumns(width int) (blocks [][]int) {
	all := t.shownColumns()
	used := 0
	for _, i := range all {
		wide := t.columnCharWidth(i)
		last := len(blocks) - 1
		if last < 0 {
			blocks, used = [][]int{{i}}, wide
			continue
		}
		const gap = 2 // lines end in one too
		if used+gap+wide+gap > width && len(blocks[last]) > 1 {
			used = t.columnCharWidth(all[0])
			blocks, last = append(blocks, []int{all[0]}), last+1
		}
		blocks[last] = append(blocks[last], i)
		used += gap + wide
	}
	return blocks
}

// columnCharWidth returns the width of a column in characters.
func (t Table) columnCharWidth(i int) (width int) {
	for _, row := range append([][]string{t.Head}, t.Rows...) {
		width = max(width, utf8.RuneCountInString(row[i]))
	}
	return width
}

// writeMarkdown writes the table as Markdown; nothing without rows.
func (t Table) writeMarkdown(b *strings.Builder) {
	if len(t.Rows) == 0 {
		return
	}
	if t.Title != "" {
		fmt.Fprintf(b, "**%s**\n\n", escapeMarkdown(t.Title))
	}
	columns := t.shownColumns()
	for n, row := range append([][]string{t.Head}, t.Rows...) {
		b.WriteString("|")
		for _, i := range columns {
			cell := escapeMarkdown(cmp.Or(row[i], "–"))
			if t.linked && i == 0 && n > 0 {
				cell = fmt.Sprintf("[%[1]s](#%[1]s)", cell)
			}
			b.WriteString(" " + cell + " |")
		}
		b.WriteString("\n")
		if n == 0 {
			b.WriteString(strings.Repeat("|---", len(columns)) + "|\n")
		}
	}
}

// escapeMarkdown escapes the ends of table cells and tags.
func escapeMarkdown(s string) string {
	return strings.NewReplacer("|", "\\|", "<", "&lt;", "\n", " ").Replace(s)
}

// writeHTML writes the table as HTML; nothing without rows.
func (t Table) writeHTML(b *strings.Builder) {
	if len(t.Rows) == 0 {
		return
	}
	if t.Title != "" {
		fmt.Fprintf(b, "<p>%s</p>\n", html.EscapeString(t.Title))
	}
	b.WriteString("<div class=\"scroll\"><table>\n")
	columns := t.shownColumns()
	for n, row := range append([][]string{t.Head}, t.Rows...) {
		tag := "td"
		if n == 0 {
			tag = "th"
		}
		b.WriteString("<tr>")
		for _, i := range columns {
			cell := html.EscapeString(row[i])
			if t.linked && i == 0 && n > 0 {
				cell = formatRowLink(row[i])
			}
			fmt.Fprintf(b, "<%[1]s>%[2]s</%[1]s>", tag, cell)
		}
		b.WriteString("</tr>\n")
	}
	b.WriteString("</table></div>\n")
}

// formatUnlessZero formats a number; 0 is empty.
func formatUnlessZero(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}
