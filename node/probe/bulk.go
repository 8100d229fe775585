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
	firstWindow = 32 * unit.KB
	windowTime  = time.Second
)

const (
	confirmed   = 1 // the octet for a block
	sampleEvery = 50 * time.Millisecond
	// stall is how long no block may come: at 64 kbit/s one takes 2 s.
	stall = 4 * time.Second
)

// meter is a rate, of what comes or is confirmed.
type meter struct {
	at    []time.Time
	total []unit.Bytes // at these times
}

// meterStep is how far apart what a meter keeps is.
const meterStep = 10 * time.Millisecond

func (m *meter) add(now time.Time, n unit.Bytes) {
	last := len(m.at) - 1
	if last < 0 {
		m.at, m.total = append(m.at, now), append(m.total, n)
		return
	}
	n += m.total[last]
	if last > 0 && now.Sub(m.at[last-1]) < meterStep {
		m.at[last], m.total[last] = now, n
		return
	}
	m.at, m.total = append(m.at, now), append(m.total, n)
}

func (m *meter) bytes() unit.Bytes {
	if len(m.total) == 0 {
		return 0
	}
	return m.total[len(m.total)-1]
}

// since is how much came after a time.
func (m *meter) since(t time.Time) unit.Bytes {
	i := len(m.at)
	for i > 0 && m.at[i-1].After(t) {
		i--
	}
	if i == 0 {
		return m.bytes()
	}
	return m.bytes() - m.total[i-1]
}

// steady is the rate of the last two thirds of the time: slow start is over by
// then, or it is short of the truth.
func (m *meter) steady() unit.Rate {
	last := len(m.at) - 1
	if last < 1 {
		return 0
	}
	from := m.at[0].Add(m.at[last].Sub(m.at[0]) / 3)
	i := 0
	for i < last-1 && m.at[i].Before(from) {
		i++
	}
	return unit.RateOf(m.total[last]-m.total[i], m.at[last].Sub(m.at[i]))
}

// feedback is what a sender learns while it sends.
type feedback struct {
	news chan struct{} // something has changed

	mu   sync.Mutex
	back meter
	over bool // no more confirmations come
	err  error
}

// read takes confirmations until something else comes, which stays in r, or
// nothing more.
func (f *feedback) read(r *bufio.Reader) {
	for over := false; !over; {
		b, err := r.ReadByte()
		f.mu.Lock()
		switch {
		case err != nil:
			f.err, f.over = err, true
		case b == confirmed:
			f.back.add(time.Now(), maxBlock)
		default:
			f.err, f.over = r.UnreadByte(), true
		}
		over = f.over
		f.mu.Unlock()
		select {
		case f.news <- struct{}{}:
		default:
		}
	}
}

// may tells whether another block may be sent now, sent bytes having been, and
// whether all of them are confirmed.
func (f *feedback) may(sent unit.Bytes) (more, all, over bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	under := sent - f.back.bytes()
	return under < firstWindow+f.back.since(time.Now().Add(-windowTime)), under == 0, f.over
}

// send sends blocks until what was asked is through and confirmed, and returns
// how much was. Confirmations come by r; upwards a line follows, which is left
// there. Each is called now and then meanwhile.
func send(c net.Conn, r *bufio.Reader, a Ask, each func()) (unit.Bytes, error) {
	f := &feedback{news: make(chan struct{}, 1)}
	var reader sync.WaitGroup
	reader.Go(func() { f.read(r) })
	err := f.write(c, a, each)
	if err == nil && a.Direction == Up {
		reader.Wait()
		return f.back.bytes(), f.err
	}
	_ = c.SetReadDeadline(time.Unix(1, 0)) // nothing more comes
	reader.Wait()
	if err != nil {
		err = errors.Join(err, f.err)
	}
	return f.back.bytes(), err
}

func (f *feedback) write(c net.Conn, a Ask, each func()) error {
	block := make([]byte, 2+maxBlock)
	binary.BigEndian.PutUint16(block, maxBlock)
	end := time.Now().Add(time.Duration(a.Ms) * time.Millisecond)
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for sent := unit.Bytes(0); ; {
		more, all, over := f.may(sent)
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
		case <-f.news:
		}
	}
}

// receive takes blocks until the last one, confirms each, and measures. It gives
// up when none comes for long.
func receive(ctx context.Context, c net.Conn, r *bufio.Reader, limit unit.Bytes) (m meter, err error) {
	var head [2]byte
	for {
		_ = c.SetReadDeadline(time.Now().Add(stall))
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
		if n > maxBlock || m.bytes()+unit.Bytes(n) > limit+maxBlock {
			return m, fmt.Errorf("a block of %d bytes, after %v of %v", n, m.bytes(), limit)
		}
		if _, err := r.Discard(n); err != nil {
			return m, err
		}
		m.add(time.Now(), unit.Bytes(n))
		if _, err := c.Write([]byte{confirmed}); err != nil {
			return m, err
		}
	}
}
