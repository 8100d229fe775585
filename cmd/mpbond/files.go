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

// trustPath is the trust file.
func trustPath() (string, error) { return cli.InHome("trust.toml") }

// locationsPath is what the primary has learnt of places.
func locationsPath() (string, error) { return cli.InHome("places.json") }

// factsPath is what somebody else may write of this device.
func factsPath() (string, error) { return cli.InHome("facts.toml") }

// tokenPath is the secret of those who use the API over TCP.
func tokenPath() (string, error) { return cli.InHome("api.token") }

// policyPath is where the rules for apps and destinations are: beside the
// configuration file.
func policyPath(config string) (string, error) {
	if config != "" {
		return filepath.Join(filepath.Dir(config), "policy.toml"), nil
	}
	dir, err := cli.ConfigDir()
	return filepath.Join(dir, "policy.toml"), err
}

// usagePath is what the links carried for a role.
func usagePath(role string) (string, error) { return cli.InHome("usage-" + role + ".jsonl") }

// dataPlanPath is what the link of a role's mobile plan carried, permitPath the permit that
// its operator gave.
func dataPlanPath(role string) (string, error) { return cli.InHome("plan-" + role + ".jsonl") }
func permitPath(role string) (string, error)   { return cli.InHome("permit-" + role + ".jsonl") }

// primaryUsagePath is that of the primary that runs here when one does: by itself or
// as a part of dual, whichever was told last.
func primaryUsagePath() (string, error) {
	primary, err := usagePath("primary")
	if err != nil {
		return "", err
	}
	dual, err := usagePath("dual")
	if d, e := userfile.Lstat(dual); e == nil {
		if p, e := userfile.Lstat(primary); e != nil || d.ModTime().After(p.ModTime()) {
			return dual, err
		}
	}
	return primary, err
}

// loadConfig reads the TOML file at path into the struct that into points to,
// which holds the defaults. An empty path means the file role.toml of the
// configurations' directory, which need not exist; a path that is given must.
//
// Root's process uses all files with the rights of the user to whom the configuration
// or the key's directory belongs: both may name, or hold a link to, any other file.
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

func useOwnerRights(path string) error {
	return fault.New(fault.Permission, userfile.ActAsOwnerOf(path), "run mpbond as the user to whom the directory belongs")
}
