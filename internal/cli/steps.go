// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"sync"

	"mpbond/base/text"
)

// maxStep is the most characters shown of a step. A longer line would wrap, and the next step
// could not replace it.
const maxStep = 79

// Steps shows the current step of long work on one line, which the next step replaces. It shows
// nothing if the output is no terminal. Safe for concurrent use.
type Steps struct {
	w       io.Writer
	enabled bool

	mu sync.Mutex // serializes writes
}

// NewSteps returns a Steps that writes to w.
func NewSteps(w io.Writer) *Steps { return &Steps{w: w, enabled: IsTerminal(w)} }

// Show replaces the line.
func (s *Steps) Show(step string) { s.drawStepLine([]rune(text.Printable(step))) }

// Clear removes the line, so that other text can follow.
func (s *Steps) Clear() { s.drawStepLine(nil) }

func (s *Steps) drawStepLine(line []rune) {
	if !s.enabled {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprint(s.w, "\r\x1b[K", string(line[:min(len(line), maxStep)]))
}
