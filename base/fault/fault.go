// SPDX-License-Identifier: Apache-2.0

// Package fault gives errors a stable kind, for programs, and a hint, for people. Every package may
// use it; it imports none of them.
//
// Most errors stay plain. An error becomes a fault where somebody outside can act on it: a user by
// its hint, a script by the exit code of its kind.
package fault

import "errors"

// Kind is the sort of an error. Kinds appear in JSON and determine exit codes: the list is
// append-only and a name never changes its meaning.
type Kind string

// Kinds.
const (
	Other          Kind = "other"           // none of the others; also for plain errors
	Usage          Kind = "usage"           // the command line is wrong
	Config         Kind = "config"          // a configuration file is invalid
	NotRunning     Kind = "not_running"     // the mpbond process asked for does not answer
	AlreadyRunning Kind = "already_running" // another mpbond process is active
	Unreachable    Kind = "unreachable"     // a network address does not answer or refuses
	Timeout        Kind = "timeout"         // no answer in time
	UnknownDevice  Kind = "unknown_device"  // a device is not in the trust file of the other
	WrongKey       Kind = "wrong_key"       // the far end is not the device it should be
	Permission     Kind = "permission"      // permissions are missing, or too wide to be safe
	Protocol       Kind = "protocol"        // the far end violates the protocol
	Integrity      Kind = "integrity"       // data is damaged or not as expected
	Limit          Kind = "limit"           // too many, too long, or no room left
	Exists         Kind = "exists"          // already exists and is not overwritten
	NotFound       Kind = "not_found"       // no such thing
	Unsupported    Kind = "unsupported"     // not supported on this system
	NotSaved       Kind = "not_saved"       // applied in the running process but not saved to disk
)

// Error is an error with a kind and, if somebody can act on it, a hint: a whole sentence without
// full stop, in the imperative if possible.
type Error struct {
	Kind Kind
	Err  error
	Hint string
}

// New wraps err. It returns nil if err is nil.
func New(kind Kind, err error, hint string) error {
	if err == nil {
		return nil
	}
	return &Error{Kind: kind, Err: err, Hint: hint}
}

// Error returns the text of the wrapped error, without the hint. To show it to people, add HintOf.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the wrapped error.
func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the kind of the outermost fault in err's chain, Other if there is none, and "" for
// nil.
func KindOf(err error) Kind {
	if err == nil {
		return ""
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Other
}

// Is reports whether the outermost fault in err's chain is of that kind.
func Is(err error, kind Kind) bool { return err != nil && KindOf(err) == kind }

// HintOf returns the hint of the outermost fault in err's chain that has one.
func HintOf(err error) string {
	var e *Error
	for errors.As(err, &e) {
		if e.Hint != "" {
			return e.Hint
		}
		err = e.Err
	}
	return ""
}
