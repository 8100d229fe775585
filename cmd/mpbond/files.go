package main

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	"mpbond/base/config"
	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/base/userfile"
)

// Where root's files are without MPBOND_HOME: the same as of the services
// (packaging), so that root's commands need not be told where they are.
const (
	rootState  = "/var/lib/mpbond"
	rootConfig = "/etc/mpbond"
)

const keyFile = "device.key"

// homeDir is where the key, the trust file and all else that mpbond writes are.
func homeDir() (string, error) { return dirFor(rootStateIn(rootState, rootConfig)) }

// rootStateIn is where root's key is: in state, but in former when only that has
// one. Former versions had all of root's files there.
func rootStateIn(state, former string) string {
	if !exists(filepath.Join(state, keyFile)) && exists(filepath.Join(former, keyFile)) {
		return former
	}
	return state
}

// oldState tells root what to do about a key that former versions put beside the
// configuration; path is the key in use. It is "" where there is nothing to do.
func oldState(path, state, former string) string {
	switch {
	case filepath.Dir(path) == former:
		return "root's key and list of devices are still in " + former + ", where services do not look: stop mpbond, and move device.key, " +
			"trust.toml, places.json and api.token, as far as they are there, to " + state
	case filepath.Dir(path) == state && exists(filepath.Join(former, keyFile)):
		return "the key in " + former + " is of a former version and is not used: if devices were paired with it, move it and its trust.toml to " +
			state + "; else remove it"
	}
	return ""
}

func exists(path string) bool {
	_, err := userfile.Lstat(path)
	return err == nil
}

// configDir is where configurations are, which people write: the same directory
// for all but root.
func configDir() (string, error) { return dirFor(rootConfig) }

func dirFor(root string) (string, error) {
	if dir := os.Getenv("MPBOND_HOME"); dir != "" {
		return dir, nil
	}
	if os.Geteuid() == 0 {
		return root, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", errors.New("no home directory is known: set MPBOND_HOME")
	}
	return filepath.Join(dir, "mpbond"), nil
}

// keyPath is the device key's file.
func keyPath() (string, error) { return inHome(keyFile) }

// trustPath is the trust file.
func trustPath() (string, error) { return inHome("trust.toml") }

// placesPath is what the primary has learnt of places.
func placesPath() (string, error) { return inHome("places.json") }

// factsPath is what somebody else may write of this device.
func factsPath() (string, error) { return inHome("facts.toml") }

// tokenPath is the secret of those who use the API over TCP.
func tokenPath() (string, error) { return inHome("api.token") }

// policyPath is where the rules for apps and destinations are: beside the
// configuration file.
func policyPath(config string) (string, error) {
	if config != "" {
		return filepath.Join(filepath.Dir(config), "policy.toml"), nil
	}
	dir, err := configDir()
	return filepath.Join(dir, "policy.toml"), err
}

// usagePath is what the links carried for a role.
func usagePath(role string) (string, error) { return inHome("usage-" + role + ".jsonl") }

// planPath is what the link of a role's mobile plan carried, permitPath the permit that
// its operator gave, and permitsPath those that a service has given.
func planPath(role string) (string, error)   { return inHome("plan-" + role + ".jsonl") }
func permitPath(role string) (string, error) { return inHome("permit-" + role + ".jsonl") }
func permitsPath() (string, error)           { return inHome("permits.jsonl") }

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

func inHome(name string) (string, error) {
	dir, err := homeDir()
	return filepath.Join(dir, name), err
}

// loadIdentity loads the device key, which is made if there is none, and the
// trust file.
func loadIdentity() (*identity.Key, *identity.Trust, error) {
	path, err := keyPath()
	if err != nil {
		return nil, nil, err
	}
	key, created, err := identity.LoadOrCreateKey(path)
	if err != nil {
		return nil, nil, err
	}
	if created {
		slog.Info("this device has got a key", "id", key.ID(), "file", path)
	}
	if old := oldState(path, rootState, rootConfig); old != "" && os.Geteuid() == 0 {
		slog.Warn(old, "key", path)
	}
	trust, err := openTrust()
	return key, trust, err
}

func openTrust() (*identity.Trust, error) {
	path, err := trustPath()
	if err != nil {
		return nil, err
	}
	return identity.OpenTrust(path)
}

// loadConfig reads the TOML file at path into the struct that into points to,
// which holds the defaults. An empty path means the file role.toml of the
// configurations' directory, which need not exist; a path that is given must.
//
// Root's process uses all files with the rights of the user to whom the configuration
// or the key's directory belongs: both may name, or hold a link to, any other file.
func loadConfig(path, role string, into any) error {
	home, err := homeDir()
	if err != nil {
		return err
	}
	if err := actFor(home); err != nil {
		return err
	}
	if path != "" {
		if err := actFor(path); err != nil {
			return err
		}
		return config.Load(path, into)
	}
	dir, err := configDir()
	if err != nil {
		return err
	}
	path = filepath.Join(dir, role+".toml")
	if err := actFor(path); err != nil {
		return err
	}
	if _, err := userfile.Stat(path); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return config.Load(path, into)
}

func actFor(path string) error {
	return fault.New(fault.Permission, userfile.ActFor(path), "run mpbond as the user to whom the directory belongs")
}
