// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"

	"mpbond/api"
	"mpbond/base/unit"
	"mpbond/internal/cli"
)

// TestAdvise checks how advice is printed, and that invalid requests and a primary without subflows
// give errors with hints.
func TestAdvise(t *testing.T) {
	var page bytes.Buffer
	if err := printAdvice(&page, api.Advice{
		Subflows: []api.AdvisedSubflow{
			{ID: 1, Device: "laptop", Kind: api.Direct, Radio: "wifi", DownBps: 30e6, UpBps: 20e6, RTTms: 21, LossPercent: .7},
			{ID: 2, Device: "phone", Kind: api.Helped, Radio: "cellular", Asleep: true, DownBps: 10e6, UpBps: 5e6,
				DownGuessed: true, Tier: "secondary"}},
		Transfers: []api.AdvisedTransfer{{Name: "song", Bytes: 8 * unit.MB, Reason: "one subflow suffices",
			OtherFromBytes: 90 * unit.MB,
			Sets: []api.AdvisedSet{{Subflows: []uint32{1}, Seconds: 2.2, Joules: 3.1},
				{Subflows: []uint32{1, 2}, Seconds: .31, Joules: 12.6, WhyNot: "its energy is not worth the time that it saves"}}},
			{Name: "video", Bytes: 2 * unit.MB, EverySeconds: 5, Reason: "one subflow suffices"}},
		Rule: "rule 1 says bond; the scheduler has subflows 1 by laptop",
	}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"cellular, asleep", "~10 Mbit/s", "0.7 %", "song, 8 MB down: one subflow suffices",
		"subflow 1    2.2 s   3.1 J", "subflow 1 2  310 ms  12.6 J  its energy", "from 90 MB on",
		"video, 2 MB down each 5 s: one",
		"\nrule 1 says bond; the"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("%q is not in\n%s", want, &page)
		}
	}
	page.Reset()
	if err := printForecasts(&page, api.PastForecasts{}); err != nil ||
		!strings.Contains(page.String(), "no forecast was") {
		t.Errorf("without forecasts: %q, %v", &page, err)
	}
	page.Reset()
	if err := printForecasts(&page, api.PastForecasts{MedianErrorPercent: 12, Forecasts: []api.CheckedForecast{
		{Bytes: 512 * unit.KB, Subflows: 2, Seconds: .4, ExpectedSeconds: .45}}}); err != nil ||
		!strings.Contains(page.String(), "512 KB  2         400 ms  450 ms") ||
		!strings.Contains(page.String(), "the last forecast was wrong by 12 %") {
		t.Errorf("with one: %q, %v", &page, err)
	}
	newPairedHome(t)
	expectFailure(t, cli.ExitUsage, "8 apples", "advise --help", "advise", "--size", "8 apples")
	expectFailure(t, cli.ExitUsage, "at least one byte", "advise --help", "advise", "--size", "0")
	expectFailure(t, cli.ExitUsage, "--up needs --size", "advise --help", "advise", "--up")
	for _, other := range [][]string{{"--history"}, {"--up"}, {"--size", "1MB"}, {"--app", "curl"}} {
		expectFailure(t, cli.ExitUsage, "leave out the other flags", "advise --help",
			append([]string{"advise", "--forget"}, other...)...)
	}
	expectFailure(t, cli.ExitUsage, "leave out --size", "advise --help", "advise", "--history", "--size", "1MB")
	expectFailure(t, cli.ExitUsage, "and --app", "advise --help", "advise", "--history", "--app", "curl")
	expectFailure(t, cli.ExitNoConnection, "not running", "mpbond primary", "advise", "--forget")
	expectFailure(t, cli.ExitNoConnection, "not running", "mpbond primary", "advise")
	_, _ = startRole(t, portlessPrimary...)
	expectFailure(t, cli.ExitFailure, "no subflow is up", "mpbond status", "advise")
	if code, out, _ := runProgram(t, "advise", "--history"); code != 0 || !strings.Contains(out, "no forecast was") {
		t.Errorf("without a subflow: %d, %q", code, out)
	}
	if code, out, errs := runProgram(t, "advise", "--forget"); code != 0 || out+errs != "" {
		t.Errorf("--forget: %d, %q, %q", code, out, errs)
	}
	expectFailure(t, cli.ExitUsage, "a size of", "1 byte", "advise", "--size", "10000GB")
}
