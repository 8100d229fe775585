package main

import "fmt"

// exitStatus ends the program with a code and, if err is nil, without a word.
type exitStatus struct {
	code int
	err  error
}

// Error implements error.
func (e *exitStatus) Error() string {
	if e.err != nil {
		return e.err.Error()
	}
	return fmt.Sprintf("exit status %d", e.code)
}

// Unwrap implements errors.Unwrap.
func (e *exitStatus) Unwrap() error { return e.err }

// ExitCode is what the process ends with.
func (e *exitStatus) ExitCode() int { return e.code }

// Silent reports that there is nothing to print: the command has spoken.
func (e *exitStatus) Silent() bool { return e.err == nil }
