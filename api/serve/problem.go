// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"mpbond/api"
	"mpbond/base/fault"
)

// problem is an api.Problem as an error for the library.
type problem struct{ api.Problem }

// Error implements error.
func (p *problem) Error() string { return p.Detail }

// GetStatus implements huma.StatusError.
func (p *problem) GetStatus() int { return p.Status }

// ContentType implements huma.ContentTypeFilter.
func (p *problem) ContentType(string) string { return "application/problem+json" }

// statusByKind maps kinds of faults to statuses; others are 500.
var statusByKind = map[fault.Kind]int{
	fault.Usage: http.StatusBadRequest, fault.Config: http.StatusBadRequest, fault.NotFound: http.StatusNotFound,
	fault.Exists: http.StatusConflict, fault.AlreadyRunning: http.StatusConflict, fault.NotRunning: http.StatusConflict,
	fault.Limit: http.StatusTooManyRequests, fault.Permission: http.StatusForbidden,
	fault.Unsupported: http.StatusNotImplemented, fault.NotSaved: http.StatusInsufficientStorage,
}

// problemForError returns the answer to an error of a role.
func problemForError(err error) *problem {
	return newHTTPProblem(cmp.Or(statusByKind[fault.KindOf(err)], http.StatusInternalServerError), err)
}

func newHTTPProblem(status int, err error) *problem {
	return &problem{api.Problem{Type: "about:blank", Title: http.StatusText(status), Status: status,
		Detail: err.Error(), Kind: string(fault.KindOf(err)), Hint: fault.HintOf(err)}}
}

// problemOfText returns the answer to an error about a text.
func problemOfText(err error) *problem {
	if fault.KindOf(err) != fault.Config {
		return problemForError(err)
	}
	p := newHTTPProblem(http.StatusUnprocessableEntity, err)
	var at interface {
		Place() (line, column int, nearest string)
	}
	if errors.As(err, &at) {
		p.Line, p.Column, p.Nearest = at.Place()
	}
	return p
}

// unreadBodyText is the library's text for a truncated or invalid body, which it counts as a server
// error.
const unreadBodyText = "cannot read request body"

// Errors that the library finds in requests get our texts.
func init() {
	huma.DefaultArrayNullable = false
	huma.NewError = func(status int, msg string, errs ...error) huma.StatusError {
		var details []string
		for _, err := range errs {
			var d *huma.ErrorDetail
			switch {
			case errors.As(err, &d) && d.Location != "":
				details = append(details, d.Location+": "+d.Message) // without its value, which may be long
			case err != nil:
				details = append(details, err.Error())
			}
		}
		if len(details) > 0 {
			msg += ": " + strings.Join(details, "; ")
		}
		kind := fault.Usage
		switch {
		case status == http.StatusUnprocessableEntity, status >= 500 && strings.HasPrefix(msg, unreadBodyText):
			status = http.StatusBadRequest
		case status >= 500:
			kind = fault.Other
		case status == http.StatusRequestEntityTooLarge || status == http.StatusTooManyRequests:
			kind = fault.Limit
		case status == http.StatusRequestTimeout:
			kind = fault.Timeout
		}
		return newHTTPProblem(status, fault.New(kind, errors.New(msg), "see GET /openapi.json"))
	}
}

// writeHTTPAnswer answers outside the library.
func (p *problem) writeHTTPAnswer(w http.ResponseWriter) {
	w.Header().Set("Content-Type", p.ContentType(""))
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p.Problem) // an error means that the client has gone
}

// unsupportedError returns the error for something that a role does not have.
func unsupportedError(what string) error {
	return fault.New(
		fault.Unsupported,
		fmt.Errorf("%s is not supported here", what),
		"ask another role: primary, server or helper",
	)
}
