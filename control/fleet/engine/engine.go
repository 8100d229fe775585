// SPDX-License-Identifier: Apache-2.0

// Package engine opens the engine of a fleet by its address. It has no part in the data path.
package engine

import (
	"context"
	"errors"
	"log/slog"
	"strings"

	"mpbond/base/fault"
	"mpbond/control/fleet"
	"mpbond/control/fleet/filestore"
)

// Config says how to reach an engine. The toml tags are the keys of fleet.toml.
type Config struct {
	// Engine is its address: "nats://HOST:PORT" or "tls://HOST:PORT", several separated by commas, or "file:DIR".
	Engine string `toml:"fleet"`
	// Creds and CA are those of natsstore.Config.
	Creds string `toml:"creds"`
	CA    string `toml:"fleet_ca"`
	// User is that of natsstore.Config.
	User string `toml:"-"`
}

// FileScheme is the prefix of an engine that is a directory.
const FileScheme = "file:"

// Directory returns the directory that is the engine, and false if it is none.
func (c Config) Directory() (dir string, ok bool) { return strings.CutPrefix(c.Engine, FileScheme) }

// Open opens an engine. who is the name of this program for the engine's operator. Errors are faults.
func Open(ctx context.Context, c Config, who string) (fleet.Store, error) {
	dir, ok := c.Directory()
	if !ok {
		return openNATS(ctx, c, who)
	}
	if dir == "" {
		return nil, fault.New(fault.Usage, errors.New("the engine has no directory"),
			"write it like file:/var/lib/mpbond/fleet")
	}
	s, err := filestore.Open(dir, slog.Default())
	if err != nil {
		return nil, err // avoids a nil *Store in the interface
	}
	return s, nil
}
