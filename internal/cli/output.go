// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"mpbond/base/text"
	"mpbond/base/unit"
)

// WantsJSON reports whether cmd was given --json.
func WantsJSON(cmd *cobra.Command) bool {
	f := cmd.Flags().Lookup("json")
	return f != nil && f.Value.String() == "true"
}

// PrintJSON writes v on one line, with control characters escaped for terminals.
func PrintJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(text.EscapeJSON(b.Bytes()))
	return err
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// FormatMilliseconds formats a delay with three significant digits.
func FormatMilliseconds(v float64) string { return fmt.Sprintf("%.3g ms", v) }

// FormatPercent formats part of whole in percent, "-" if whole is 0.
func FormatPercent(part, whole unit.Bytes) string {
	if whole <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f %%", 100*float64(part)/float64(whole))
}

// IfElse returns yes if is is true, else no.
func IfElse[T any](is bool, yes, no T) T {
	if is {
		return yes
	}
	return no
}

// Truncate returns the first n characters of s. If s is longer the last of them is "…".
func Truncate(s string, n int) string {
	if utf8.RuneCountInString(s) <= n {
		return s
	}
	if n < 1 {
		return ""
	}
	return string([]rune(s)[:n-1]) + "…"
}
