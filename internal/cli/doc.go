// SPDX-License-Identifier: Apache-2.0

// Package cli holds what the programs of this module share at the command line: exit
// codes, errors and hints, JSON, progress, screens and files. It stands above the layers
// and imports only base.
//
//	run.go       a program: its commands, logging, and how errors end it
//	overview.go  the help text of a program: its commands in groups
//	errors.go    exit codes, and errors of the command line
//	output.go    JSON, numbers and text for people
//	target.go    output files that appear only when complete
//	steps.go     one line that shows the current step of long work
//	bars.go      progress bars
//	screen.go    full-screen views
//	complete.go  completion in shells
//	version.go   the version of this build
package cli
