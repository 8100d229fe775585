// SPDX-License-Identifier: Apache-2.0

package natsconn

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// TestAsk checks that a request without an answer is repeated with more time, until there is one, a refusal, or no time
// is left.
func TestAsk(t *testing.T) {
	refused := errors.New("refused")
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	for name, c := range map[string]struct {
		answer time.Duration // after which the first request would be answered
		refuse bool
		limit  time.Duration
		want   error
		tries  []time.Duration // when they began
	}{
		"at once":   {ms(100), false, time.Minute, nil, []time.Duration{0}},
		"later":     {ms(3000), false, time.Minute, nil, []time.Duration{0, ms(500), ms(1500)}},
		"refused":   {ms(100), true, time.Minute, refused, []time.Duration{0}},
		"no answer": {time.Hour, false, time.Second, context.DeadlineExceeded, []time.Duration{0, ms(500)}},
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
				if c.refuse {
					return refused
				}
				return nil
			})
			if !errors.Is(err, c.want) || !slices.Equal(tries, c.tries) {
				t.Errorf("%s: %v; tries after %v, want %v, %v", name, err, tries, c.want, c.tries)
			}
		})
	}
}
