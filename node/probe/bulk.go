// SPDX-License-Identifier: Apache-2.0

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

// Limits of the bytes in flight. A bond accepts megabytes ahead, which on a slow subflow would take
// longer than the measurement. So the limit is what was confirmed within the last windowTime, plus
// initialWindow for TCP's slow start.
const (
	initialWindow = 32 * unit.KB
	windowTime    = time.Second
)

const (
	confirmation   = 1 // the octet that confirms a block
	sampleInterval = 50 * time.Millisecond
	// blockTimeout is how long to wait for a block. At 64 kbit/s a block takes 2 s.
	blockTimeout = 4 * time.Second
)

// rateMeter measures the rate of bytes that arrive or are confirmed.
type rateMeter struct {
	at     []time.Time
	totals []unit.Bytes // totals at these times
}

// meterInterval is the least time between samples.
const meterInterval = 10 * time.Millisecond

// addArrivedBytes counts n bytes that arrived now. Samples are at least meterInterval apart.
func (m *rateMeter) addArrivedBytes(now time.Time, n unit.Bytes) {
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

func (m *rateMeter) totalArrived() unit.Bytes {
	if len(m.totals) == 0 {
		return 0
	}
	return m.totals[len(m.totals)-1]
}

// bytesSince returns how many bytes came after time t.
func (m *rateMeter) bytesSince(t time.Time) unit.Bytes {
	i := len(m.at)
	for i > 0 && m.at[i-1].After(t) {
		i--
	}
	if i == 0 {
		return m.totalArrived()
	}
	return m.totalArrived() - m.totals[i-1]
}

// rateAfterSlowStart returns the rate over the last two thirds of the time, when slow start is
// usually over.
func (m *rateMeter) rateAfterSlowStart() unit.Rate {
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

// sendState holds the state of a transfer at its sender.
type sendState struct {
	changed chan struct{} // gets a value after each change

	mu                  sync.Mutex
	confirmed           rateMeter
	noMoreConfirmations bool // no more confirmations will come
	err                 error
}

// readConfirmations reads confirmations until EOF or another octet, which remains in r.
func (f *sendState) readConfirmations(r *bufio.Reader) {
	for done := false; !done; {
		b, err := r.ReadByte()
		f.mu.Lock()
		switch {
		case err != nil:
			f.err, f.noMoreConfirmations = err, true
		case b == confirmation:
			f.confirmed.addArrivedBytes(time.Now(), maxBlock)
		default:
			f.err, f.noMoreConfirmations = r.UnreadByte(), true
		}
		done = f.noMoreConfirmations
		f.mu.Unlock()
		select {
		case f.changed <- struct{}{}:
		default:
		}
	}
}

// canSendBlock reports whether another block may be sent after sent bytes, whether all bytes are
// confirmed, and whether no more confirmations will come.
func (f *sendState) canSendBlock(sent unit.Bytes) (more, all, noMore bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	under := sent - f.confirmed.totalArrived()
	return under < initialWindow+f.confirmed.bytesSince(time.Now().Add(-windowTime)), under == 0, f.noMoreConfirmations
}

// sendBlocks sends blocks as requested until all are confirmed, and returns the confirmed bytes. It
// reads confirmations from r. For Up a line follows them, which remains in r. each is called
// regularly meanwhile.
func sendBlocks(c net.Conn, r *bufio.Reader, a Request, each func()) (unit.Bytes, error) {
	f := &sendState{changed: make(chan struct{}, 1)}
	var reader sync.WaitGroup
	reader.Go(func() { f.readConfirmations(r) })
	err := f.writeBlocks(c, a, each)
	if err == nil && a.Direction == Up {
		reader.Wait()
		return f.confirmed.totalArrived(), f.err
	}
	_ = c.SetReadDeadline(time.Unix(1, 0)) // nothing more will come
	reader.Wait()
	if err != nil {
		err = errors.Join(err, f.err)
	}
	return f.confirmed.totalArrived(), err
}

// writeBlocks writes blocks until the requested time or bytes are over and the other end has
// received all. It calls each once in a sampleInterval.
func (f *sendState) writeBlocks(c net.Conn, a Request, each func()) error {
	block := make([]byte, 2+maxBlock)
	binary.BigEndian.PutUint16(block, maxBlock)
	end := time.Now().Add(time.Duration(a.Ms) * time.Millisecond)
	tick := time.NewTicker(sampleInterval)
	defer tick.Stop()
	for sent := unit.Bytes(0); ; {
		more, all, noMore := f.canSendBlock(sent)
		enough := sent >= a.Bytes || !time.Now().Before(end)
		switch {
		case noMore:
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

// receiveBlocks receives and confirms blocks until the last one, and measures their rate. It fails
// if no block comes for blockTimeout.
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
		if n > maxBlock || m.totalArrived()+unit.Bytes(n) > limit+maxBlock {
			return m, fmt.Errorf("a block of %d bytes, after %v of %v", n, m.totalArrived(), limit)
		}
		if _, err := r.Discard(n); err != nil {
			return m, err
		}
		m.addArrivedBytes(time.Now(), unit.Bytes(n))
		if _, err := c.Write([]byte{confirmation}); err != nil {
			return m, err
		}
	}
}
