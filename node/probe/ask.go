package probe

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"time"

	"mpbond/base/unit"
)

// Answer is what came of an Ask.
type Answer struct {
	About
	Result
	// RTT is that of the question, which the server's own work makes longer, and
	// Ahead how far the server's clock was ahead of ours then, give or take half of
	// RTT.
	RTT, Ahead time.Duration
	// Rate is what the asker received at, or the server, once it was steady.
	Rate unit.Rate
}

// Do asks over c, a stream to Dest. Now is the asker's clock. What came before an
// error is in the answer: an About with a zero time is none. It does not close c.
func Do(ctx context.Context, c net.Conn, a Ask, now func() time.Time) (ans Answer, err error) {
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	a = a.bounded()
	_ = c.SetDeadline(time.Now().Add(2 * patience))
	r := bufio.NewReaderSize(c, 2*maxBlock)
	begin, clock := time.Now(), now()
	if err := writeLine(c, a); err != nil {
		return ans, err
	}
	if err := readLine(r, &ans.About); err != nil {
		return ans, fmt.Errorf("no answer: %w", err)
	}
	ans.RTT = time.Since(begin)
	ans.Ahead = ans.Time.Sub(clock.Add(ans.RTT / 2))
	_ = c.SetDeadline(time.Now().Add(time.Duration(a.Ms)*time.Millisecond + 2*patience))
	if ctx.Err() != nil {
		return ans, ctx.Err()
	}
	switch a.Direction {
	case Down:
		var m meter
		m, err = receive(ctx, c, r, a.Bytes)
		ans.Bytes, ans.Rate = m.bytes(), m.steady()
	case Up:
		ans.Bytes, err = send(c, r, a, func() {})
	}
	if err != nil {
		return ans, fmt.Errorf("after %v: %w", ans.Bytes, err)
	}
	if err := readLine(r, &ans.Result); err != nil {
		return ans, fmt.Errorf("no result: %w", err)
	}
	if a.Direction == Up {
		ans.Rate = ans.RateBps
	}
	return ans, nil
}
