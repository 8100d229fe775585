// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"cmp"
	"fmt"
	"html"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
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
func (t Table) Print(w io.Writer) error {
	if len(t.Rows) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	if t.Title != "" {
		fmt.Fprintln(w, t.Title)
	}
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{t.Head}, t.Rows...) {
		for _, i := range t.shownColumns() {
			fmt.Fprintf(tw, "%s\t", cmp.Or(row[i], "-"))
		}
		fmt.Fprintln(tw)
	}
	return tw.Flush()
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
				cell = rowLink(row[i])
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
