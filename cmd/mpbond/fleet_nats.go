// SPDX-License-Identifier: Apache-2.0

//go:build !router

package main

import (
	"context"
	"log/slog"
	"strings"

	"mpbond/control/fleet"
	"mpbond/control/fleet/natsstore"
	"mpbond/internal/cli"
)

// openNATS opens an engine of NATS.
func openNATS(ctx context.Context, f engineFlags, who string) (fleet.Store, error) {
	for u := range strings.SplitSeq(f.Engine, ",") {
		scheme, _, _ := strings.Cut(strings.TrimSpace(u), "://")
		if scheme != "nats" && scheme != "tls" {
			return nil, cli.UsageError("%.80q is not an engine: write nats://HOST:PORT, tls://HOST:PORT or file:DIR", u)
		}
	}
	s, err := natsstore.Open(ctx, natsstore.Config{URLs: f.Engine, Creds: f.Creds, CA: f.CA, Name: who,
		Log: slog.Default()})
	if err != nil {
		return nil, err // avoids a nil *Store in the interface
	}
	return s, nil
}
