// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"mpbond/api"
	"mpbond/api/client"
	"mpbond/base/config"
	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/text"
	"mpbond/internal/cli"
	"mpbond/node/primary"
)

// policyCheckResult is what `mpbond policy check --json` prints.
type policyCheckResult struct {
	File  string `json:"file"`
	Valid bool   `json:"valid"`
	Rules int    `json:"rules"`
	// Unkept describes what helpers ignore, if this device is a helper.
	Unkept []string `json:"unkept,omitempty"`
	// Refused is why the file is invalid.
	Refused *api.PolicyError `json:"refused,omitempty"`
}

func policyCheckCommand() *cobra.Command {
	var config string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "check [FILE]", Short: "check whether a file with rules is valid", Args: cobra.MaximumNArgs(1),
		Example: "  mpbond policy check\n  mpbond policy check policy.toml.new",
		Long: `Check whether FILE is a valid policy, and if not, print where it is wrong; - is
standard input. Without FILE check the file in force: that of the primary that runs
here, else the one named in primary.toml, else policy.toml. On a helper also print
which settings helpers ignore. It changes nothing, and no mpbond needs to run. The exit
code is 0 if the file is valid, 2 if not.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			d := findPolicyTarget(cmd.Context(), config)
			name := cmp.Or(append(args, d.file)...)
			if d.err != nil && len(args) == 0 {
				return d.err
			}
			policies, err := readPolicy(cmd.InOrStdin(), name)
			if err != nil {
				return err
			}
			if name == "-" {
				name = "standard input"
			}
			rules, err := primary.ParsePolicy(name, policies)
			out := cmd.OutOrStdout()
			switch {
			case err != nil && asJSON:
				if err := cli.PrintJSON(out, policyCheckResult{File: name,
					Refused: primary.PolicyErrorOf(err)}); err != nil {
					return err
				}
				return &cli.ExitStatus{Code: cli.ExitUsage}
			case err != nil:
				return err
			}
			var unkept []string
			if d.role == identity.RoleHelper {
				unkept = rules.IgnoredByHelper(d.name)
			}
			if asJSON {
				return cli.PrintJSON(out, policyCheckResult{File: name, Valid: true, Rules: rules.Len(),
					Unkept: unkept})
			}
			_, err = fmt.Fprintf(out, "%s: valid, %d rules\n", text.Printable(name), rules.Len())
			for _, what := range unkept {
				fmt.Fprintf(out, "the helper %s ignores %s\n", text.Printable(d.name), text.Printable(what))
			}
			return err
		},
	}
	cmd.Flags().StringVar(&config, "config", "", "without FILE: check the policy of this configuration `FILE`")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

// policyTarget is the device that a policy check is about.
type policyTarget struct {
	role identity.Role
	name string // of this device
	file string // in force, or to be; valid if err is nil
	err  error
}

// findPolicyTarget describes this device: as the running role reports, else by its files. config is
// a configuration file, "" for the default one.
func findPolicyTarget(ctx context.Context, config string) (d policyTarget) {
	d.role, d.name = identity.RolePrimary, resolveDeviceName("")
	if trust, err := cli.OpenTrust(); err == nil { // a check works without it
		d.role = chooseRole("", trust)
	}
	for _, role := range []identity.Role{identity.RolePrimary, identity.RoleHelper} {
		c := client.New(api.SocketPath(string(role)))
		st, err := c.Status(ctx, false)
		if err == nil && config == "" {
			var p api.Policy
			p, err = c.Policy(ctx)
			d.file = p.File
		}
		c.Close()
		if err == nil {
			d.role, d.name = role, st.Name
			break
		}
	}
	if d.file != "" {
		return d
	}
	beside, err := policyPath(config)
	if d.file, d.err = beside, err; err == nil && d.role != identity.RoleHelper {
		d.file, d.err = configuredPolicy(config)
		d.file = cmp.Or(d.file, beside)
	}
	return d
}

// configuredPolicy returns the policy file that the configuration of a primary or dual names, ""
// for none.
func configuredPolicy(config string) (string, error) {
	cfg := dualConfig{Primary: primary.Default}
	err := loadConfig(config, "primary", &cfg.Primary)
	if err != nil && config != "" && loadConfig(config, "dual", &cfg) == nil {
		err = nil
	}
	return cfg.Primary.Policy, err
}

// maxPolicyInput bounds what is read from standard input.
const maxPolicyInput = 4 << 20

// readPolicy reads a file with rules, or standard input if the name is "-".
func readPolicy(stdin io.Reader, name string) ([]byte, error) {
	if name != "-" {
		return config.ReadFile(name)
	}
	text, err := io.ReadAll(io.LimitReader(stdin, maxPolicyInput+1))
	if err == nil && len(text) > maxPolicyInput {
		err = fault.New(fault.Limit, fmt.Errorf("the policy has more than %d bytes", maxPolicyInput), "shorten it")

	}
	return text, err
}
