package backoff

import (
	"errors"
	"fmt"

	"mpbond/base/fault"
	"mpbond/link/wire"
)

// Refused reports whether err is a refusal, by either end, that asking again will
// not change soon: another version, a device that is unknown or not the expected
// one, one that is paused, or a limit.
func Refused(err error) bool {
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

// isLimit reports whether a refusal is one that may pass by itself.
func isLimit(err error) bool {
	var r wire.Refuse
	return errors.As(err, &r) && r.Code == wire.CodeLimit
}

// Explain returns the sentence for a refusal between this device and peer, such as
// "version 4 here, 5 there: upgrade mpbond on this device", and a hint where the
// sentence does not say what to do.
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
	if errors.As(err, &f) { // without what is wrapped around it, such as addresses
		err = f.Err
	}
	return err.Error(), hint
}
