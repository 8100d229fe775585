// SPDX-License-Identifier: Apache-2.0

// Package refusal distinguishes refusals from other errors. It provides their texts, the wait
// before another attempt, and a list of current ones for logs and status. All roles use it, beside
// the data path.
//
//	refusal.go  distinguishes refusals; their texts, and the wait after one
//	list.go     the current refusals of this device
package refusal

import (
	"errors"
	"fmt"
	"time"

	"mpbond/base/backoff"
	"mpbond/base/fault"
	"mpbond/link/wire"
)

// Waits after a refusal. Most reasons do not change within seconds: an owner must upgrade, pair or
// resume a device. A limit may change.
const (
	FirstWait   = time.Second
	LongestWait = 5 * time.Minute
	LimitedWait = time.Minute
)

// Is reports whether err is a refusal by either end that another attempt will not change soon:
// another version, an unknown or unexpected device, a paused device, or a limit.
func Is(err error) bool {
	var r wire.Refuse
	var v wire.VersionMismatch
	switch {
	case errors.As(err, &v):
		return true
	case errors.As(err, &r):
		switch r.Code {
		case wire.CodeVersion, wire.CodeUnknown, wire.CodeForbidden, wire.CodeLimit, wire.CodeMalformed:
			return true
		}
		return false
	}
	return fault.Is(err, fault.UnknownDevice) || fault.Is(err, fault.WrongKey)
}

// Wait returns the next wait of b after a refusal: at most LongestWait, or LimitedWait after a
// limit, which may pass by itself.
func Wait(b *backoff.Backoff, err error) time.Duration {
	var r wire.Refuse
	if errors.As(err, &r) && r.Code == wire.CodeLimit {
		return b.Next(FirstWait, LimitedWait)
	}
	return b.Next(FirstWait, LongestWait)
}

// Explain returns a sentence for a refusal between this device and peer, such as "version 4 here, 5
// there: upgrade mpbond on this device", and a hint where the sentence does not tell what to do.
func Explain(err error, peer string) (reason, hint string) {
	var r wire.Refuse
	var v wire.VersionMismatch
	mismatch := errors.As(err, &v)
	if errors.As(err, &r) && r.Code == wire.CodeVersion && !mismatch {
		v, mismatch = wire.VersionMismatch{Here: wire.Version, There: r.Version}, true
	}
	switch {
	case mismatch && v.Here < v.There:
		return fmt.Sprintf("version %d here, %d there: upgrade mpbond on this device", v.Here, v.There), ""
	case mismatch && v.There < v.Here:
		return fmt.Sprintf("version %d here, %d there: upgrade mpbond on %s", v.Here, v.There, peer), ""
	case r.Text != "":
		return r.Text, fault.HintOf(err)
	}
	hint = fault.HintOf(err)
	var f *fault.Error
	if errors.As(err, &f) { // without wrapping errors, which may have addresses
		err = f.Err
	}
	return err.Error(), hint
}
