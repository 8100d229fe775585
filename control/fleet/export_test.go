// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"time"
)

// SetClock gives a server another clock, before NewMember.
func (c *MemberConfig) SetClock(now func() time.Time) { c.now = now }

// SetClock gives an operator another clock.
func (o *Operator) SetClock(now func() time.Time) { o.now = now }

// ReadSignedList returns the signed list of servers on an engine as an offer, as a server gives it to a primary.
func ReadSignedList(ctx context.Context, s Store) ([]byte, error) {
	r, err := s.Get(ctx, Orders, listKey)
	return append(append([]byte(`{"list":`), r.Value...), '}'), err
}
