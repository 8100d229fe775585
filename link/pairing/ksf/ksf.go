// Package ksf stands in for the module of that name, which opaque imports for
// functions that stretch passwords. A code is proved without (see suite in
// pairing), and v0.5.0 of that module, the one which opaque wants, does not
// compile where an int has 32 bits: on arm and mips. So there are none here, and
// an opaque that is asked for one refuses. It can go when a release compiles there.
package ksf

import "errors"

// Identifier names a function that stretches passwords.
type Identifier byte

// Argon2id is what opaque takes by default, which pairing does not.
const Argon2id Identifier = 1

// ErrNone is what each function fails with.
var ErrNone = errors.New("mpbond has no function that stretches passwords")

// Available tells opaque that it has to refuse the function.
func (Identifier) Available() bool { return false }

// Harden fails.
func (Identifier) Harden(_, _ []byte, _ int, _ ...uint64) ([]byte, error) { return nil, ErrNone }

// UnsafeHarden panics, as it does for functions that are not available.
func (Identifier) UnsafeHarden(_, _ []byte, _ int, _ ...uint64) []byte { panic(ErrNone) }

// VerifyParameters fails.
func (Identifier) VerifyParameters(...uint64) error { return ErrNone }

// DefaultParameters are none.
func (Identifier) DefaultParameters() []uint64 { return nil }
