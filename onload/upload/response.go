// SPDX-License-Identifier: Apache-2.0

package upload

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"mpbond/base/fault"
	"mpbond/base/text"
	"mpbond/onload/transfer"
)

// newUploadRefusal returns a Refusal with a fault of the given kind and hint.
func newUploadRefusal(v transfer.Verdict, kind fault.Kind, hint string, format string, args ...any) *transfer.Refusal {
	return &transfer.Refusal{Verdict: v, Err: fault.New(kind, fmt.Errorf(format, args...), hint)}
}

// maxResponseBody bounds how much of a response body is read.
const maxResponseBody = 1 << 20

// refusalOfUpload returns the Refusal for a status other than success.
func refusalOfUpload(r *http.Response, now time.Time) *transfer.Refusal {
	statusErr := fmt.Errorf("the web server answered %s", text.Printable(r.Status))
	refuse := func(v transfer.Verdict, kind fault.Kind, hint string) *transfer.Refusal {
		return &transfer.Refusal{Verdict: v, Err: fault.New(kind, statusErr, hint)}
	}
	switch c := r.StatusCode; {
	case c == http.StatusTooManyRequests, c == http.StatusRequestTimeout, c == http.StatusTooEarly:
		return &transfer.Refusal{RetryAfter: transfer.ParseRetryAfter(r.Header, now), Err: statusErr}
	case c == http.StatusNotImplemented, c == http.StatusHTTPVersionNotSupported:
		return refuse(transfer.Final, fault.Unsupported,
			"the server does not support this method: try another --method")
	case c == http.StatusInsufficientStorage:
		return refuse(transfer.Final, fault.Limit, "free space on the server")
	case c >= 500:
		return &transfer.Refusal{RetryAfter: transfer.ParseRetryAfter(r.Header, now), Err: statusErr, MaybeStored: true}
	case c == http.StatusUnauthorized, c == http.StatusProxyAuthRequired:
		return refuse(transfer.Final, fault.Permission, "add credentials to the URL, or a --header")
	case c == http.StatusForbidden, c == http.StatusUnavailableForLegalReasons:
		return refuse(transfer.Exclude, fault.Permission, "check the permissions on the server")
	case c == http.StatusNotFound, c == http.StatusGone, c == http.StatusConflict:
		return refuse(transfer.Final, fault.NotFound, "check that the path exists on the server")
	case c == http.StatusMethodNotAllowed:
		return refuse(transfer.Final, fault.Unsupported,
			"the server does not support this method: try another --method")
	case c == http.StatusRequestEntityTooLarge:
		return refuse(transfer.Final, fault.Limit, "the file exceeds the limit of the server")
	case c == http.StatusPreconditionFailed:
		return refuse(transfer.Final, fault.Exists, "the server already has a file of that name")
	case c >= 300 && c < 400:
		return &transfer.Refusal{Verdict: transfer.Final, MaybeStored: true, Err: fault.New(fault.Protocol,
			fmt.Errorf("%w: a redirect to %q instead of accepting the file", statusErr,
				text.Printable(r.Header.Get("Location"))), "use the URL that accepts files; a login may be needed")}
	case c >= 200 && c < 300:
		return &transfer.Refusal{Verdict: transfer.Final, MaybeStored: true,
			Err: fault.New(fault.Protocol, fmt.Errorf("%w, which does not confirm the file", statusErr), "")}
	}
	return refuse(transfer.Final, fault.Protocol, "")
}

// isAccepted reports whether a status means that the server has the file.
func isAccepted(status int) bool {
	switch status {
	case http.StatusOK, http.StatusCreated, http.StatusAccepted, http.StatusNoContent:
		return true
	}
	return false
}

// classifyUploadError wraps file and network errors in faults with hints.
func classifyUploadError(err error) error {
	if errors.Is(err, errChanged) && fault.KindOf(err) == fault.Other {
		return fault.New(fault.Integrity, err, "retry when no program writes to it")
	}
	return transfer.ClassifyNetworkError(err, "run the same command again to resume",
		"check the address and that this device is online, then run the same command again to resume")
}
