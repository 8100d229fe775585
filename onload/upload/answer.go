package upload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"mpbond/base/fault"
	"mpbond/base/text"
	"mpbond/onload/transfer"
)

// verdict is what an answer that is no yes means for who asked.
type verdict uint8

const (
	again  verdict = iota // may be better later, or over another device
	barred                // this device cannot send the file
	final                 // nobody can
	anew                  // the file is to be sent from its beginning
)

// refusal is such an answer.
type refusal struct {
	verdict verdict
	after   time.Duration // the server asks to be left alone for
	err     error
	// maybe tells that the server may have kept what it was sent.
	maybe bool
}

func (r *refusal) Error() string { return r.err.Error() }
func (r *refusal) Unwrap() error { return r.err }

func refuse(v verdict, kind fault.Kind, hint string, format string, args ...any) *refusal {
	return &refusal{verdict: v, err: fault.New(kind, fmt.Errorf(format, args...), hint)}
}

// maxAnswer bounds what is read of an answer.
const maxAnswer = 1 << 20

// judge says what a status means that is no success.
func judge(r *http.Response, now time.Time) *refusal {
	said := fmt.Errorf("the web server answered %s", text.Printable(r.Status))
	no := func(v verdict, kind fault.Kind, hint string) *refusal {
		return &refusal{verdict: v, err: fault.New(kind, said, hint)}
	}
	switch c := r.StatusCode; {
	case c == http.StatusTooManyRequests, c == http.StatusRequestTimeout, c == http.StatusTooEarly:
		return &refusal{verdict: again, after: transfer.RetryAfter(r.Header, now), err: said}
	case c == http.StatusNotImplemented, c == http.StatusHTTPVersionNotSupported:
		return no(final, fault.Unsupported, "the server does not take files this way: try another --method")
	case c == http.StatusInsufficientStorage:
		return no(final, fault.Limit, "the server has no room left")
	case c >= 500:
		return &refusal{verdict: again, after: transfer.RetryAfter(r.Header, now), err: said, maybe: true}
	case c == http.StatusUnauthorized, c == http.StatusProxyAuthRequired:
		return no(final, fault.Permission, "the server wants to know who you are: give a name in the URL, or a --header")
	case c == http.StatusForbidden, c == http.StatusUnavailableForLegalReasons:
		return no(barred, fault.Permission, "the server does not allow it")
	case c == http.StatusNotFound, c == http.StatusGone, c == http.StatusConflict:
		return no(final, fault.NotFound, "is there such a place at the server?")
	case c == http.StatusMethodNotAllowed:
		return no(final, fault.Unsupported, "the server does not take files this way: try another --method")
	case c == http.StatusRequestEntityTooLarge:
		return no(final, fault.Limit, "the server takes no file of that size")
	case c == http.StatusPreconditionFailed:
		return no(final, fault.Exists, "there is a file of that name already")
	case c >= 300 && c < 400:
		return &refusal{verdict: final, maybe: true, err: fault.New(fault.Protocol,
			fmt.Errorf("%w, and leads to %q instead of taking the file", said, text.Printable(r.Header.Get("Location"))), "is a login needed? Give the URL that takes files itself")}
	case c >= 200 && c < 300:
		return &refusal{verdict: final, maybe: true, err: fault.New(fault.Protocol, fmt.Errorf("%w, which does not say that it has the file", said), "")}
	}
	return no(final, fault.Protocol, "")
}

// taken tells whether a status says that the server has what it was sent.
func taken(status int) bool {
	switch status {
	case http.StatusOK, http.StatusCreated, http.StatusAccepted, http.StatusNoContent:
		return true
	}
	return false
}

// explain gives errors of networks a kind.
func explain(err error) error {
	var op net.Error
	switch {
	case fault.KindOf(err) != fault.Other, errors.Is(err, context.Canceled):
	case errors.As(err, &op) && op.Timeout(), errors.Is(err, context.DeadlineExceeded):
		return fault.New(fault.Timeout, err, "the same command goes on")
	case errors.As(err, &op), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return fault.New(fault.Unreachable, err, "is this device online, and the address right? The same command goes on")
	case errors.Is(err, errChanged):
		return fault.New(fault.Integrity, err, "send it when nobody writes to it")
	}
	return err
}
