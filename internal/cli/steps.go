package cli

import (
	"fmt"
	"io"
	"sync"

	"mpbond/base/text"
)

// maxStep is how many characters of a step are shown. A longer line would wrap, and could
// not be replaced.
const maxStep = 79

// Steps shows what long work is doing, in one line that the next step replaces. It shows
// nothing if the output is no terminal. Its methods may be called by several goroutines at
// once.
type Steps struct {
	w       io.Writer
	enabled bool

	mu sync.Mutex // of writing
}

// NewSteps shows steps on w, if that is a terminal.
func NewSteps(w io.Writer) *Steps { return &Steps{w: w, enabled: IsTerminal(w)} }

// Show replaces the line.
func (s *Steps) Show(step string) { s.drawLine([]rune(text.Printable(step))) }

// Clear removes the line, so that other text can follow.
func (s *Steps) Clear() { s.drawLine(nil) }

func (s *Steps) drawLine(line []rune) {
	if !s.enabled {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprint(s.w, "\r\x1b[K", string(line[:min(len(line), maxStep)]))
}
