// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"golang.org/x/sys/unix"

	"mpbond/base/fault"
)

// TestWithoutBluetooth checks the error and hint of a kernel without Bluetooth.
func TestWithoutBluetooth(t *testing.T) {
	if fd, err := unix.Socket(unix.AF_BLUETOOTH, unix.SOCK_STREAM, unix.BTPROTO_RFCOMM); err == nil {
		unix.Close(fd)
		t.Skip("this kernel has Bluetooth")
	}
	_, err := RFCOMM{}.Dial(t.Context(), "AA:BB:CC:DD:EE:FF/1")
	if !fault.Is(err, fault.Config) || fault.HintOf(err) == "" {
		t.Errorf("dial: %v", err)
	}
	if _, err := (RFCOMM{}).Listen(t.Context(), "1"); !fault.Is(err, fault.Config) || fault.HintOf(err) == "" {
		t.Errorf("listen: %v", err)
	}
}

// TestRFCOMMConn tests everything in a connection that does not depend on Bluetooth, over a pair of
// Unix sockets.
func TestRFCOMMConn(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	a, err := newRFCOMMConn(fds[0], rfcommAddr{})
	if err != nil {
		t.Fatal(err)
	}
	b, err := newRFCOMMConn(fds[1], rfcommAddr{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	defer b.Close()
	sent := bytes.Repeat([]byte("0123456789"), 50_000)
	go func() {
		for p := sent; len(p) > 0; {
			n := min(len(p), 7000)
			if err := a.WaitWritable(); err != nil {
				t.Error(err)
			}
			a.Cork()
			_, _ = a.Write(p[:n/2])
			_, _ = a.Write(p[n/2 : n])
			if err := a.Flush(); err != nil {
				t.Error(err)
			}
			p = p[n:]
		}
	}()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(b, got); err != nil || !bytes.Equal(got, sent) {
		t.Fatal("other bytes", err)
	}
	if err := a.CloseWrite(); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("half-close: %v", err)
	}
	deadlinesAndClose(t, a, b)
}
