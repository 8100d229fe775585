// Package fault gives errors a stable kind, for programs, and a hint, for
// people. It stands beside the data path: every package may use it and it knows
// none of them.
//
// Most errors stay plain. One becomes a fault where somebody outside can act on
// it: a user by its hint, a script by the exit code that follows from its kind.
package fault

import "errors"

// Kind says what sort of thing went wrong. Kinds appear in JSON and decide
// exit codes: the list is append-only and a name never changes its meaning.
type Kind string

// Kinds.
const (
	Other          Kind = "other"           // none of the others; also what a plain error has
	Usage          Kind = "usage"           // the command line is wrong
	Config         Kind = "config"          // a file we read says something that cannot be
	NotRunning     Kind = "not_running"     // the mpbond process asked for does not answer
	AlreadyRunning Kind = "already_running" // another mpbond process holds the place
	Unreachable    Kind = "unreachable"     // a network address does not answer or refuses
	Timeout        Kind = "timeout"         // no answer in time
	UnknownDevice  Kind = "unknown_device"  // a device is not in the trust file of the other
	WrongKey       Kind = "wrong_key"       // the far end is not the device it should be
	Permission     Kind = "permission"      // rights are missing, or too wide to be safe
	Protocol       Kind = "protocol"        // the far end does not speak as it should
	Integrity      Kind = "integrity"       // data is not what it was meant to be
	Limit          Kind = "limit"           // too many, too long, or no room left
	Exists         Kind = "exists"          // already there, and not to be overwritten
	NotFound       Kind = "not_found"       // no such thing
	Unsupported    Kind = "unsupported"     // this system cannot do that
	NotSaved       Kind = "not_saved"       // it holds in the process that runs, but could not be written to the disk
)

// Error is an error with a kind and, where somebody can do something about it,
// a hint: a whole sentence without full stop, in the imperative if possible.
type Error struct {
	Kind Kind
	Err  error
	Hint string
}

// New wraps err. The result is nil if err is nil.
func New(kind Kind, err error, hint string) error {
	if err == nil {
		return nil
	}
	return &Error{Kind: kind, Err: err, Hint: hint}
}

// Error is the text of the wrapped error, without the hint: who shows it to a
// person adds HintOf.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the wrapped error.
func (e *Error) Unwrap() error { return e.Err }

// KindOf is the kind of the outermost fault in err's chain, Other if there is
// none, and "" for nil.
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

// HintOf is the hint of the outermost fault in err's chain that has one.
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
