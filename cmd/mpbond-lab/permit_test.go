// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"mpbond/base/identity"
	"mpbond/base/porttest"
	"mpbond/base/waittest"
	"mpbond/internal/cli"
	"mpbond/internal/cli/clitest"
	"mpbond/onload/allowance"
	"mpbond/onload/permit"
	"mpbond/pbe/cell"
)

// The service grants permits while the load of the cell is below the threshold. ask and status
// print its answers.
func TestPermitService(t *testing.T) {
	dir := clitest.Home(t)
	key, trust, err := cli.LoadIdentity()
	if err != nil {
		t.Fatal(err)
	}
	if err := trust.Add(identity.Peer{Name: "phone", Key: key.Public(),
		Roles: []identity.Role{identity.RoleHelper}}); err != nil {
		t.Fatal(err)
	}
	// The service admits few connections a minute: the test must not ask often before a load is
	// read.
	defer func(d time.Duration) { loadPollInterval = d }(loadPollInterval)
	loadPollInterval = 10 * time.Millisecond
	load, service := filepath.Join(dir, "load"), porttest.FreeAddress(t)
	clitest.ReplaceFile(t, load, "91%\n")
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() {
		ended <- mpbondLabProgram().Run(ctx, []string{"permit", "serve", "--listen", service, "--cell", "north=load:" + load,
			"--life", "1m"}, io.Discard, io.Discard)
	}()
	defer func() {
		stop()
		if code := <-ended; code != cli.ExitOK {
			t.Errorf("the service ends with %d", code)
		}
	}()
	ask := func(want string, code int) {
		t.Helper()
		waittest.UntilSuccess(t, func() error {
			got, out, errs := runProgram(t, "permit", "ask", service, "--key", key.Public().String())
			if got != code || !strings.Contains(out, want) {
				return fmt.Errorf("code %d, want %d and %q: %s%s", got, code, want, out, errs)
			}
			return nil
		})
	}
	ask("cell north, load 91 %: not permitted", cli.ExitFailure)
	clitest.ReplaceFile(t, load, "0.3")
	ask("permitted for 1m0s", cli.ExitOK)
	if code, out, errs := runProgram(t, "permit", "status", service); code != cli.ExitOK ||
		!strings.Contains(out, "north  30 %  1 of 16  yes") || !strings.Contains(out, "phone   north  ") {
		t.Errorf("code %d, %s%s", code, out, errs)
	}
	var report permit.Report
	if code, out, errs := runProgram(t, "permit", "status", "--json", service); code != cli.ExitOK ||
		json.Unmarshal([]byte(out), &report) != nil || len(report.Cells) != 1 || len(report.Cells[0].Permits) != 1 {
		t.Errorf("code %d, %s%s", code, out, errs)
	}
	clitest.ReplaceFile(t, load, "0.9")
	ask("load 90 %: not permitted", cli.ExitFailure)
}

// A service without a readable load does not start.
func TestPermitUsage(t *testing.T) {
	clitest.Home(t)
	for _, c := range []struct{ args, text string }{
		{"serve", "cell"}, {"serve --cell north", "NAME=SOURCE"}, {"serve --cell a=load:x --cell a=load:y", "twice"},
		{"serve --cell a=load:x --threshold 130%", "70%"}, {"serve --cell a=load:x --life 1s", "10s"},
		{"serve --cell a=load:x --most 0", "at least 1"},
		{"serve --cell a=load:x --listen nowhere", "--listen"}, {"ask 127.0.0.1:1", "key"},
		{"ask 127.0.0.1:1 --key mpb1", "characters"},
	} {
		if code, out, errs := runProgram(t,
			append([]string{"permit"}, strings.Fields(c.args)...)...); code != cli.ExitUsage ||
			!strings.Contains(errs, c.text) {
			t.Errorf("%s: code %d, %s%s", c.args, code, out, errs)
		}
	}
	if code, _, errs := runProgram(t, "permit", "serve", "--cell", "a=lode:x"); code != cli.ExitFailure ||
		!strings.Contains(errs, "load:PATH") {
		t.Errorf("no such source: code %d, %s", code, errs)
	}
	if text := formatAnswer(allowance.Answer{Cell: "south",
		Reason: "the operator knows no such cell"}); text != "cell south: not permitted: the operator knows no "+
		"such cell" {
		t.Error(text)
	}
	if code, _, errs := runProgram(t, "permit", "status", "127.0.0.1:1"); code != cli.ExitNoConnection {
		t.Errorf("code %d, %s", code, errs)
	}
	empty := clitest.Home(t)
	if code, _, errs := runProgram(t, "permit", "status", "127.0.0.1:1"); code == cli.ExitOK ||
		!strings.Contains(errs, filepath.Join(empty, "device.key")) {
		t.Errorf("without a key: code %d, %s", code, errs)
	}
	if list, err := os.ReadDir(empty); len(list) != 0 || err != nil {
		t.Error("something is made for who only asks:", list, err)
	}
	key, err := identity.Generate()
	if err != nil {
		t.Fatal(err)
	}
	if code, _, errs := runProgram(t, "permit", "ask", "127.0.0.1:1", "--key",
		key.Public().String()); code != cli.ExitNoConnection {
		t.Errorf("code %d, %s", code, errs)
	}
}

// The load of control messages is the share of allocated resource blocks, at the pace of a
// recording.
func TestObserveLoad(t *testing.T) {
	var b bytes.Buffer
	w, err := cell.NewWriter(&b, [cell.MaxCells]uint8{50})
	if err != nil {
		t.Fatal(err)
	}
	for n := range int64(1200) {
		if err := w.Write(cell.Subframe{PRB: 50, Number: n, Grants: []cell.Grant{{RNTI: 0x100, Format: cell.Format1,
			PRB: 20}}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var reported []float64
	begin := time.Now()
	if err := observeLoad(t.Context(), bytes.NewReader(b.Bytes()), true, func(l float64) {
		mu.Lock()
		reported = append(reported, l)
		mu.Unlock()
	}); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begin); took < 1100*time.Millisecond || len(reported) == 0 || reported[0] < .399 ||
		reported[0] > .401 {
		t.Errorf("%v after %v", reported, took)
	}
	if err := observeLoad(t.Context(), strings.NewReader("x"), true, nil); err == nil {
		t.Error("nonsense is heard")
	}
}
