// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mpbond/api"
	"mpbond/base/fault"
	"mpbond/base/porttest"
	"mpbond/internal/cli"
	"mpbond/internal/cli/clitest"
	"mpbond/node/helper"
	"mpbond/onload/allowance"
	"mpbond/onload/fetch"
	"mpbond/onload/upload"
)

// TestNoneOfAll checks that an unreachable server is reported once for each device and at the end
// for all.
func TestNoneOfAll(t *testing.T) {
	newHome(t)
	t.Chdir(t.TempDir())
	clitest.ReplaceFile(t, "a.txt", "hello")
	find := func(context.Context) ([]fetch.Device, error) { return []fetch.Device{newPhone(t)}, nil }
	url := "http://" + porttest.FreeAddress(t) + "/"
	for name, run := range map[string]func(io.Writer) error{
		"get": func(w io.Writer) error {
			g, err := newOnloadTask(getOptions{}, []string{url + "x"})
			if err != nil {
				return err
			}
			g.find = find
			_, err = g.runOnloadDownload(t.Context(), w)
			return err
		},
		"put": func(w io.Writer) error {
			p := &putTask{putOptions: putOptions{to: url, method: "put"}, find: find}
			if err := p.readArguments([]string{"a.txt"}); err != nil {
				return err
			}
			_, err := p.runOnloadUpload(t.Context(), w)
			return err
		},
	} {
		var notes safeBuffer
		err := run(&notes)
		if !fault.Is(err, fault.Unreachable) || !strings.Contains(err.Error(), "failed over all 2 devices: ") ||
			!strings.Contains(fault.HintOf(err), "the server is up") {
			t.Errorf("%s: %v, %q", name, err, fault.HintOf(err))
		}
		for _, want := range []string{"this device fails, retrying: ",
			"phone fails, retrying: "} {
			if strings.Count(notes.String(), want) != 1 {
				t.Errorf("%s: %q in\n%s", name, want, &notes)
			}
		}
	}
}

// TestPutWords checks that skipped files are reported and useless flags refused.
func TestPutWords(t *testing.T) {
	newHome(t)
	dir := t.TempDir()
	clitest.ReplaceFile(t, filepath.Join(dir, "a.txt"), "hello")
	for _, link := range []string{"1", "2", "3", "4"} {
		if err := os.Symlink("nowhere", filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	p := &putTask{putOptions: putOptions{to: "http://" + porttest.FreeAddress(t) + "/", method: "put"},
		find: func(context.Context) ([]fetch.Device, error) { return nil, nil }}
	if err := p.readArguments([]string{dir}); err != nil || len(p.files) != 1 {
		t.Fatal(err, p.files)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var notes safeBuffer
	if _, err := p.runOnloadUpload(ctx, &notes); err == nil || !strings.Contains(notes.String(),
		"not plain files: "+filepath.Join(dir, "1")+", ") || !strings.Contains(notes.String(), " and 1 more\n") {
		t.Errorf("%v: %s", err, &notes)
	}
	for args, want := range map[string]string{
		"--form a=b": "--method post", "--interface lo --interface lo": "given twice", "--keep none": "existing files",
	} {
		code, _, errs := runProgram(t, append([]string{"put", "--to", p.to, filepath.Join(dir, "a.txt")},
			strings.Fields(args)...)...)
		if code == cli.ExitOK || !strings.Contains(errs, want) {
			t.Errorf("%s: code %d, %s", args, code, errs)
		}
	}
	if s := newPutResult(upload.Result{Files: []upload.Sent{{Bytes: 20e6}}}).String(); !strings.HasPrefix(s,
		"1 file: 20 MB in ") {
		t.Error(s)
	}
}

// TestOnloadWords checks the warnings about settings without effect and the status of a helper that
// only onloads.
func TestOnloadWords(t *testing.T) {
	for text, want := range map[string]string{
		"[onload.page]\nhome = \"lo\"": "set `to`",
	} {
		clitest.ReplaceFile(t, filepath.Join(newHome(t), "helper.toml"), "[onload]\n"+text)
		if code, _, errs := runProgram(t, "helper"); code != cli.ExitUsage || !strings.Contains(errs, want) {
			t.Errorf("%s: code %d, %s", text, code, errs)
		}
	}
	newHome(t)
	for args, want := range map[string]string{"--onload 200MB": "--onload=200MB", "--onload much": "does not take",
		"200MB": "does not take"} {
		if code, _, errs := runProgram(t, append([]string{"helper"},
			strings.Fields(args)...)...); code != cli.ExitUsage || !strings.Contains(errs, want) {
			t.Errorf("%s: code %d, %s", args, code, errs)
		}
	}
	var logged safeBuffer
	before := slog.Default()
	defer slog.SetDefault(before)
	slog.SetDefault(slog.New(slog.NewTextHandler(&logged, nil)))
	if err := new(role).initOnload(onloadConfig{Listen: "127.0.0.1:0"}, helper.Config{HSInterface: "lo"}, nil,
		nil); err != nil || !strings.Contains(logged.String(), "has no allowance") {
		t.Errorf("%v, %s", err, &logged)
	}
	absent := onloadConfig{Allowance: allowance.Choice{Unlimited: true}, Listen: "192.0.2.1:1", Interface: "nope0"}
	key, trust, err := cli.LoadIdentity()
	if err != nil {
		t.Fatal(err)
	}
	h, err := helper.New(helper.Config{}, "phone", helper.Identity{Key: key, Trust: trust}, slog.Default(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := new(role).initOnload(absent, helper.Config{}, nil, h); err == nil ||
		!strings.Contains(logged.String(), "interface=nope0") {
		t.Errorf("%v, %s", err, &logged)
	}
	var out bytes.Buffer
	printStatus(&out, api.Status{Role: "helper", Helper: &api.HelperStatus{LastError: "refused"},
		Onload: &api.OnloadStatus{}})
	if s := out.String(); !strings.Contains(s, "onloading needs none") || strings.Contains(s, "refused") {
		t.Error(s)
	}
}
