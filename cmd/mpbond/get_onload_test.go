// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mpbond/base/identity"
	"mpbond/base/unit"
	"mpbond/internal/cli"
	"mpbond/link/tcp"
	"mpbond/onload/fetch"
	"mpbond/onload/relay"
)

// serveSite serves the same file at every path, slowly.
func serveSite(t *testing.T) (url string, data []byte) {
	t.Helper()
	data = make([]byte, 4<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/none") {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("ETag", `"v1"`)
		http.ServeContent(&slowWriter{w, 20 * unit.Mbps}, r, "x.bin", time.Time{}, bytes.NewReader(data))
	}))
	t.Cleanup(s.Close)
	return s.URL, data
}

// slowWriter writes at a rate.
type slowWriter struct {
	http.ResponseWriter
	rate unit.Rate
}

func (s *slowWriter) Write(p []byte) (int, error) {
	time.Sleep(s.rate.Time(unit.Bytes(len(p)))) // the rate
	return s.ResponseWriter.Write(p)
}

// newPhone starts a helper that relays and returns the device that uses it.
func newPhone(t *testing.T) fetch.Device {
	return fetch.Device{Name: "phone", Transport: dialPhone(t).Transport()}
}

func dialPhone(t *testing.T) *relay.Dialer {
	t.Helper()
	var keys [2]*identity.Key
	for i := range keys {
		var err error
		if keys[i], err = identity.Generate(); err != nil {
			t.Fatal(err)
		}
	}
	trust, err := identity.OpenTrust(filepath.Join(t.TempDir(), "trust.toml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := trust.Add(identity.Peer{Name: "laptop", Key: keys[0].Public(),
		Roles: []identity.Role{identity.RolePrimary}}); err != nil {
		t.Fatal(err)
	}
	l, err := tcp.Listen(t.Context(), "127.0.0.1:0", tcp.Options{})
	if err != nil {
		t.Fatal(err)
	}
	r := relay.New(relay.Config{Key: keys[1], Trust: trust,
		AllowedPrefixes: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		CheckAllowed: func(context.Context, identity.Peer,
			string) error {
			return nil
		}, Log: slog.New(slog.DiscardHandler)})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.Serve(ctx, l) }()
	t.Cleanup(func() { cancel(); <-done })
	return &relay.Dialer{Key: keys[0], Helper: identity.Peer{Name: "phone", Key: keys[1].Public()},
		Addresses: []string{l.Addr().String()}}
}

// TestGetOnload fetches a file over this device and a helper, through a real relay.
func TestGetOnload(t *testing.T) {
	newHome(t)
	t.Chdir(t.TempDir())
	url, data := serveSite(t)
	g, err := newOnloadTask(getOptions{sha256: fmt.Sprintf("%x", sha256.Sum256(data)), quiet: true},
		[]string{url + "/file.bin"})
	if err != nil {
		t.Fatal(err)
	}
	helper := newPhone(t)
	g.find = func(context.Context) ([]fetch.Device, error) { return []fetch.Device{helper}, nil }
	res, err := g.runOnloadDownload(t.Context(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile("file.bin"); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if len(res.Devices) != 2 || res.Devices[0].Device != localLinkName || res.Devices[1].Device != "phone" ||
		res.Bytes != unit.Bytes(len(data)) {
		t.Fatalf("%+v", res)
	}
	for _, d := range res.Devices {
		if d.Fraction < 0.2 {
			t.Errorf("%s had %.0f %%", d.Device, 100*d.Fraction)
		}
	}
	text := res.String()
	if !strings.Contains(text, "file.bin: 4.19 MB in") || !strings.Contains(text, "phone ") {
		t.Error(text)
	}
}

func TestGetOnloadAlone(t *testing.T) {
	newHome(t)
	t.Chdir(t.TempDir())
	url, data := serveSite(t)
	code, out, errs := runProgram(t, "get", "--onload", "--json", "--interface", "lo", url+"/a", url+"/b")
	var res onloadResult
	if err := json.Unmarshal([]byte(out), &res); code != cli.ExitOK || err != nil {
		t.Fatalf("code %d, %v: %s%s", code, err, out, errs)
	}
	if len(res.Objects) != 2 || res.Bytes != unit.Bytes(2*len(data)) || res.RateBps <= 0 ||
		res.Devices[0].Device != "lo" || !strings.Contains(errs, "no helper") {
		t.Errorf("%+v\n%s", res, errs)
	}
	if err := os.Mkdir("dir", 0o755); err != nil {
		t.Fatal(err)
	}
	// A second run replaces the file only if it is named, and one missing file does not stop
	// others.
	code, _, errs = runProgram(t, "get", "--onload", url+"/a")
	if code != cli.ExitFailure || !strings.Contains(errs, "already exists") {
		t.Errorf("code %d: %s", code, errs)
	}
	code, _, errs = runProgram(t, "get", "--onload", "-o", "a", url+"/b")
	if code != cli.ExitOK || !strings.Contains(errs, "a: 4.19 MB in") {
		t.Errorf("code %d: %s", code, errs)
	}
	code, _, errs = runProgram(t, "get", "--onload", "-o", "dir", url+"/a", url+"/none")
	if _, err := os.Stat("dir/a"); err != nil || code != cli.ExitFailure ||
		!strings.Contains(errs, "dir/none: the web server answered 404") || !strings.Contains(errs, "dir/a") {
		t.Errorf("code %d, %v: %s", code, err, errs)
	}
}

func TestGetOnloadRefuses(t *testing.T) {
	newHome(t)
	t.Chdir(t.TempDir())
	url := "http://127.0.0.1:1"
	for _, c := range []struct {
		args string
		code int
		text string
	}{
		{url + "/a " + url + "/b", cli.ExitUsage, "need --onload"},
		{"--interface lo " + url + "/a", cli.ExitUsage, "need --onload"},
		{"--onload -o - " + url + "/a", cli.ExitUsage, "--output"},
		{"--onload -o /dev/null " + url + "/a " + url + "/b", cli.ExitUsage, "directory"},
		{"--onload -o /dev/null/x/ " + url + "/a", cli.ExitUsage, "not a directory"},
		{"--onload -o /dev/null " + url + "/a", cli.ExitUsage, "plain file"},
		{"--onload --sha256 " + strings.Repeat("0", 64) + " " + url + "/a " + url + "/b", cli.ExitUsage,
			"exactly one URL"},
		{"--onload --sha256 beef " + url + "/a", cli.ExitUsage, "64"},
		{"--onload --socket x " + url + "/a", cli.ExitUsage, "--socket"},
		{"--onload " + url + "/a " + url + "/x/a", cli.ExitUsage, "two of the URLs"},
		{"--onload " + url + "/", cli.ExitUsage, "--output"},
		{"--onload ftp://x/a", cli.ExitUsage, "web address"},
		{"--onload --interface none0 " + url + "/a", cli.ExitUsage, "none0"},
		{"--onload --scheduler x " + url + "/a", cli.ExitUsage, "auto"},
		{"--onload " + url + "/a", cli.ExitNoConnection, "refused"},
	} {
		code, out, errs := runProgram(t, append([]string{"get"}, strings.Fields(c.args)...)...)
		if code != c.code || !strings.Contains(errs, c.text) {
			t.Errorf("%s: code %d, want %d and %q:\n%s%s", c.args, code, c.code, c.text, out, errs)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	g, err := newOnloadTask(getOptions{}, []string{url + "/a"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := g.runOnloadDownload(ctx, t.Output()); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Error(err)
	}
	g.find = func(context.Context) ([]fetch.Device, error) { return nil, errors.New("no network") }
	var said bytes.Buffer
	if _, err := g.runOnloadDownload(t.Context(), &said); err == nil || !strings.Contains(said.String(), "no network") {
		t.Error(err, said.String())
	}
	if list, _ := os.ReadDir("."); len(list) > 0 {
		t.Errorf("left: %v", list)
	}
}
