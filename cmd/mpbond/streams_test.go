// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"

	"mpbond/api"
	"mpbond/api/client"
	"mpbond/base/fault"
	"mpbond/internal/cli"
)

// TestStreams checks the list of streams with their subflows, and that invalid requests fail before
// the primary is asked.
func TestStreams(t *testing.T) {
	var page bytes.Buffer
	list := []api.BondStream{
		{Bond: "b", Stream: api.Stream{ID: 7, Dest: "web:80", Mode: "latency", Priority: "high", Weight: 3,
			Down: api.StreamChoice{Subflows: []uint32{2}, Reason: "policy"}}},
		{Bond: "b", Stream: api.Stream{ID: 6, Dest: "a:1", Mode: "bond", Priority: "normal", Weight: 1}},
	}
	if err := printStreams(&page, list, false); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"latency  high", "down 2 (policy), up any", "bond     normal"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("%q is not in\n%s", want, &page)
		}
	}
	newPairedHome(t)
	expectFailure(t, cli.ExitUsage, "NUMBER of the stream is missing", "streams --help", "streams", "--mode", "bond")
	expectFailure(t, cli.ExitUsage, "not the number of a stream", "streams --help", "streams", "x")
	expectFailure(t, cli.ExitUsage, "ends the stream", "streams --help", "streams", "7", "--reset", "--mode", "bond")
	_, _ = startRole(t, portlessPrimary...)
	c := client.New(api.SocketPath("primary"))
	defer c.Close()
	mode := "bond"
	if err := c.ChangeStream(t.Context(), "x", 1, api.StreamChange{Mode: &mode}); !fault.Is(err, fault.NotFound) {
		t.Errorf("a bond that there is not: %v", err)
	}
	expectFailure(t, cli.ExitFailure, "no stream 9", "lists the streams", "streams", "9", "--weight", "2")
	if code, out, errs := runProgram(t, "streams", "--json"); code != 0 || strings.TrimSpace(out) != "[]" {
		t.Errorf("%d, %s%s", code, out, errs)
	}
}
