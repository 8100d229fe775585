// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"mpbond/onload/transfer"
)

// TestConflictingSources checks that an object seen only by conflicting devices is distrusted, for its host and
// plain HTTP only.
func TestConflictingSources(t *testing.T) {
	own, a, b := new(transfer.Worker), new(transfer.Worker), new(transfer.Worker)
	l := conflicts{}
	l.addConflict("h", a, errors.New("another one"))
	l.addConflict("h", b, errors.New("another one"))
	for _, c := range []struct {
		url  string
		seen []*transfer.Worker
		want bool
	}{
		{"http://h/1", []*transfer.Worker{a}, true},
		{"http://h/1", []*transfer.Worker{a, b}, true},
		{"http://h/1", []*transfer.Worker{a, own}, false},
		{"http://h/1", nil, false},
		{"http://other/1", []*transfer.Worker{a}, false},
		{"https://h/1", []*transfer.Worker{a}, false},
	} {
		o := &object{Object: Object{URL: c.url}}
		o.clearDevices()
		for _, w := range c.seen {
			o.seenBy[w] = true
		}
		if l.hasOnlyConflicting(o) != c.want {
			t.Errorf("%+v", c)
		}
	}
}

// answers is a transport that responds to GET with a status, and to other methods with 405.
type answers int

// RoundTrip implements http.RoundTripper.
func (s answers) RoundTrip(r *http.Request) (*http.Response, error) {
	if s == 0 {
		return nil, errors.New("no line")
	}
	status := int(s)
	if r.Method != http.MethodGet {
		status = http.StatusMethodNotAllowed
	}
	return &http.Response{StatusCode: status, ContentLength: 7, Header: http.Header{},
		Body: http.NoBody, Request: r}, nil
}

// TestInquirer checks that the first definite response counts, and that "not found" is one.
func TestInquirer(t *testing.T) {
	for _, c := range []struct {
		lines []answers
		by    int // -1: none
		gone  bool
	}{
		{[]answers{0, 200}, 1, false},
		{[]answers{503, 404, 200}, 1, true},
		{[]answers{410}, 0, true},
		{[]answers{0, 503, 403}, -1, false},
		{nil, -1, false},
	} {
		var of []*transfer.Worker
		for _, s := range c.lines {
			of = append(of, &transfer.Worker{Client: &http.Client{Transport: s}})
		}
		by, is, gone := versionProber{"test"}.probeDevices(t.Context(), time.Second, of, "http://h/1")
		if c.by < 0 && by != nil || c.by >= 0 && by != of[c.by] || (gone != nil) != c.gone || by != nil &&
			gone == nil && is.Size != 7 {
			t.Errorf("%+v: %v, %v, %v", c, by, is, gone)
		}
	}
}
