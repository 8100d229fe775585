// SPDX-License-Identifier: Apache-2.0

// Package ksf replaces the module of that name, which opaque imports for password stretching. The
// code is proved without stretching (see opaqueConfig in package pairing). Version 0.5.0 of that
// module, which opaque requires, does not compile where an int has 32 bits (arm, mips). This
// package therefore has no stretching functions, and opaque refuses configurations that need one.
// It can be removed once a release compiles there.
package ksf

import "errors"

// Identifier names a stretching function.
type Identifier byte

// Argon2id is opaque's default. pairing does not use it.
const Argon2id Identifier = 1

// ErrNone is the error of each function.
var ErrNone = errors.New("mpbond has no function that stretches passwords")

// Available reports false, so that opaque refuses the function.
func (Identifier) Available() bool { return false }

// Harden returns ErrNone.
func (Identifier) Harden(_, _ []byte, _ int, _ ...uint64) ([]byte, error) { return nil, ErrNone }

// UnsafeHarden panics, as in the original for unavailable functions.
func (Identifier) UnsafeHarden(_, _ []byte, _ int, _ ...uint64) []byte { panic(ErrNone) }

// VerifyParameters returns ErrNone.
func (Identifier) VerifyParameters(...uint64) error { return ErrNone }

// DefaultParameters returns nil.
func (Identifier) DefaultParameters() []uint64 { return nil }
