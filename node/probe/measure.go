// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"time"

	"mpbond/base/unit"
)

// Measurement is the result of a Request.
type Measurement struct {
	About
	Result
	// RTT is the round trip of the request, including the server's own work. ClockAhead is how far
	// the server's clock was ahead of ours, with an error of up to RTT/2.
	RTT, ClockAhead time.Duration
	// Rate is the steady rate at the receiving end.
	Rate unit.Rate
}

// Measure sends a over c, a stream to Dest, and returns the result. now is the local clock. After
// an error the result holds what arrived before it; an About with a zero Time did not arrive. It
// does not close c.
func Measure(ctx context.Context, c net.Conn, a Request, now func() time.Time) (ans Measurement, err error) {
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	a = a.clampedToLimits()
	_ = c.SetDeadline(time.Now().Add(2 * answerTimeout))
	r := bufio.NewReaderSize(c, 2*maxBlock)
	begin, clock := time.Now(), now()
	if err := writeJSONLine(c, a); err != nil {
		return ans, err
	}
	if err := readJSONLine(r, &ans.About); err != nil {
		return ans, fmt.Errorf("no answer: %w", err)
	}
	ans.RTT = time.Since(begin)
	ans.ClockAhead = ans.Time.Sub(clock.Add(ans.RTT / 2))
	_ = c.SetDeadline(time.Now().Add(time.Duration(a.Ms)*time.Millisecond + 2*answerTimeout))
	if ctx.Err() != nil {
		return ans, ctx.Err()
	}
	switch a.Direction {
	case Down:
		var m rateMeter
		m, err = receiveBlocks(ctx, c, r, a.Bytes)
		ans.Bytes, ans.Rate = m.totalArrived(), m.rateAfterSlowStart()
	case Up:
		ans.Bytes, err = sendBlocks(c, r, a, func() {})
	}
	if err != nil {
		return ans, fmt.Errorf("after %v: %w", ans.Bytes, err)
	}
	if err := readJSONLine(r, &ans.Result); err != nil {
		return ans, fmt.Errorf("no result: %w", err)
	}
	if a.Direction == Up {
		ans.Rate = ans.RateBps
	}
	return ans, nil
}
