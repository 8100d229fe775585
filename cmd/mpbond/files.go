// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"path/filepath"

	"mpbond/base/config"
	"mpbond/base/fault"
	"mpbond/base/userfile"
	"mpbond/internal/cli"
)

// trustFilePath returns the path of the trust file.
func trustFilePath() (string, error) { return cli.InHome("trust.toml") }

// locationsPath returns the path of what the primary has learnt about locations.
func locationsPath() (string, error) { return cli.InHome("places.json") }

// historyPath returns the path of what the primary has learnt about destinations.
func historyPath() (string, error) { return cli.InHome("history.json") }

// deviceFactsPath returns the path of the file by which other programs report facts of this device.
func deviceFactsPath() (string, error) { return cli.InHome("facts.toml") }

// apiTokenPath returns the path of the token for the API over TCP.
func apiTokenPath() (string, error) { return cli.InHome("api.token") }

// policyPath returns the path of the rules for apps and destinations: beside the configuration
// file.
func policyPath(config string) (string, error) {
	if config != "" {
		return filepath.Join(filepath.Dir(config), "policy.toml"), nil
	}
	dir, err := cli.ConfigDir()
	return filepath.Join(dir, "policy.toml"), err
}

// roleUsagePath returns the path of the usage counts of a role.
func roleUsagePath(role string) (string, error) { return cli.InHome("usage-" + role + ".jsonl") }

// dataPlanPath returns the path of what the link of a role's data plan has carried.
func dataPlanPath(role string) (string, error) { return cli.InHome("plan-" + role + ".jsonl") }

// permitPath returns the path of the permit that a role's operator granted.
func permitPath(role string) (string, error) { return cli.InHome("permit-" + role + ".jsonl") }

// primaryUsagePath returns the usage path of the primary of this device, which runs alone or in
// dual: the one with the file that changed last.
func primaryUsagePath() (string, error) {
	primary, err := roleUsagePath("primary")
	if err != nil {
		return "", err
	}
	dual, err := roleUsagePath("dual")
	if d, e := userfile.Lstat(dual); e == nil {
		if p, e := userfile.Lstat(primary); e != nil || d.ModTime().After(p.ModTime()) {
			return dual, err
		}
	}
	return primary, err
}

// loadConfig reads the TOML file at path into the struct that into points to, which holds the
// defaults. An empty path means ROLE.toml in the configuration directory, which may be missing; a
// given path must exist.
//
// A process of root uses all files with the rights of the owner of the configuration or of the
// key's directory, since both may name, or link to, any other file.
func loadConfig(path, role string, into any) error {
	home, err := cli.HomeDir()
	if err != nil {
		return err
	}
	if err := useOwnerRights(home); err != nil {
		return err
	}
	if path != "" {
		if err := useOwnerRights(path); err != nil {
			return err
		}
		return config.Load(path, into)
	}
	dir, err := cli.ConfigDir()
	if err != nil {
		return err
	}
	path = filepath.Join(dir, role+".toml")
	if err := useOwnerRights(path); err != nil {
		return err
	}
	if _, err := userfile.Stat(path); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return config.Load(path, into)
}

// useOwnerRights makes later accesses to files use the rights of the owner of path.
func useOwnerRights(path string) error {
	return fault.New(fault.Permission, userfile.ActAsOwnerOf(path), "run mpbond as the owner of the directory")
}
