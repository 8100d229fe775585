// SPDX-License-Identifier: Apache-2.0

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

// Verdict says what the requester should do about an unusable response.
type Verdict uint8

// Verdicts.
const (
	Retry    Verdict = iota // try again later, or over another device
	Exclude                 // this device cannot get the object
	Final                   // no device can get it
	Restart                 // the object has changed: start it from the beginning
	NoRange                 // range requests do not work
	Redirect                // the response is a redirect
)

// Refusal is the error for a response that cannot be used.
type Refusal struct {
	Verdict    Verdict
	RetryAfter time.Duration // delay that the server asks for, or 0
	Err        error
	// MaybeStored reports that the server may have kept what was sent.
	MaybeStored bool
}

// Error implements error.
func (r *Refusal) Error() string { return r.Err.Error() }

// Unwrap returns the underlying error.
func (r *Refusal) Unwrap() error { return r.Err }

// ParseRetryAfter returns the delay that the Retry-After field asks for, given in seconds or as a
// date. It returns 0 without a valid field.
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

// ClassifyNetworkError wraps a network error in a fault: fault.Timeout with timeoutHint, or
// fault.Unreachable with unreachableHint. Other errors are returned unchanged.
func ClassifyNetworkError(err error, timeoutHint, unreachableHint string) error {
	var op net.Error
	switch {
	case fault.KindOf(err) != fault.Other, errors.Is(err, context.Canceled):
	case errors.As(err, &op) && op.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return fault.New(fault.Timeout, err, timeoutHint)
	case errors.As(err, &op), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fault.New(fault.Unreachable, err, unreachableHint)
	}
	return err
}

// networkKind returns the fault kind of a network error.
func networkKind(err error) fault.Kind { return fault.KindOf(ClassifyNetworkError(err, "", "")) }

// Reasons returns an error that says why none of the devices can get the object: the exclusion of
// each device, or its last failure. It returns nil if no reason is known. The lock must be held.
func (x Excluded) Reasons(workers []*Worker) error {
	var list []DeviceError
	for _, w := range workers {
		if err := cmp.Or(x[w], w.lastError); err != nil {
			list = append(list, DeviceError{w.Name, err})
		}
	}
	return NoDeviceError(len(workers), list)
}

// DeviceError is the error of one device.
type DeviceError struct {
	Device string
	Err    error
}

// String returns the error without the URL, which is the same for all devices, and without the
// device name.
func (r DeviceError) String() string {
	err := r.Err
	if urlErr := (*url.Error)(nil); errors.As(err, &urlErr) {
		err = urlErr.Err
	}
	return strings.TrimPrefix(err.Error(), "over "+r.Device+": ")
}

// NoDeviceError returns the error that none of the given number of devices can do something. It
// names the common reason, or the reason of each device in list. It returns nil for an empty list.
func NoDeviceError(devices int, list []DeviceError) error {
	if len(list) == 0 {
		return nil
	}
	if devices == 1 {
		return list[0].Err
	}
	n := &noDeviceError{text: fmt.Sprintf("failed over all %d devices: ", devices)}
	common, offline, commonKind := len(list) == devices, true, networkKind(list[0].Err)
	var each []string
	for _, r := range list {
		n.errs = append(n.errs, r.Err)
		each = append(each, r.Device+": "+r.String())
		common = common && r.String() == list[0].String()
		kind := networkKind(r.Err)
		offline = offline && (kind == fault.Unreachable || kind == fault.Timeout)
		if kind != commonKind {
			commonKind = fault.Unreachable
		}
	}
	if common {
		each = []string{list[0].String()}
	}
	// no device is to blame: the server or the URL is
	if n.text += strings.Join(each, "; "); offline && len(list) == devices {
		return fault.New(commonKind, n, "check the address and that the server is up")
	}
	return n
}

// noDeviceError joins the errors of all devices.
type noDeviceError struct {
	text string
	errs []error
}

// Error implements error.
func (n *noDeviceError) Error() string { return n.text }

// Unwrap returns the errors, in the order of the devices.
func (n *noDeviceError) Unwrap() []error { return n.errs }
