// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"context"
	"fmt"
	"strings"

	"mpbond/base/fault"
)

// Any combines several carriers. An address begins with the name of its carrier and "://". An
// address without this prefix belongs to the first carrier.
type Any []Carrier

// Name implements Carrier.
func (Any) Name() string { return "any" }

// Dial implements Carrier.
func (a Any) Dial(ctx context.Context, addr string) (Conn, error) {
	c, addr, err := a.selectCarrier(addr)
	if err != nil {
		return nil, err
	}
	return c.Dial(ctx, addr)
}

// Listen implements Carrier.
func (a Any) Listen(ctx context.Context, addr string) (Listener, error) {
	c, addr, err := a.selectCarrier(addr)
	if err != nil {
		return nil, err
	}
	return c.Listen(ctx, addr)
}

// selectCarrier returns the carrier that an address names, or the first one, and the rest of the
// address.
func (a Any) selectCarrier(addr string) (Carrier, string, error) {
	name, rest, ok := strings.Cut(addr, "://")
	if !ok {
		return a[0], addr, nil
	}
	var names []string
	for _, c := range a {
		if c.Name() == name {
			return c, rest, nil
		}
		names = append(names, c.Name()+"://")
	}
	return nil, "", fault.New(fault.Config, fmt.Errorf("address %q: unknown carrier %q", addr, name),
		"use one of "+strings.Join(names, ", "))
}
