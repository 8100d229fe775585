// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"html"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"mpbond/api"
	"mpbond/api/serve"
	"mpbond/base/fault"
	"mpbond/base/userfile"
	"mpbond/internal/cli"
)

// consoleAddress is the address of one role's console. The JSON is a contract.
type consoleAddress struct {
	Role string `json:"role"`
	URL  string `json:"url"` // with the token
}

func consoleCommand() *cobra.Command {
	var socket string
	var open, asJSON bool
	cmd := &cobra.Command{
		Use: "console", Short: "print the address of the web console", Args: cobra.NoArgs,
		Long: `Print the address of the web console of each mpbond that you run here with --api,
or with api in its configuration. As root it prints those of the services.

The part after # is the token that grants access. The browser keeps it for the tab
and sends it only to mpbond. Do not share the address.

The console listens on a loopback address. From another machine or a phone use an ssh
tunnel to the same port: ssh -L 7680:127.0.0.1:7680 HOST.`,
		Example: `  mpbond primary --api 127.0.0.1:7680
  mpbond console --open`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			all, err := queryStatus(cmd.Context(), statusSockets(socket), false)
			if err != nil {
				return err
			}
			list, err := listConsoles(all)
			if err != nil {
				return err
			}
			if open {
				return openConsole(cmd.Context(), list[0].URL)
			}
			for _, c := range list {
				if asJSON {
					if err := cli.PrintJSON(cmd.OutOrStdout(), c); err != nil {
						return err
					}
					continue
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", c.Role, c.URL)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&socket, "socket", "", "ask only the mpbond at this `PATH`")
	f.BoolVar(&open, "open", false, "open the first console in the browser of this desktop")
	f.BoolVar(&asJSON, "json", false, "print JSON, one object on a line for each console")
	return cmd
}

// listConsoles returns the consoles of those roles that serve the API over TCP.
func listConsoles(all []api.Status) (list []consoleAddress, err error) {
	path, err := apiTokenPath()
	if err != nil {
		return nil, err
	}
	for _, s := range all {
		if s.API == "" {
			continue
		}
		token, err := serve.ReadToken(path)
		if err != nil {
			return nil, err
		}
		list = append(list, consoleAddress{s.Role, "http://" + s.API + "/#token=" + token})
	}
	if len(list) == 0 {
		return nil, fault.New(fault.NotRunning, errors.New("no mpbond here serves the console"),
			`start it with --api 127.0.0.1:7680, or set api = "127.0.0.1:7680" in its configuration`)
	}
	return list, nil
}

// openConsole opens a page in the desktop's browser that redirects to url. The token is in that
// file, which only its owner can read: every local user can read command lines.
func openConsole(ctx context.Context, url string) error {
	path := filepath.Join(api.RuntimeDir(), "console.html")
	page := fmt.Sprintf("<!doctype html><meta charset=utf-8><meta name=referrer "+
		"content=no-referrer><title>mpbond</title>"+
		"<meta http-equiv=refresh content=\"0;url=%s\">\n", html.EscapeString(url))
	if err := userfile.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := userfile.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(page)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "xdg-open", path).CombinedOutput(); err != nil {
		return fault.New(fault.Unsupported, fmt.Errorf("xdg-open: %w: %s", err, out),
			"open the address that `mpbond console` prints")
	}
	return nil
}
