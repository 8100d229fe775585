// SPDX-License-Identifier: Apache-2.0

//go:build !router

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"mpbond/base/fault"
	"mpbond/base/porttest"
	"mpbond/base/waittest"
	"mpbond/onload/fetch"
)

// TestPlay fetches a video through the command over two devices, and checks the result at the end.
func TestPlay(t *testing.T) {
	t.Setenv("MPBOND_HOME", t.TempDir())
	segment := strings.Repeat("segment ", 20_000)
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/list.m3u8" {
			_, _ = io.WriteString(w, "#EXTM3U\n#EXTINF:2,\n1.ts\n#EXTINF:2,\n2.ts\n#EXTINF:2,\n3.ts\n")
			return
		}
		http.ServeContent(w, r, r.URL.Path, time.Unix(1e9, 0), strings.NewReader(segment))
	}))
	defer site.Close()
	at := porttest.FreeAddress(t)
	ctx, interrupt := context.WithCancel(t.Context())
	var out bytes.Buffer
	cmd := playCommand()
	cmd.SetContext(ctx)
	cmd.SetOut(&out)
	cmd.SetErr(io.Discard)
	helper := newPhone(t)
	ended := make(chan error, 1)
	go func() {
		ended <- playOptions{listen: at, asJSON: true}.runPlayerProxy(cmd,
			func(context.Context) ([]fetch.Device, error) { return []fetch.Device{helper}, nil })
	}()
	through := &http.Transport{Proxy: func(*http.Request) (*url.URL, error) { return url.Parse("http://" + at) }}
	defer through.CloseIdleConnections()
	player := &http.Client{Transport: through}
	get := func(name string) string {
		var a *http.Response
		waittest.UntilSuccess(t, func() (err error) { // until it listens
			a, err = player.Get(site.URL + name)
			return err
		})
		defer a.Body.Close()
		data, err := io.ReadAll(a.Body)
		if err != nil || a.StatusCode != http.StatusOK {
			t.Errorf("%s: %s, %v", name, a.Status, err)
		}
		return string(data)
	}
	get("/list.m3u8")
	for _, name := range []string{"/1.ts", "/2.ts", "/3.ts"} {
		if get(name) != segment {
			t.Errorf("%s is not what the server has", name)
		}
	}
	through.CloseIdleConnections()
	interrupt()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	var r playResult
	if err := json.Unmarshal(out.Bytes(), &r); err != nil || r.Segments != 3 || int(r.Bytes) != 3*len(segment) ||
		len(r.Devices) != 2 || r.Devices[1].Device != helper.Name {
		t.Errorf("%v: %s", err, &out)
	}
	if s := r.String(); !strings.HasPrefix(s, "3 segments") || !strings.Contains(s, helper.Name) {
		t.Error(s)
	}
	for _, args := range [][]string{{"--listen", "0.0.0.0:0"}, {"--listen", ":0"}, {"--listen", "x"},
		{"--scheduler", "luck", "--listen", at}, {"--listen", at, "--interface", "none0"}} {
		cmd := playCommand()
		cmd.SetArgs(args)
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		if err := cmd.Execute(); !fault.Is(err, fault.Usage) {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// TestUntilEnd checks that failures are passed on while play runs, but not after it has closed its
// connections.
func TestUntilEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	var reported []string
	report := reportUntilDone(ctx, func(device string, err error) { reported = append(reported, device+": "+err.Error()) })
	report("phone", errors.New("gone"))
	cancel()
	report("tablet", errors.New("closed"))
	if len(reported) != 1 || reported[0] != "phone: gone" {
		t.Errorf("reported: %q", reported)
	}
}
