// Package cli holds what the programs of this module share at the command line: exit
// codes, errors and hints, JSON, progress, screens and files. It stands above the layers
// and knows none of them but base.
//
//	run.go       a program: its commands, logging, and how errors end it
//	errors.go    exit codes, and errors of the command line
//	output.go    JSON, numbers and text for people
//	target.go    output files that appear when they are whole
//	steps.go     one line that shows what long work is doing
//	bars.go      progress bars
//	screen.go    full-screen views
//	complete.go  completion in shells
//	version.go   which build this is
package cli
