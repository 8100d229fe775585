package probe

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"mpbond/base/unit"
)

// What may be under way: a bond takes megabytes ahead, which on a slow lane would
// take longer than the measurement. So it is what was confirmed within the last
// second, and at first enough for TCP's slow start to grow by.
const (
	initialWindow = 32 * unit.KB
	windowTime    = time.Second
)

const (
	confirmation   = 1 // the octet for a block
	sampleInterval = 50 * time.Millisecond
	// blockTimeout is how long no block may come: at 64 kbit/s one takes 2 s.
	blockTimeout = 4 * time.Second
)

// rateMeter is a rate, of what comes or is confirmed.
type rateMeter struct {
	at     []time.Time
	totals []unit.Bytes // at these times
}

// meterInterval is how far apart what a meter keeps is.
const meterInterval = 10 * time.Millisecond

func (m *rateMeter) addBytes(now time.Time, n unit.Bytes) {
	last := len(m.at) - 1
	if last < 0 {
		m.at, m.totals = append(m.at, now), append(m.totals, n)
		return
	}
	n += m.totals[last]
	if last > 0 && now.Sub(m.at[last-1]) < meterInterval {
		m.at[last], m.totals[last] = now, n
		return
	}
	m.at, m.totals = append(m.at, now), append(m.totals, n)
}

func (m *rateMeter) total() unit.Bytes {
	if len(m.totals) == 0 {
		return 0
	}
	return m.totals[len(m.totals)-1]
}

// bytesSince is how much came after a time.
func (m *rateMeter) bytesSince(t time.Time) unit.Bytes {
	i := len(m.at)
	for i > 0 && m.at[i-1].After(t) {
		i--
	}
	if i == 0 {
		return m.total()
	}
	return m.total() - m.totals[i-1]
}

// steadyRate is the rate of the last two thirds of the time: slow start is over by
// then, or it is short of the truth.
func (m *rateMeter) steadyRate() unit.Rate {
	last := len(m.at) - 1
	if last < 1 {
		return 0
	}
	from := m.at[0].Add(m.at[last].Sub(m.at[0]) / 3)
	i := 0
	for i < last-1 && m.at[i].Before(from) {
		i++
	}
	return unit.RateOf(m.totals[last]-m.totals[i], m.at[last].Sub(m.at[i]))
}

// sendState is what a sender learns while it sends.
type sendState struct {
	changed chan struct{} // something has changed

	mu                  sync.Mutex
	confirmed           rateMeter
	noMoreConfirmations bool // no more confirmations come
	err                 error
}

// readConfirmations takes confirmations until something else comes, which stays in r, or
// nothing more.
func (f *sendState) readConfirmations(r *bufio.Reader) {
	for over := false; !over; {
		b, err := r.ReadByte()
		f.mu.Lock()
		switch {
		case err != nil:
			f.err, f.noMoreConfirmations = err, true
		case b == confirmation:
			f.confirmed.addBytes(time.Now(), maxBlock)
		default:
			f.err, f.noMoreConfirmations = r.UnreadByte(), true
		}
		over = f.noMoreConfirmations
		f.mu.Unlock()
		select {
		case f.changed <- struct{}{}:
		default:
		}
	}
}

// canSend tells whether another block may be sent now, sent bytes having been, and
// whether all of them are confirmed.
func (f *sendState) canSend(sent unit.Bytes) (more, all, over bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	under := sent - f.confirmed.total()
	return under < initialWindow+f.confirmed.bytesSince(time.Now().Add(-windowTime)), under == 0, f.noMoreConfirmations
}

// sendBlocks sends blocks until what was asked is through and confirmed, and returns
// how much was. Confirmations come by r; upwards a line follows, which is left
// there. Each is called now and then meanwhile.
func sendBlocks(c net.Conn, r *bufio.Reader, a Request, each func()) (unit.Bytes, error) {
	f := &sendState{changed: make(chan struct{}, 1)}
	var reader sync.WaitGroup
	reader.Go(func() { f.readConfirmations(r) })
	err := f.writeBlocks(c, a, each)
	if err == nil && a.Direction == Up {
		reader.Wait()
		return f.confirmed.total(), f.err
	}
	_ = c.SetReadDeadline(time.Unix(1, 0)) // nothing more comes
	reader.Wait()
	if err != nil {
		err = errors.Join(err, f.err)
	}
	return f.confirmed.total(), err
}

func (f *sendState) writeBlocks(c net.Conn, a Request, each func()) error {
	block := make([]byte, 2+maxBlock)
	binary.BigEndian.PutUint16(block, maxBlock)
	end := time.Now().Add(time.Duration(a.Ms) * time.Millisecond)
	tick := time.NewTicker(sampleInterval)
	defer tick.Stop()
	for sent := unit.Bytes(0); ; {
		more, all, over := f.canSend(sent)
		enough := sent >= a.Bytes || !time.Now().Before(end)
		switch {
		case over:
			return errors.New("the other end has stopped early")
		case enough && all:
			_, err := c.Write([]byte{0, 0})
			return err
		case more && !enough:
			if _, err := c.Write(block); err != nil {
				return err
			}
			sent += maxBlock
		}
		if more && !enough {
			select {
			case <-tick.C:
				each()
			default:
			}
			continue
		}
		select {
		case <-tick.C:
			each()
		case <-f.changed:
		}
	}
}

// receiveBlocks takes blocks until the last one, confirms each, and measures. It gives
// up when none comes for long.
func receiveBlocks(ctx context.Context, c net.Conn, r *bufio.Reader, limit unit.Bytes) (m rateMeter, err error) {
	var head [2]byte
	for {
		_ = c.SetReadDeadline(time.Now().Add(blockTimeout))
		if ctx.Err() != nil {
			return m, ctx.Err()
		}
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return m, err
		}
		n := int(binary.BigEndian.Uint16(head[:]))
		if n == 0 {
			return m, nil
		}
		if n > maxBlock || m.total()+unit.Bytes(n) > limit+maxBlock {
			return m, fmt.Errorf("a block of %d bytes, after %v of %v", n, m.total(), limit)
		}
		if _, err := r.Discard(n); err != nil {
			return m, err
		}
		m.addBytes(time.Now(), unit.Bytes(n))
		if _, err := c.Write([]byte{confirmation}); err != nil {
			return m, err
		}
	}
}
