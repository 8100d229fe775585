package helper

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"mpbond/base/unit"
	"mpbond/link/estimate"
	"mpbond/node/dial"
)

// movable is a connection whose attempts to move end so.
type movable struct {
	net.Conn
	err error
}

func (m *movable) Move() error { return m.err }

// TestMoves: an HS-path that has lost its address waits for another one for a while;
// over TCP, and where the way goes elsewhere, it does not.
func TestMoves(t *testing.T) {
	none := errors.New("no address")
	for name, c := range map[string]struct {
		errs  []error
		stays []bool
		count int
	}{
		"at once":     {[]error{nil, nil}, []bool{true, true}, 2},
		"later":       {[]error{none, none, nil, none, none, nil}, []bool{true, true, true, true, true, true}, 2},
		"never":       {[]error{none, none, none}, []bool{true, true, false}, 0},
		"elsewhere":   {[]error{dial.ErrElsewhere}, []bool{false}, 0},
		"not at all":  {[]error{errors.ErrUnsupported}, []bool{false}, 0},
		"it is ended": {[]error{net.ErrClosed}, []bool{false}, 0},
	} {
		var m moves
		for i, err := range c.errs {
			if stays := m.follow(&movable{nil, err}); stays != c.stays[i] {
				t.Errorf("%s: at %d: %v", name, i, stays)
			}
		}
		if m.count != c.count {
			t.Errorf("%s: it moved %d times", name, m.count)
		}
	}
	if new(moves).follow(&net.TCPConn{}) {
		t.Error("TCP moves")
	}
}

// TestMute: an HS-path is mute since nothing came while something sent waited for its
// acknowledgement; an idle one is not.
func TestMute(t *testing.T) {
	began := time.Unix(1e9, 0)
	type look struct {
		queue           unit.Bytes
		acked, received uint64
	}
	for name, c := range map[string]struct {
		looks []look
		want  time.Duration // at the last look, one a second
	}{
		"idle":              {[]look{{0, 9, 9}, {0, 9, 9}, {0, 9, 9}}, 0},
		"busy":              {[]look{{9, 1, 9}, {9, 2, 9}, {9, 3, 9}}, 0},
		"it answers":        {[]look{{9, 1, 1}, {9, 1, 2}, {9, 1, 3}}, 0},
		"mute":              {[]look{{9, 1, 1}, {9, 1, 1}, {9, 1, 1}, {20, 1, 1}}, 3 * time.Second},
		"mute after a time": {[]look{{0, 1, 1}, {0, 1, 1}, {9, 1, 1}, {9, 1, 1}}, 2 * time.Second},
	} {
		var m mute
		now := began
		for i, l := range c.looks {
			now = began.Add(time.Duration(i) * time.Second)
			m.look(now, estimate.Hop{Queue: l.queue, Acked: l.acked, Received: l.received})
		}
		if got := now.Sub(m.since); got != c.want {
			t.Errorf("%s: for %v", name, got)
		}
		if silent := m.silent(now.Add(time.Second/10), io.EOF) != nil; silent != (c.want > 0) {
			t.Errorf("%s: silent %v", name, silent)
		}
		if m.silent(now.Add(time.Hour), errAddress) != nil {
			t.Errorf("%s: it had no address", name)
		}
	}
	if (mute{}).silent(began, io.EOF) != nil {
		t.Error("nobody has looked")
	}
}
