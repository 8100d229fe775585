// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/gdamore/tcell/v2"

	"mpbond/base/fault"
)

// Row is a line of a screen.
type Row struct {
	Text  string
	Style int
}

// Styles of a row.
const (
	StylePlain = iota
	StyleHead
	StyleDim
	StyleBad
)

// OpenScreen takes over the terminal. The hint names an alternative for terminals that cannot be
// used.
func OpenScreen(hint string) (tcell.Screen, error) {
	screen, err := tcell.NewScreen()
	if err == nil {
		err = screen.Init()
	}
	if err != nil {
		return nil, fault.New(fault.Unsupported, fmt.Errorf("open this terminal: %w", err), hint)
	}
	return screen, nil
}

// SetRows puts rows on the screen, the first at the top. They appear with screen.Show.
func SetRows(screen tcell.Screen, rows []Row) {
	screen.Clear()
	for y, r := range rows {
		style := tcell.StyleDefault
		switch r.Style {
		case StyleHead:
			style = style.Bold(true)
		case StyleDim:
			style = style.Dim(true)
		case StyleBad:
			style = style.Foreground(tcell.ColorRed)
		}
		screen.PutStrStyled(0, y, r.Text, style)
	}
}
