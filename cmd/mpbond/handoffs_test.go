// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"mpbond/api"
	"mpbond/internal/cli"
)

// TestHandoffs checks how handoffs are printed, and that without a primary there is an error.
func TestHandoffs(t *testing.T) {
	var page bytes.Buffer
	now := time.Unix(1e9, 0)
	if err := printHandoffs(&page, api.Handoffs{Links: []api.LinkHandoffs{
		{Interface: "wwan0", Cell: "26202-1A2B", Probability: 0.41, Evidence: "-112 dBm, neighbour 4 dB better", Count: 9,
			Foreseen: 6, FalseAlarms: 11, Last: now.Add(-9 * time.Second)},
		{Interface: "wwan1", Cell: "x\x1b[2J"}}}, now); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"wwan0  26202-1A2B", "9         6         11            9s ago",
		"41 % (-112 dBm, neighbour 4 dB better)", "unknown"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("%q is not in\n%s", want, &page)
		}
	}
	if strings.Contains(page.String(), "\x1b") {
		t.Errorf("control characters are printed:\n%q", &page)
	}
	page.Reset()
	if err := printHandoffs(&page, api.Handoffs{}, now); err != nil || !strings.Contains(page.String(), "no cell of a") {
		t.Errorf("%q, %v", &page, err)
	}
	newPairedHome(t)
	expectFailure(t, cli.ExitNoConnection, "not running", "mpbond primary", "handoffs")
	_, _ = startRole(t, portlessPrimary...)
	if code, out, _ := runProgram(t, "handoffs"); code != 0 || !strings.Contains(out, "no cell of a mobile link") {
		t.Errorf("without reports: %d, %q", code, out)
	}
	if code, out, _ := runProgram(t, "handoffs", "--json"); code != 0 || strings.TrimSpace(out) != `{"links":[]}` {
		t.Errorf("as JSON: %d, %q", code, out)
	}
}
