// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"mpbond/base/fault"
	"mpbond/base/text"
	"mpbond/base/unit"
	"mpbond/onload/board"
	"mpbond/onload/transfer"
)

// version identifies one state of an object. Two versions that match are the same as far as the
// server says.
type version struct {
	Size      unit.Bytes `json:"size"`
	ETag      string     `json:"etag,omitempty"`     // strong, or ""
	Modified  string     `json:"modified,omitempty"` // Last-Modified, strong, or ""
	Repr      digest     `json:"repr,omitzero"`
	mediaType string
}

// ifRangeValidator returns the value for If-Range, or "".
func (v version) ifRangeValidator() string {
	if v.ETag != "" {
		return v.ETag
	}
	return v.Modified
}

// matchesVersion reports whether another response is of this version. If either has an ETag, the
// ETags decide; otherwise all known properties must be equal.
func (v version) matchesVersion(w version) bool {
	switch {
	case v.Size != w.Size && v.Size != board.Unknown && w.Size != board.Unknown,
		v.Repr.name == w.Repr.name && v.Repr.sum != w.Repr.sum:
		return false
	case v.ETag != "" || w.ETag != "":
		return v.ETag == w.ETag
	}
	return (v.Modified == "" || v.Modified == w.Modified) &&
		(v.mediaType == "" || w.mediaType == "" || v.mediaType == w.mediaType)
}

// String describes the version in error messages.
func (v version) String() string {
	s := []string{v.Size.Decimal()}
	if v.Size == board.Unknown {
		s[0] = "no size"
	}
	if v.ETag != "" {
		s = append(s, "ETag "+strconv.Quote(v.ETag))
	}
	if v.Modified != "" {
		s = append(s, "of "+v.Modified)
	}
	return strings.Join(s, ", ")
}

// response describes the content of a usable response, from its status and header fields.
type response struct {
	version
	from, to      unit.Bytes // range of the body; to may be unknown
	partial       bool       // status 206
	contentDigest digest     // of the body
	endDetectable bool       // a truncated body can be recognised
}

// newFetchRefusal returns a Refusal with the fault kind Protocol.
func newFetchRefusal(v transfer.Verdict, format string, args ...any) *transfer.Refusal {
	return &transfer.Refusal{Verdict: v, Err: fault.New(fault.Protocol, fmt.Errorf(format, args...),
		"the server violates HTTP; try `mpbond get` without --onload")}
}

// byteRange is the range of a request.
type byteRange struct {
	ranged   bool       // false: the whole object
	from, to unit.Bytes // to may be unknown
}

// parseFetchResponse checks the status and header of a response to a request for w.
func parseFetchResponse(r *http.Response, w byteRange, now time.Time) (a response, refusal *transfer.Refusal) {
	switch {
	case r.StatusCode == http.StatusPartialContent && w.ranged, r.StatusCode == http.StatusOK:
	case r.StatusCode == http.StatusRequestedRangeNotSatisfiable && w.ranged:
		if w.to == board.Unknown {
			return a, newFetchRefusal(transfer.NoRange, "the server supports no ranges of the object (416)")
		}
		return a, newFetchRefusal(transfer.Restart, "the server no longer has bytes %d to %d (416)", w.from, w.to)
	case r.StatusCode == http.StatusPreconditionFailed:
		return a, newFetchRefusal(transfer.Restart, "the object has changed (412)")
	default:
		return a, refusalOfFetch(r, now)
	}
	if e := r.Header.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") || r.Uncompressed {
		return a, newFetchRefusal(transfer.Exclude, "the server sent encoding %q although identity was requested", e)
	}
	a.ETag, a.Modified, a.mediaType = Validators(r.Header)
	a.Repr, a.contentDigest = parseDigest(r.Header, "Repr-Digest"), parseDigest(r.Header, "Content-Digest")
	if r.StatusCode == http.StatusOK {
		a.Size, a.to = unit.Bytes(r.ContentLength), unit.Bytes(r.ContentLength)
		a.endDetectable = r.ContentLength >= 0 || r.ProtoMajor >= 2 || len(r.TransferEncoding) > 0
		if r.ContentLength < 0 {
			a.Size, a.to = board.Unknown, board.Unknown
		}
		return a, nil
	}
	a.partial, a.endDetectable = true, true
	var err error
	if a.from, a.to, a.Size, err = ParsePartialResponse(r, w.from, w.to); err != nil {
		return a, newFetchRefusal(transfer.NoRange, "%w", err)
	}
	return a, nil
}

// refusalOfFetch returns the Refusal for a status without usable content.
func refusalOfFetch(r *http.Response, now time.Time) *transfer.Refusal {
	err := fmt.Errorf("the web server answered %s", text.Printable(r.Status))
	switch c := r.StatusCode; {
	case c >= 500 && c != http.StatusNotImplemented && c != http.StatusHTTPVersionNotSupported,
		c == http.StatusTooManyRequests, c == http.StatusRequestTimeout, c == http.StatusTooEarly:
		return &transfer.Refusal{RetryAfter: transfer.ParseRetryAfter(r.Header, now), Err: err}
	case c == http.StatusNotFound || c == http.StatusGone:
		return &transfer.Refusal{Verdict: transfer.Exclude, Err: fault.New(fault.NotFound, err, "")}
	}
	return &transfer.Refusal{Verdict: transfer.Exclude, Err: err}
}

// Validators returns the validators of a response that identify its version reliably: a strong
// ETag, and a Last-Modified date at least a second before Date, so that a later change has another
// date (RFC 9110, 8.8.2.2). It also returns the media type.
func Validators(h http.Header) (etag, modified, typ string) {
	if e := h.Get("ETag"); len(e) >= 2 && e[0] == '"' && e[len(e)-1] == '"' {
		etag = e
	}
	m, err1 := http.ParseTime(h.Get("Last-Modified"))
	date, err2 := http.ParseTime(h.Get("Date"))
	if err1 == nil && err2 == nil && date.Sub(m) >= time.Second {
		modified = h.Get("Last-Modified")
	}
	return etag, modified, responseMediaType(h)
}

// responseMediaType returns the media type of a response without parameters, in lower case.
func responseMediaType(h http.Header) string {
	typ, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(typ))
}

// ParsePartialResponse checks the header of a 206 response to a request for bytes from to to. It
// returns the first byte, the end (one past the last byte) and the complete length of the object.
// It returns an error unless the body is the requested range or a prefix of it of known length:
// most of the body may be used before its end is seen.
func ParsePartialResponse(r *http.Response, from, to unit.Bytes) (first, end, size unit.Bytes, err error) {
	if responseMediaType(r.Header) == "multipart/byteranges" {
		return 0, 0, 0, errors.New("requested one range, the server sent several")
	}
	field := r.Header.Get("Content-Range")
	first, end, size, ok := parseContentRange(field)
	switch {
	case !ok || len(r.Header.Values("Content-Range")) > 1:
		err = fmt.Errorf("the server sent a partial response with Content-Range %q", field)
	case first != from || to != board.Unknown && end > to:
		err = fmt.Errorf("requested bytes %d to %d, the server sent %d to %d", from, to, first, end)
	case r.ContentLength < 0:
		err = errors.New("the server sent a partial response without Content-Length")
	case unit.Bytes(r.ContentLength) != end-first:
		err = fmt.Errorf("the server sent Content-Length %d for a range of %d bytes", r.ContentLength, end-first)
	}
	return first, end, size, err
}

// parseContentRange parses "bytes 0-99/1000". to is one past the last byte.
func parseContentRange(s string) (from, to, size unit.Bytes, ok bool) {
	text, ok := strings.CutPrefix(s, "bytes ")
	span, total, ok2 := strings.Cut(text, "/")
	first, last, ok3 := strings.Cut(span, "-")
	if !ok || !ok2 || !ok3 {
		return 0, 0, 0, false
	}
	a, err1 := strconv.ParseUint(first, 10, 62)
	b, err2 := strconv.ParseUint(last, 10, 62)
	n, err3 := strconv.ParseUint(total, 10, 62)
	if errors.Join(err1, err2, err3) != nil || a > b || b >= n {
		return 0, 0, 0, false
	}
	return unit.Bytes(a), unit.Bytes(b + 1), unit.Bytes(n), true
}
