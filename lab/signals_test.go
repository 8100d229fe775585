// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/api"
)

// TestSendReports: reports arrive at their times, those of one time together; what was reported before the
// transfer is left out; the end of the transfer ends them, and so does an error.
func TestSendReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reports []CellReport
		for i := range 4 {
			at := time.Duration(i) * time.Second
			reports = append(reports, CellReport{at, "m", api.ServingCell{Cell: fmt.Sprint(i)}})
			if i != 2 {
				reports = append(reports, CellReport{at, "u", api.ServingCell{Cell: fmt.Sprint(10 + i)}})
			}
		}
		start := time.Now()
		var got []string
		send := func(cells map[string]api.ServingCell) error {
			got = append(got, fmt.Sprint(time.Since(start), cells["m"].Cell, " ", cells["u"].Cell))
			return nil
		}
		if err := sendReports(t.Context(), reports, start.Add(-500*time.Millisecond), send); err != nil {
			t.Fatal(err)
		}
		if want := []string{"500ms1 11", "1.5s2 ", "2.5s3 13"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		got = nil
		if err := sendReports(ctx, reports, time.Now(), send); err != nil || len(got) != 2 {
			t.Errorf("%q, %v", got, err)
		}
		failed := errors.New("failed")
		if err := sendReports(t.Context(), reports, time.Now(), func(map[string]api.ServingCell) error {
			return failed
		}); err != failed {
			t.Errorf("%v", err)
		}
	})
}

// TestWhoTakesReports: mpbond does unless its name says otherwise, kernel MPTCP does not.
func TestWhoTakesReports(t *testing.T) {
	for name, want := range map[string]bool{"mpbond": true, "mpbond:if=a+b": true, "mpbond:if=a+b:nohint": false,
		"mptcp:own": false, "single": false} {
		s, err := newSchemeByName(name)
		if err != nil {
			t.Fatal(err)
		}
		taker, ok := s.(reportTaker)
		if got := ok && taker.takesReports(); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
