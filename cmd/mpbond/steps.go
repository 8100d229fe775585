package main

import (
	"fmt"
	"io"
	"sync"
)

// maxStep is how many characters of a step are shown: a longer line would wrap, and
// could not be replaced.
const maxStep = 79

// steps tells people what long work is at, in one line that the next step
// replaces: on a terminal only, since elsewhere nothing can be replaced. Its methods
// may be called by several goroutines at once.
type steps struct {
	w  io.Writer
	on bool

	mu sync.Mutex // of writing
}

// newSteps shows on w, if that is a terminal.
func newSteps(w io.Writer) *steps { return &steps{w: w, on: isTerminal(w)} }

// now replaces the line.
func (s *steps) now(step string) { s.write([]rune(oneLine(step))) }

// clear makes room for other text.
func (s *steps) clear() { s.write(nil) }

func (s *steps) write(line []rune) {
	if !s.on {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprint(s.w, "\r\x1b[K", string(line[:min(len(line), maxStep)]))
}
