// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// Version is set by the Makefile: -ldflags "-X mpbond/internal/cli.Version=…".
var Version = "dev"

// Build describes the build of a program.
type Build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Time     string `json:"time,omitempty"`     // of the commit
	Modified bool   `json:"modified,omitempty"` // the tree had uncommitted changes
	Go       string `json:"go"`
	System   string `json:"system"`
}

// ThisBuild returns the build of this program.
func ThisBuild() Build {
	b := Build{Version: Version, Go: runtime.Version(), System: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Commit = s.Value
		case "vcs.time":
			b.Time = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

// String formats the build on one line, without the program's name.
func (b Build) String() string {
	s := b.Version
	if b.Commit != "" {
		s += fmt.Sprintf(", commit %.12s", b.Commit)
		if b.Modified {
			s += " with changes"
		}
	}
	return s + fmt.Sprintf(", %s, %s", b.Go, b.System)
}

// Protocols holds the versions of a program's protocols, 0 for none. Two programs understand
// each other if these are equal, whatever their releases.
type Protocols struct {
	Wire int `json:"wire_version,omitempty"` // between devices
	API  int `json:"api_version,omitempty"`  // between a role and local programs
}

// VersionCommand returns the command that prints the version of a program.
func VersionCommand(program string) *cobra.Command { return VersionCommandWith(program, Protocols{}) }

// VersionCommandWith returns the command that prints the version of a program and those of its
// protocols.
func VersionCommandWith(program string, protocols Protocols) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use: "version", Short: "print the version", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if asJSON {
				return PrintJSON(cmd.OutOrStdout(), struct {
					Build
					Protocols
				}{ThisBuild(), protocols})
			}
			out := cmd.OutOrStdout()
			_, err := fmt.Fprintln(out, cmd.Root().Name(), ThisBuild())
			if err == nil && protocols != (Protocols{}) {
				_, err = fmt.Fprintf(out, "wire protocol %d, API v%d\n", protocols.Wire, protocols.API)
			}
			return err
		},
	}
	cmd.Example = fmt.Sprintf("  %[1]s version\n  %[1]s version --json | jq -r .version", program)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}
