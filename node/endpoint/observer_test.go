// SPDX-License-Identifier: Apache-2.0

package endpoint

import (
	"bytes"
	"io"
	"slices"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/core/bond"
	"mpbond/link/wire"
)

// countingObserver counts what is moved over a stream. The endpoint's lock guards it.
type countingObserver struct {
	up, down unit.Bytes
	ends     []bool // complete
	stream   ObservedStream
	seen     int  // subflows
	passedOn bool // the last expectation
}

func (o *countingObserver) RecordMovedBytes(_ time.Time, up bool, n unit.Bytes) {
	if up {
		o.up += n
	} else {
		o.down += n
	}
	o.seen = len(o.stream.Candidates(up))
	o.passedOn = o.stream.ExpectMessage(time.Now(), up, bond.Expectation{End: wire.DataSeq(unit.MB)})
}

func (o *countingObserver) RecordEnd(_ time.Time, complete bool) { o.ends = append(o.ends, complete) }

// TestObserver checks that an observer gets all bytes that the app reads and writes, and the end of
// the stream once, with whether it was complete.
func TestObserver(t *testing.T) {
	p := newBondPair(t, 2, echoStream)
	const size = 300_000
	for name, c := range map[string]struct {
		use  func(*Conn) error
		down unit.Bytes
		ends []bool
	}{
		"read": {func(c *Conn) error { return exchangeBytes(c, randomBytes(size)) }, size, []bool{true}},
		"written to another one": {func(c *Conn) error {
			if _, err := c.Write(randomBytes(size)); err != nil {
				return err
			}
			if err := c.CloseWrite(); err != nil {
				return err
			}
			var to bytes.Buffer
			if _, err := c.WriteTo(&to); err != nil {
				return err
			}
			return c.Close()
		}, size, []bool{true}},
		"closed before the end": {func(c *Conn) error {
			if _, err := c.Write(randomBytes(size)); err != nil {
				return err
			}
			if _, err := io.ReadFull(c, make([]byte, 1000)); err != nil {
				return err
			}
			return c.Close()
		}, 1000, []bool{false}},
		"reset": {func(c *Conn) error {
			if _, err := c.Write(randomBytes(size)); err != nil {
				return err
			}
			c.Reset()
			c.Reset()
			return c.Close()
		}, 0, []bool{false}},
	} {
		o := &countingObserver{}
		conn := p.dialStream()
		conn.SetObserver(func(s ObservedStream) Observer { o.stream = s; return o })
		if err := c.use(conn); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		p.client.mu.Lock()
		if o.up != size || o.down != c.down || !slices.Equal(o.ends, c.ends) || o.seen != 2 || !o.passedOn {
			t.Errorf("%s: %v up, %v down, ends %v, %d subflows", name, o.up, o.down, o.ends, o.seen)
		}
		p.client.mu.Unlock()
	}
}
