package helper

import (
	"errors"
	"net"
	"testing"

	"mpbond/paths"
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
		"elsewhere":   {[]error{paths.ErrElsewhere}, []bool{false}, 0},
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
