package pipe

import (
	"errors"
	"io"
	"net"
	"sync/atomic"
	"time"

	"mpbond/base/unit"
	"mpbond/link/estimate"
	"mpbond/link/wire"
)

// HSPath is a Hop between a helper and a server: one connection, without TLS of its own,
// whose end is the end of the hop. What the helper says on it beside the ciphertext has a
// tag by the subflow's key (HOP_AUTH), as nothing else proves who said it.
type HSPath struct {
	frameReader
	frameWriter
	conn hopConn

	onReport func(wire.Report) // or nil
	auth     *verifier         // at the server's end, else nil

	limit     atomic.Int64 // the pace that the far end shall keep to, bit/s
	signer    *signer      // at the helper's end, else nil; guarded by wmu
	limitSent int64        // the limit that the far end knows; guarded by wmu
}

func newHSPath(conn Conn, r *wire.Reader) *HSPath {
	return &HSPath{frameWriter: newFrameWriter(), conn: hopConn{raw: conn, rw: conn, r: r}}
}

// OnReport has f called with reports that a helper leaves. It is set before the first Read.
func (h *HSPath) OnReport(f func(wire.Report)) { h.onReport = f }

// Read implements net.Conn. It returns io.EOF when the peer ended its
// direction in order, and a wire.Refuse when it gave the reason for its end.
func (h *HSPath) Read(p []byte) (int, error) { return h.readData(p, h.nextData) }

// nextData handles the next frame and returns its ciphertext, if it is HOP_DATA.
func (h *HSPath) nextData() ([]byte, error) {
	t, payload, err := h.conn.r.Next()
	switch {
	case err != nil:
		return nil, err
	case t == wire.TypeHopAuth && h.auth != nil:
		return nil, h.handleAuth(payload)
	case t == wire.TypeReport && h.onReport != nil:
		return nil, h.handleReport(payload)
	}
	return h.handleCommonFrame(t, payload)
}

// handleReport handles a report that a helper leaves: the connection was for this alone.
func (h *HSPath) handleReport(payload []byte) error {
	if len(payload) > wire.MaxReport {
		return wire.ErrTooLarge
	}
	f, err := wire.ParseReport(payload)
	if err != nil {
		return err
	}
	h.onReport(f)
	return io.EOF
}

// Write implements net.Conn.
func (h *HSPath) Write(p []byte) (n int, err error) {
	h.wmu.Lock()
	defer h.wmu.Unlock()
	return h.gatherData(p, h.flushLocked)
}

// Flush writes what was gathered and ends the gathering.
func (h *HSPath) Flush() error { return h.uncorkAndFlush(h.flushLocked) }

// flushLocked writes what is gathered, and what is due. wmu must be held.
func (h *HSPath) flushLocked() error {
	h.closeFrame()
	for _, s := range h.takeUnsentReports() {
		h.appendSigned(s)
	}
	if r := h.limit.Load(); r != h.limitSent {
		h.appendSigned(wire.HopLimit{Rate: unit.Rate(r)})
		h.limitSent = r
	}
	if len(h.buf) == 0 {
		return nil
	}
	return h.writeGathered(&h.conn)
}

// appendSigned appends a report or limit, in a HOP_AUTH.
func (h *HSPath) appendSigned(f wire.Frame) {
	if h.signer == nil {
		h.appendFrame(f)
		return
	}
	h.buf = h.signer.appendAuth(h.buf, f)
}

// SendState implements Hop.
func (h *HSPath) SendState(s wire.HopState) error {
	h.setReport(s)
	return h.tryFlush(h.flushLocked)
}

// SendLimit asks the server at the far end to send no faster than r; 0 ends that. As
// SendState it does not wait: to be sure that a limit has left, say it again; only what the
// far end does not know is sent.
func (h *HSPath) SendLimit(r unit.Rate) error {
	if r > 0 {
		r = max(r, wire.MinHopLimit)
	}
	h.limit.Store(int64(r))
	return h.tryFlush(h.flushLocked)
}

// Pace limits how fast this end sends; 0 is no limit. It does nothing on a
// carrier that has no pace.
func (h *HSPath) Pace(r unit.Rate) error {
	if p, ok := h.conn.raw.(interface{ Pace(unit.Rate) error }); ok {
		return p.Pace(r)
	}
	return nil
}

// Refuse implements Hop.
func (h *HSPath) Refuse(code wire.Code, text string) error {
	h.wmu.Lock()
	h.appendFrame(newRefusal(code, text))
	err := h.flushLocked()
	h.wmu.Unlock()
	return errors.Join(err, h.Close())
}

// WaitWritable blocks until a segment written now would soon leave this device.
func (h *HSPath) WaitWritable() error { return h.conn.raw.WaitWritable() }

// Probe tells the state of this hop's sending direction; its byte counts include framing.
func (h *HSPath) Probe() (estimate.Hop, error) { return h.conn.raw.Probe() }

// CloseWrite implements Hop.
func (h *HSPath) CloseWrite() error {
	h.wmu.Lock()
	defer h.wmu.Unlock()
	if err := h.flushLocked(); err != nil {
		return err
	}
	return h.conn.raw.CloseWrite()
}

// Close implements net.Conn.
func (h *HSPath) Close() error { return h.conn.rw.Close() }

// Abort closes with a reset, so that nothing more is carried.
func (h *HSPath) Abort() error {
	if c, ok := h.conn.raw.(interface{ Abort() error }); ok {
		return c.Abort()
	}
	return h.Close()
}

// Conn returns the carrier's connection.
func (h *HSPath) Conn() Conn { return h.conn.raw }

// LocalAddr implements net.Conn.
func (h *HSPath) LocalAddr() net.Addr { return h.conn.raw.LocalAddr() }

// RemoteAddr implements net.Conn.
func (h *HSPath) RemoteAddr() net.Addr { return h.conn.raw.RemoteAddr() }

// SetDeadline implements net.Conn. A read that fails by its deadline is the
// last.
func (h *HSPath) SetDeadline(t time.Time) error { return h.conn.rw.SetDeadline(t) }

// SetReadDeadline implements net.Conn.
func (h *HSPath) SetReadDeadline(t time.Time) error { return h.conn.rw.SetReadDeadline(t) }

// SetWriteDeadline implements net.Conn.
func (h *HSPath) SetWriteDeadline(t time.Time) error { return h.conn.rw.SetWriteDeadline(t) }
