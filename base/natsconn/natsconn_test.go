// SPDX-License-Identifier: Apache-2.0

package natsconn

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// TestAsk checks that a request without an answer is repeated with more time, until there is one, a refusal, or no time
// is left.
func TestAsk(t *testing.T) {
	refused, noLeader := errors.New("refused"), error(&jetstream.APIError{ErrorCode: errNoLeader})
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	for name, c := range map[string]struct {
		answer time.Duration // after which the first request would be answered
		says   error         // if it is answered so early
		limit  time.Duration
		want   error
		tries  []time.Duration // when they began
	}{
		"at once":   {ms(100), nil, time.Minute, nil, []time.Duration{0}},
		"later":     {ms(3000), nil, time.Minute, nil, []time.Duration{0, ms(500), ms(1500)}},
		"refused":   {ms(100), refused, time.Minute, refused, []time.Duration{0}},
		"no answer": {time.Hour, nil, time.Second, context.DeadlineExceeded, []time.Duration{0, ms(500)}},
		"no leader": {0, noLeader, time.Second, noLeader, []time.Duration{0, ms(500)}},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), c.limit)
			defer cancel()
			began := time.Now()
			var tries []time.Duration
			err := Ask(ctx, func(ctx context.Context) error {
				tries = append(tries, time.Since(began))
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(c.answer - time.Since(began)):
				}
				return c.says
			})
			if !errors.Is(err, c.want) || !slices.Equal(tries, c.tries) {
				t.Errorf("%s: %v; tries after %v, want %v, %v", name, err, tries, c.want, c.tries)
			}
		})
	}
}
