// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net"
	"os"
	"strings"
	"testing"

	"mpbond/api"
	"mpbond/api/serve"
	"mpbond/base/fault"
	"mpbond/base/userfile"
)

// TestConsoles checks that an address contains the token after the #, and that there is none if the
// API is not served over TCP.
func TestConsoles(t *testing.T) {
	t.Setenv("MPBOND_HOME", t.TempDir())
	if _, err := listConsoles([]api.Status{{Role: "helper"}}); !fault.Is(err, fault.NotRunning) ||
		!strings.Contains(fault.HintOf(err), "--api") {
		t.Error(err)
	}
	running := []api.Status{{Role: "helper"}, {Role: "primary", API: "127.0.0.1:7680"},
		{Role: "server", API: "[::1]:7681"}}
	path, err := apiTokenPath()
	if err != nil {
		t.Fatal(err)
	}
	// The running mpbond owns the token: the command creates none.
	if _, err := listConsoles(running); !fault.Is(err, fault.NotFound) ||
		!strings.Contains(fault.HintOf(err), "start the mpbond") || userfile.Exists(path) {
		t.Error(err, fault.HintOf(err))
	}
	if _, err := serve.LoadOrCreateToken(path); err != nil {
		t.Fatal(err)
	}
	list, err := listConsoles(running)
	if err != nil || len(list) != 2 || list[0].Role != "primary" {
		t.Fatal(list, err)
	}
	for i, at := range []string{"127.0.0.1:7680", "[::1]:7681"} {
		host, token, _ := strings.Cut(list[i].URL, "/#token=")
		if host != "http://"+at || len(token) != 43 {
			t.Errorf("%q", list[i].URL)
		}
		if _, _, err := net.SplitHostPort(at); err != nil {
			t.Error(err)
		}
	}
}

// TestOpenConsole checks that the desktop gets the token in a file that only the owner can read,
// and not on a command line.
func TestOpenConsole(t *testing.T) {
	home, tools := t.TempDir(), t.TempDir()
	t.Setenv("MPBOND_HOME", home)
	t.Setenv("PATH", tools+":"+os.Getenv("PATH"))
	if err := os.MkdirAll(home+"/run", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(tools+"/xdg-open",
		[]byte("#!/bin/sh\nprintf '%s ' \"$@\" >"+tools+"/args; stat -c %a \"$1\" >>"+tools+"/args; "+
			"cat \"$1\" >>"+tools+"/args\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for range 2 { // what an earlier one left is replaced
		if err := openConsole(t.Context(), "http://127.0.0.1:1/#token=secret&x"); err != nil {
			t.Fatal(err)
		}
	}
	said, err := os.ReadFile(tools + "/args")
	if err != nil {
		t.Fatal(err)
	}
	line, page, _ := strings.Cut(string(said), "\n")
	if strings.Contains(line, "secret") || !strings.HasSuffix(line, " 600") ||
		!strings.Contains(page, "url=http://127.0.0.1:1/#token=secret&amp;x\"") {
		t.Errorf("%s\n%s", line, page)
	}
}
