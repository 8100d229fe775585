// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bufio"
	"bytes"
	"net"
	"testing"
	"time"

	"mpbond/api"
)

// scriptedConn is a connection whose other end has sent everything, and which accepts all writes.
type scriptedConn struct {
	net.Conn // nil
	*bytes.Reader
	wrote int
}

func (s *scriptedConn) Read(p []byte) (int, error)  { return s.Reader.Read(p) }
func (s *scriptedConn) Write(p []byte) (int, error) { s.wrote += len(p); return len(p), nil }
func (s *scriptedConn) SetDeadline(time.Time) error { return nil }

func (s *scriptedConn) SetReadDeadline(time.Time) error { return nil }

// FuzzServe checks that the server ends by itself for any input, and sends no more than its limit.
func FuzzServe(f *testing.F) {
	f.Add([]byte("{}\n"))
	f.Add([]byte(`{"direction":"down","bytes":100000,"ms":1000}` + "\n\x01\x01\x01\x01\x01\x01\x01"))
	f.Add([]byte(`{"direction":"up","bytes":100000,"ms":1000}` + "\n\x00\x03abc\x00\x00"))
	f.Add([]byte(`{"direction":"up","bytes":-1}` + "\n\xff\xff"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var a Request
		if readJSONLine(bufio.NewReader(bytes.NewReader(b)), &a) == nil && a.Resolve {
			t.Skip("it would ask a resolver")
		}
		c := &scriptedConn{Reader: bytes.NewReader(b)}
		err := Serve(t.Context(), c, ServerSide{Hop: func() *api.Hop { return nil }})
		if blocks := bytes.Count(b,
			[]byte{confirmation}); c.wrote > 3*maxLine+len(b)+(blocks+4)*(maxBlock+2)+2*int(initialWindow) {
			t.Errorf("%d bytes for %q, %v", c.wrote, b, err)
		}
	})
}

// FuzzMeasure checks that the client ends by itself for any answer.
func FuzzMeasure(f *testing.F) {
	about := `{"version":"1","time":"2026-01-01T00:00:00Z"}` + "\n"
	f.Add(byte(0), []byte(about+"{}\n"))
	f.Add(byte(1), []byte(about+"\x00\x03abc\x00\x00{\"bytes\":3}\n"))
	f.Add(byte(2), []byte(about+"\x01\x01{\"bytes\":32768,\"rate_bps\":1000}\n"))
	f.Add(byte(1), []byte(about+"\x40\x01"))
	f.Fuzz(func(t *testing.T, direction byte, b []byte) {
		a := Request{Direction: []string{None, Down, Up}[direction%3], Bytes: 1 << 15, Ms: 20}
		ans, err := Measure(t.Context(), &scriptedConn{Reader: bytes.NewReader(b)}, a, time.Now)
		if a.Direction == Down && ans.Bytes > a.Bytes+2*maxBlock {
			t.Errorf("%v were taken, %v", ans.Bytes, err)
		}
	})
}

// TestTruncatedAnswers checks that an answer truncated anywhere is an error.
func TestTruncatedAnswers(t *testing.T) {
	whole := []byte(`{"version":"1","time":"2026-01-01T00:00:00Z"}` + "\n\x00\x03abc\x00\x00{\"bytes\":3}\n")
	for n := range len(whole) + 1 {
		_, err := Measure(t.Context(), &scriptedConn{Reader: bytes.NewReader(whole[:n])},
			Request{Direction: Down, Bytes: 100, Ms: 20}, time.Now)
		if (err == nil) != (n == len(whole)) {
			t.Errorf("%d of %d bytes: %v", n, len(whole), err)
		}
	}
}
