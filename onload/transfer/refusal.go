package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"mpbond/base/fault"
)

// Verdict is what an answer that cannot be used means for who asked.
type Verdict uint8

// Verdicts.
const (
	Retry    Verdict = iota // may be better later, or over another device
	Exclude                 // this device cannot have the object
	Final                   // nobody can
	Restart                 // the object is not what it was: it begins anew
	NoRange                 // ranges do not work here
	Redirect                // the answer leads elsewhere
)

// Refusal is an answer that cannot be used.
type Refusal struct {
	Verdict    Verdict
	RetryAfter time.Duration // the server asks to be left alone for
	Err        error
	// MaybeStored is that the server may have kept what it was sent.
	MaybeStored bool
}

// Error implements error.
func (r *Refusal) Error() string { return r.Err.Error() }

// Unwrap returns what was wrong with the answer.
func (r *Refusal) Unwrap() error { return r.Err }

// ParseRetryAfter reads the header of that name, seconds or a date; 0 is that there is none.
func ParseRetryAfter(h http.Header, now time.Time) time.Duration {
	s := h.Get("Retry-After")
	if n, err := strconv.ParseUint(s, 10, 31); err == nil {
		return time.Duration(n) * time.Second
	}
	if t, err := http.ParseTime(s); err == nil {
		return max(0, t.Sub(now))
	}
	return 0
}

// ClassifyNetworkError gives errors of networks a kind, with a hint for those that were late and those
// that did not come through.
func ClassifyNetworkError(err error, late, unreachable string) error {
	var op net.Error
	switch {
	case fault.KindOf(err) != fault.Other, errors.Is(err, context.Canceled):
	case errors.As(err, &op) && op.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return fault.New(fault.Timeout, err, late)
	case errors.As(err, &op), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fault.New(fault.Unreachable, err, unreachable)
	}
	return err
}

func networkKind(err error) fault.Kind { return fault.KindOf(ClassifyNetworkError(err, "", "")) }

// Reasons returns why none of the devices can have the object, as far as that is known: what
// excludes each, or its last failure. The lock must be held.
func (x Excluded) Reasons(of []*Worker) error {
	var list []DeviceError
	for _, w := range of {
		if err := cmp.Or(x[w], w.lastError); err != nil {
			list = append(list, DeviceError{w.Name, err})
		}
	}
	return NoDeviceError(len(of), list)
}

// DeviceError is why a device cannot do something.
type DeviceError struct {
	Device string
	Err    error
}

// String is that for people: without the URL, which all have, and the device.
func (r DeviceError) String() string {
	err := r.Err
	if of := (*url.Error)(nil); errors.As(err, &of) {
		err = of.Err
	}
	return strings.TrimPrefix(err.Error(), "over "+r.Device+": ")
}

// NoDeviceError is the error that none of so many devices can do something: with the reason that
// all have, or that of each as far as it is known. Nil is that none is known.
func NoDeviceError(devices int, list []DeviceError) error {
	if len(list) == 0 {
		return nil
	}
	if devices == 1 {
		return list[0].Err
	}
	n := &noDeviceError{text: fmt.Sprintf("over none of %d devices: ", devices)}
	common, offline, as := len(list) == devices, true, networkKind(list[0].Err)
	var each []string
	for _, r := range list {
		n.errs = append(n.errs, r.Err)
		each = append(each, r.Device+": "+r.String())
		common = common && r.String() == list[0].String()
		kind := networkKind(r.Err)
		offline = offline && (kind == fault.Unreachable || kind == fault.Timeout)
		if kind != as {
			as = fault.Unreachable
		}
	}
	if common {
		each = []string{list[0].String()}
	}
	if n.text += strings.Join(each, "; "); offline && len(list) == devices { // it is none of them
		return fault.New(as, n, "is the address right, and the server there?")
	}
	return n
}

// noDeviceError has what all of them have met.
type noDeviceError struct {
	text string
	errs []error
}

// Error implements error.
func (n *noDeviceError) Error() string { return n.text }

// Unwrap lists them, that of the first device first.
func (n *noDeviceError) Unwrap() []error { return n.errs }
