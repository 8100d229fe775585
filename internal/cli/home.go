// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	"mpbond/base/identity"
)

// Directories of root without MPBOND_HOME: for files that the programs write, and for
// configuration. The services use the same ones (packaging), so that root's commands find them.
const (
	RootStateDir  = "/var/lib/mpbond"
	rootConfigDir = "/etc/mpbond"
)

// KeyFile is the name of the device key's file in the home directory.
const KeyFile = "device.key"

// HomeDir returns the directory of the key, the trust file and all other files that the programs
// write. It fails if no home directory is known.
func HomeDir() (string, error) { return resolveBaseDir(RootStateDir) }

// ConfigDir returns the directory of configuration files, which people write. It is HomeDir for all
// users but root.
func ConfigDir() (string, error) { return resolveBaseDir(rootConfigDir) }

// InHome returns the path of the file name in HomeDir.
func InHome(name string) (string, error) {
	dir, err := HomeDir()
	return filepath.Join(dir, name), err
}

// KeyPath returns the path of the device key.
func KeyPath() (string, error) { return InHome(KeyFile) }

// resolveBaseDir returns $MPBOND_HOME, else root's directory, else the user's configuration
// directory.
func resolveBaseDir(root string) (string, error) {
	if dir := os.Getenv("MPBOND_HOME"); dir != "" {
		return dir, nil
	}
	if os.Geteuid() == 0 {
		return root, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", errors.New("the home directory is unknown: set MPBOND_HOME")
	}
	return filepath.Join(dir, "mpbond"), nil
}

// LoadIdentity loads the trust file and the device key. It creates a missing key.
func LoadIdentity() (*identity.Key, *identity.Trust, error) {
	path, err := KeyPath()
	if err != nil {
		return nil, nil, err
	}
	key, created, err := identity.LoadOrCreateKey(path)
	if err != nil {
		return nil, nil, err
	}
	if created {
		slog.Info("device key created", "id", key.ID(), "file", path)
	}
	trust, err := OpenTrust()
	return key, trust, err
}

// OpenTrust opens the trust file, which may be missing.
func OpenTrust() (*identity.Trust, error) {
	path, err := InHome("trust.toml")
	if err != nil {
		return nil, err
	}
	return identity.OpenTrust(path)
}
