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

func newRefusal(v transfer.Verdict, kind fault.Kind, hint string, format string, args ...any) *transfer.Refusal {
	return &transfer.Refusal{Verdict: v, Err: fault.New(kind, fmt.Errorf(format, args...), hint)}
}

// maxResponseBody bounds what is read of an answer.
const maxResponseBody = 1 << 20

// refusalByStatus says what a status means that is no success.
func refusalByStatus(r *http.Response, now time.Time) *transfer.Refusal {
	said := fmt.Errorf("the web server answered %s", text.Printable(r.Status))
	no := func(v transfer.Verdict, kind fault.Kind, hint string) *transfer.Refusal {
		return &transfer.Refusal{Verdict: v, Err: fault.New(kind, said, hint)}
	}
	switch c := r.StatusCode; {
	case c == http.StatusTooManyRequests, c == http.StatusRequestTimeout, c == http.StatusTooEarly:
		return &transfer.Refusal{RetryAfter: transfer.ParseRetryAfter(r.Header, now), Err: said}
	case c == http.StatusNotImplemented, c == http.StatusHTTPVersionNotSupported:
		return no(transfer.Final, fault.Unsupported, "the server does not take files this way: try another --method")
	case c == http.StatusInsufficientStorage:
		return no(transfer.Final, fault.Limit, "the server has no room left")
	case c >= 500:
		return &transfer.Refusal{RetryAfter: transfer.ParseRetryAfter(r.Header, now), Err: said, MaybeStored: true}
	case c == http.StatusUnauthorized, c == http.StatusProxyAuthRequired:
		return no(transfer.Final, fault.Permission, "the server wants to know who you are: give a name in the URL, or a --header")
	case c == http.StatusForbidden, c == http.StatusUnavailableForLegalReasons:
		return no(transfer.Exclude, fault.Permission, "the server does not allow it")
	case c == http.StatusNotFound, c == http.StatusGone, c == http.StatusConflict:
		return no(transfer.Final, fault.NotFound, "is there such a place at the server?")
	case c == http.StatusMethodNotAllowed:
		return no(transfer.Final, fault.Unsupported, "the server does not take files this way: try another --method")
	case c == http.StatusRequestEntityTooLarge:
		return no(transfer.Final, fault.Limit, "the server takes no file of that size")
	case c == http.StatusPreconditionFailed:
		return no(transfer.Final, fault.Exists, "there is a file of that name already")
	case c >= 300 && c < 400:
		return &transfer.Refusal{Verdict: transfer.Final, MaybeStored: true, Err: fault.New(fault.Protocol,
			fmt.Errorf("%w, and leads to %q instead of taking the file", said, text.Printable(r.Header.Get("Location"))), "is a login needed? Give the URL that takes files itself")}
	case c >= 200 && c < 300:
		return &transfer.Refusal{Verdict: transfer.Final, MaybeStored: true, Err: fault.New(fault.Protocol, fmt.Errorf("%w, which does not say that it has the file", said), "")}
	}
	return no(transfer.Final, fault.Protocol, "")
}

// isAccepted tells whether a status says that the server has what it was sent.
func isAccepted(status int) bool {
	switch status {
	case http.StatusOK, http.StatusCreated, http.StatusAccepted, http.StatusNoContent:
		return true
	}
	return false
}

// classifyError gives errors of networks a kind.
func classifyError(err error) error {
	if errors.Is(err, errChanged) && fault.KindOf(err) == fault.Other {
		return fault.New(fault.Integrity, err, "send it when nobody writes to it")
	}
	return transfer.ClassifyNetworkError(err, "the same command goes on", "is this device online, and the address right? The same command goes on")
}
