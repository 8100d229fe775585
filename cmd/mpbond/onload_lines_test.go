// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"mpbond/api"
	"mpbond/onload/fetch"
)

// TestOnloadLines checks what `mpbond status` prints about onloading.
func TestOnloadLines(t *testing.T) {
	of := api.OnloadStatus{Listen: "[::]:7604", Open: true, Why: "the configured daily limit", Bounded: true,
		DayBytes: 200e6, LeftBytes: 138e6, CarriedBytes: 62e6,
		Tunnels: []api.Tunnel{{Device: "laptop", UpBytes: 1e6, DownBytes: 10e6}, {Device: "desk\x1b"},
			{Device: "laptop", DownBytes: 5e6}}}
	closed := api.OnloadStatus{Listen: "[::]:7604", Why: "suspended: low", CarriedBytes: 5e6, DayBytes: 200e6,
		LeftBytes: 7e6}
	for want, o := range map[string]api.OnloadStatus{
		"onloading open at [::]:7604: the configured daily limit\n" +
			"onloaded today: 62 MB of 200 MB, 138 MB left; 3 connections now\n" +
			"  for desk?: 1 connection, 0 B so far\n  for laptop: 2 connections, 16 MB so far\n": of,
		"onloading closed at [::]:7604: suspended: low\nonloaded today: 5 MB; 0 connections now\n": closed,
	} {
		var out bytes.Buffer
		if printOnload(&out, o); out.String() != want {
			t.Errorf("%q instead of\n%q", out.String(), want)
		}
	}
}

// TestSearchHelpers checks that the result of a search is printed once, and that found helpers are
// passed on.
func TestSearchHelpers(t *testing.T) {
	two := []fetch.Device{{Name: "a"}, {Name: "b\x1b"}}
	for _, c := range []struct {
		list  []fetch.Device
		err   error
		alone bool
		want  string
	}{
		{two, nil, true, "also using a, b?\n"},
		{nil, nil, true, "no helper found: using this device's link only\n"},
		{nil, nil, false, ""},
		{nil, errors.New("no\nnetwork"), true, "no helper found: no?network\n"},
	} {
		var notes safeBuffer
		s := startHelperSearch(t.Context(), func(context.Context) ([]fetch.Device, error) { return c.list, c.err },
			c.alone, &notes)
		var found []fetch.Device
		for d := range s.found {
			found = append(found, d)
		}
		if s.stopSearch(); notes.String() != c.want || len(found) != len(c.list) {
			t.Errorf("%q instead of %q; %v", notes.String(), c.want, found)
		}
	}
	var notes safeBuffer
	s := startHelperSearch(t.Context(), func(ctx context.Context) ([]fetch.Device, error) {
		<-ctx.Done()
		return two,
			ctx.Err()
	}, true, &notes)
	if s.stopSearch(); notes.String() != "" {
		t.Errorf("%q, after all was done", notes.String())
	}
}
