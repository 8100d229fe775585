// SPDX-License-Identifier: Apache-2.0

//go:build !router

package engine

import (
	"context"
	"fmt"
	"log/slog"
	"strings"

	"mpbond/base/fault"
	"mpbond/control/fleet"
	"mpbond/control/fleet/natsstore"
)

// openNATS opens an engine of NATS.
func openNATS(ctx context.Context, c Config, who string) (fleet.Store, error) {
	for u := range strings.SplitSeq(c.Engine, ",") {
		scheme, _, _ := strings.Cut(strings.TrimSpace(u), "://")
		if scheme != "nats" && scheme != "tls" {
			return nil, fault.New(fault.Usage, fmt.Errorf("%.80q is not an engine", u),
				"write nats://HOST:PORT, tls://HOST:PORT or file:DIR")
		}
	}
	s, err := natsstore.Open(ctx, natsstore.Config{URLs: c.Engine, Creds: c.Creds, CA: c.CA, Name: who, User: c.User,
		Log: slog.Default()})
	if err != nil {
		return nil, err // avoids a nil *Store in the interface
	}
	return s, nil
}
