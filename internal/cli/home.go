package cli

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	"mpbond/base/identity"
)

// Root's directories without MPBOND_HOME: what the programs write, and the configuration.
// The services have the same ones (packaging), so that root's commands find them.
const (
	RootStateDir  = "/var/lib/mpbond"
	rootConfigDir = "/etc/mpbond"
)

// KeyFile is the name of the device key's file in the home directory.
const KeyFile = "device.key"

// HomeDir returns the directory of the key, the trust file and all else that the programs
// write. The error says that no home directory is known.
func HomeDir() (string, error) { return baseDir(RootStateDir) }

// ConfigDir returns the directory of configuration files, which people write: HomeDir for
// all users but root.
func ConfigDir() (string, error) { return baseDir(rootConfigDir) }

// InHome returns the path of the file name in HomeDir.
func InHome(name string) (string, error) {
	dir, err := HomeDir()
	return filepath.Join(dir, name), err
}

// KeyPath returns the path of the device key.
func KeyPath() (string, error) { return InHome(KeyFile) }

func baseDir(root string) (string, error) {
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

// LoadIdentity loads the device key, which it creates if there is none, and the trust file.
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
		slog.Info("this device has got a key", "id", key.ID(), "file", path)
	}
	trust, err := OpenTrust()
	return key, trust, err
}

// OpenTrust opens the trust file, which need not exist.
func OpenTrust() (*identity.Trust, error) {
	path, err := InHome("trust.toml")
	if err != nil {
		return nil, err
	}
	return identity.OpenTrust(path)
}
