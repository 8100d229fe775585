// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/control/device"
	"mpbond/link/estimate"
	"mpbond/link/tcp"
	"mpbond/link/wire"
	"mpbond/node/dial"
)

// mute is a connection over UDP that never answers a handshake.
type mute struct {
	dial.UDPConn
	net.Conn
}

func (m *mute) Close() error                       { return m.Conn.Close() }
func (m *mute) Read(p []byte) (int, error)         { return m.Conn.Read(p) }
func (m *mute) Write(p []byte) (int, error)        { return m.Conn.Write(p) }
func (m *mute) SetDeadline(t time.Time) error      { return m.Conn.SetDeadline(t) }
func (m *mute) SetReadDeadline(t time.Time) error  { return m.Conn.SetReadDeadline(t) }
func (m *mute) SetWriteDeadline(t time.Time) error { return m.Conn.SetWriteDeadline(t) }
func (m *mute) LocalAddr() net.Addr                { return &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 2} }
func (m *mute) RemoteAddr() net.Addr               { return &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }
func (m *mute) SetPeerName(string)                 {}
func (m *mute) WaitWritable() error                { return nil }
func (m *mute) Cork()                              {}
func (m *mute) Flush() error                       { return nil }
func (m *mute) Probe() (estimate.Hop, error)       { return estimate.Hop{}, nil }

// TestHold: a subflow over TCP tries UDP once even if idle, since UDP may only have been late, and
// then only while busy. If UDP passes only the beginning, that end is noticed at once.
func TestHold(t *testing.T) {
	for name, ends := range map[string]time.Duration{
		"before the look": udpFirstRetry / 2, "during the attempt": udpFirstRetry + 100*time.Millisecond,
		"long after": 10 * time.Minute,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newTestSupervisor(t)
				tries := 0
				k.dialer = dial.Dialer{
					UDPLinks: []string{dial.Any},
					UDP: func(context.Context, string, tcp.Options) (dial.UDPConn, error) {
						tries++
						near, far := net.Pipe()
						go func() { // reads everything and sends nothing
							for b := make([]byte, 4096); ; {
								if _, err := far.Read(b); err != nil {
									return
								}
							}
						}()
						return &mute{Conn: near}, nil
					},
				}
				down := make(chan error, 1)
				l := liveSubflow{
					session: k.bond.active,
					id:      wire.SubflowID(7),
					ended:   down,
					conn:    &roamer{at: "127.0.0.1:3"},
					server:  "127.0.0.1:1",
				}
				began, broken := time.Now(), errors.New("broken")
				time.AfterFunc(ends, func() { down <- broken })
				if err := k.runDirectSubflow(t.Context(), &l, "", "laptop"); err != broken {
					t.Errorf("it ended with %v", err)
				}
				if late := time.Since(began) - ends; late > 100*time.Millisecond {
					t.Errorf("its end was seen %v late", late)
				}
				if want := min(1, int(ends/udpFirstRetry)); tries != want {
					t.Errorf("%d tries, want %d", tries, want)
				}
			})
		})
	}
}

var _ device.CountedConn = (*mute)(nil)
