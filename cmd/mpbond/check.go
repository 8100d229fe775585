// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"mpbond/api/serve"
	"mpbond/base/config"
	"mpbond/base/fault"
	"mpbond/base/text"
	"mpbond/base/userfile"
	"mpbond/internal/cli"
	"mpbond/node/primary"
	"mpbond/node/server"
)

// checkResult is the output of `mpbond check --json` for a file.
type checkResult struct {
	File  string `json:"file"`
	Valid bool   `json:"valid"`
	Error string `json:"error,omitempty"`
	Hint  string `json:"hint,omitempty"`
}

// configChecks check the content of configuration files, by the part of their names before ".toml".
// Paths appear in errors.
var configChecks = map[string]func(path string, content []byte) error{
	"server":  checkServerFile,
	"primary": checkPrimaryFile,
	"helper":  checkHelperFile,
	"dual":    checkDualFile,
	"policy": func(path string, content []byte) error {
		_, err := primary.ParsePolicy(path, content)
		return err
	},
}

// configNames are the keys of configChecks in the order in which files are checked.
var configNames = []string{"server", "primary", "helper", "dual", "policy"}

func checkCommand() *cobra.Command {
	var asJSON bool
	var as string
	cmd := &cobra.Command{
		Use: "check [FILE…]", Short: "check configuration files before a restart",
		Example: "  mpbond check\n  mpbond check /etc/mpbond/server.toml && sudo systemctl restart mpbond-server\n" +
			"  mpbond check --as server new.toml",
		Long: `Check whether each FILE is a valid configuration, and if not, print what is wrong.
FILE is server.toml, primary.toml, helper.toml, dual.toml or policy.toml; more may
follow the name, as in server.toml.new. Without FILE check those that exist in the
directory of the configuration. It changes nothing, opens no port, and no mpbond needs
to run. Whether a port is free, and whether a named device is trusted, shows only
when the role starts. The exit code is 0 if all files are valid, 2 if not.`,
		RunE: func(cmd *cobra.Command, files []string) error {
			if _, known := configChecks[as]; as != "" && !known {
				return cli.UsageError("--as must be one of %s", joinWithCommas(configNames))
			}
			if len(files) == 0 {
				var err error
				if files, err = listConfigFiles(); err != nil {
					return err
				}
			}
			results := []checkResult{}
			for _, file := range files {
				r, err := checkConfigFile(file, as)
				if err != nil {
					return err
				}
				results = append(results, r)
			}
			return printChecks(cmd.OutOrStdout(), results, asJSON)
		},
	}
	cmd.Flags().StringVar(&as, "as", "", "check each FILE as this `KIND` of file, whatever its name: "+
		joinWithCommas(configNames))
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON list")
	cli.CompleteWith(cmd, "as", configNames...)
	return cmd
}

// listConfigFiles returns the configuration files that exist, at least one.
func listConfigFiles() (files []string, err error) {
	dir, err := cli.ConfigDir()
	if err != nil {
		return nil, err
	}
	for _, name := range configNames {
		path := filepath.Join(dir, name+".toml")
		if _, err := userfile.Lstat(path); !errors.Is(err, os.ErrNotExist) {
			files = append(files, path)
		}
	}
	if len(files) == 0 {
		return nil, fault.New(fault.NotFound, fmt.Errorf("no configuration file in %s", dir),
			"nothing to check: mpbond uses its defaults. Or name a FILE")
	}
	return files, nil
}

// checkConfigFile checks a file as the given kind, or if it is empty as its name says. An error
// means that the file was not checked.
func checkConfigFile(path, kind string) (checkResult, error) {
	if kind == "" {
		base, _, _ := strings.Cut(filepath.Base(path), ".toml")
		if _, known := configChecks[base]; !known {
			return checkResult{}, cli.UsageError("the name of %s does not say what it configures: add --as %s",
				text.Printable(path), strings.Join(configNames, "|"))
		}
		kind = base
	}
	if err := useOwnerRights(path); err != nil {
		return checkResult{}, err
	}
	content, err := config.ReadFile(path)
	if err != nil {
		return checkResult{}, err
	}
	if err := configChecks[kind](path, content); err != nil {
		return checkResult{File: path, Error: err.Error(), Hint: fault.HintOf(err)}, nil
	}
	return checkResult{File: path, Valid: true}, nil
}

// printChecks prints the results. It returns an error without text if a file is invalid.
func printChecks(w io.Writer, results []checkResult, asJSON bool) (err error) {
	if asJSON {
		err = cli.PrintJSON(w, results)
	}
	invalid := false
	for _, r := range results {
		invalid = invalid || !r.Valid
		switch {
		case asJSON:
		case r.Valid:
			fmt.Fprintf(w, "%s: valid\n", text.Printable(r.File))
		default:
			if !strings.HasPrefix(r.Error, r.File+":") { // errors of syntax name file and line
				r.Error = r.File + ": " + r.Error
			}
			fmt.Fprintln(w, text.Lines(r.Error))
			if r.Hint != "" {
				fmt.Fprintln(w, "hint:", text.Lines(r.Hint))
			}
		}
	}
	if err == nil && invalid {
		return &cli.ExitStatus{Code: cli.ExitUsage}
	}
	return err
}

func checkServerFile(path string, content []byte) error {
	c := server.Default
	if err := config.Parse(path, content, &c); err != nil {
		return err
	}
	return cmp.Or(c.Validate(), checkListenAddress("listen", c.Listen), checkPublicAddress(c.Public),
		checkAPIAddress(c.API))
}

func checkPrimaryFile(path string, content []byte) error {
	c := primary.Default
	if err := config.Parse(path, content, &c); err != nil {
		return err
	}
	return checkPrimaryConfig(c)
}

func checkPrimaryConfig(c primary.Config) error {
	c.DialUDP = cellListeners(nil).dialFeedbackUDP
	err := cmp.Or(c.Validate(), checkListenAddress("proxy", c.Proxy), checkAPIAddress(c.API))
	for addr := range strings.SplitSeq(c.Pipe, ",") {
		if addr = strings.TrimSpace(addr); !strings.HasPrefix(addr, "rfcomm://") {
			err = cmp.Or(err, checkListenAddress("pipe", addr))
		}
	}
	return err
}

func checkHelperFile(path string, content []byte) error {
	var c helperConfig
	if err := config.Parse(path, content, &c); err != nil {
		return err
	}
	return checkHelperConfig(c)
}

func checkHelperConfig(c helperConfig) error {
	c.DialUDP = cellListeners(nil).dialFeedbackUDP
	onload := c.Onload
	onload.Interface = cmp.Or(onload.Interface, c.HSInterface)
	return cmp.Or(c.Validate(""), onload.validateOnload(), checkListenAddress("pair", c.Pair),
		checkListenAddress("listen in [onload]", onload.Listen),
		checkListenAddress("listen in [onload.page]", onload.Page.Listen), checkAPIAddress(c.API))
}

func checkDualFile(path string, content []byte) error {
	c := dualConfig{Primary: primary.Default}
	if err := config.Parse(path, content, &c); err != nil {
		return err
	}
	if _, err := c.mergeCells(); err != nil {
		return err
	}
	return cmp.Or(wrapTableError("primary", checkPrimaryConfig(c.Primary)), wrapTableError("helper",
		checkHelperConfig(c.Helper)))
}

// wrapTableError says in which table of a file the problem is.
func wrapTableError(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("[%s]: %w", name, err)
}

// checkListenAddress returns an error unless the value of a setting is an address to listen on:
// "host:port" with a number or name of a port, or empty.
func checkListenAddress(setting, addr string) error {
	if addr == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(addr)
	if err == nil {
		_, err = net.DefaultResolver.LookupPort(context.Background(), "tcp", port) // reads at most a local file
	}
	if err != nil {
		return fault.New(fault.Config, fmt.Errorf("%s is %q", setting, addr), "write an address as HOST:PORT")
	}
	return nil
}

// checkPublicAddress returns an error unless addr is "host", "host:port" or empty.
func checkPublicAddress(addr string) error {
	if _, port, err := net.SplitHostPort(addr); err == nil {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return fault.New(fault.Config, fmt.Errorf("public is %q", addr), "write it as HOST or HOST:PORT")
		}
	}
	return nil
}

// checkAPIAddress returns an error unless the API can be served at addr. Empty means nowhere.
func checkAPIAddress(addr string) error {
	if addr == "" {
		return nil
	}
	return serve.CheckAddress(addr)
}
