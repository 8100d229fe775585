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

// Two services that share an engine grant together what one would. The second one has its loads from the first, and
// goes on when that has ended.
func TestPermitServicesShare(t *testing.T) {
	dir := clitest.Home(t)
	key, trust, err := cli.LoadIdentity()
	if err != nil {
		t.Fatal(err)
	}
	other, err := identity.Generate()
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string]*identity.Key{"phone": key, "tablet": other} {
		p := identity.Peer{Name: name, Key: key.Public(), Roles: []identity.Role{identity.RoleHelper}}
		if err := trust.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	defer func(d time.Duration) { loadPollInterval = d }(loadPollInterval)
	loadPollInterval = 100 * time.Millisecond
	load := filepath.Join(dir, "load")
	clitest.ReplaceFile(t, load, "0.3")
	engine := "file:" + t.TempDir()
	start := func(name, cell string) (address string, stop func()) {
		address = porttest.FreeAddress(t)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan int, 1)
		go func() {
			ended <- mpbondLabProgram().Run(ctx, []string{"permit", "serve", "--listen", address, "--cell", cell, "--life", "1m",
				"--most", "1", "--fleet", engine, "--name", name}, io.Discard, io.Discard)
		}()
		return address, sync.OnceFunc(func() {
			cancel()
			if code := <-ended; code != cli.ExitOK {
				t.Errorf("service %s ends with %d", name, code)
			}
		})
	}
	first, stopFirst := start("p1", "north=load:"+load)
	defer stopFirst()
	second, stopSecond := start("p2", "north")
	defer stopSecond()
	ask := func(device *identity.Key, service, want string) {
		t.Helper()
		waittest.UntilSuccess(t, func() error {
			a, err := permit.Client{Key: device, Address: service, Service: key.Public()}.RequestPermit(t.Context())
			if err == nil && !strings.Contains(formatAnswer(a), want) {
				err = fmt.Errorf("%s: %s", service, formatAnswer(a))
			}
			return err
		})
	}
	ask(key, first, "permitted for 1m0s")
	ask(other, second, "1 devices already")
	ask(key, second, "permitted for 1m0s")
	for _, service := range []string{first, second} {
		if code, out, errs := runProgram(t, "permit", "status", service); code != cli.ExitOK ||
			!strings.Contains(out, "shared with other services in the directory") || !strings.Contains(out,
			"north  30 %  1 of 1   renewals only") || !strings.Contains(out, "phone   north  ") {
			t.Errorf("code %d, %s%s", code, out, errs)
		}
	}
	stopFirst()
	ask(key, second, "permitted for 1m0s")
	ask(other, second, "1 devices already")
}

// A service without a readable load does not start.
func TestPermitUsage(t *testing.T) {
	clitest.Home(t)
	for _, c := range []struct{ args, text string }{
		{"serve", "cell"}, {"serve --cell north", "NAME=SOURCE"}, {"serve --cell a=load:x --cell a=load:y", "twice"},
		{"serve --cell a=load:x --threshold 130%", "70%"}, {"serve --cell a=load:x --life 1s", "10s"},
		{"serve --cell a=load:x --most 0", "at least 1"},
		{"serve --cell a=load:x --name p1", "--fleet"}, {"serve --cell a=load:x --most 201 --fleet file:x", "200"},
		{"serve --cell a.b=load:x --fleet file:x", "cannot be shared"}, {"serve --cell a= --fleet file:x", "NAME=SOURCE"},
		{"serve --cell a --cell a --fleet file:x", "twice"}, {"serve --cell a --fleet http://x", "not an engine"},
		{"serve --cell a --fleet file:", "directory"}, {"serve --cell a --fleet file:DIR --name a/b", "name"},
		{"serve --cell a=load:x --listen nowhere", "--listen"}, {"ask 127.0.0.1:1", "key"},
		{"ask 127.0.0.1:1 --key mpb1", "characters"},
	} {
		args := strings.ReplaceAll(c.args, "file:DIR", "file:"+t.TempDir())
		if code, out, errs := runProgram(t, append([]string{"permit"}, strings.Fields(args)...)...); code != cli.ExitUsage ||
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
