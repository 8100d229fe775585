// SPDX-License-Identifier: Apache-2.0

package listen

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"mpbond/base/waittest"
)

// waitUntil waits until the state of a listener fits, while meanwhile continues the input.
func waitUntil(t *testing.T, l *Listener, is func(silent error) bool, meanwhile func() error) {
	t.Helper()
	waittest.UntilSuccess(t, func() error {
		silent := l.State().Silent
		if is(silent) {
			return nil
		}
		if err := meanwhile(); err != nil {
			t.Fatal(err)
		}
		return fmt.Errorf("silent: %v", silent)
	})
}

// TestRealSources checks that a decoder is received over a FIFO and a Unix socket, is reported
// silent when it is gone, and is received again when it is back.
func TestRealSources(t *testing.T) {
	dir := t.TempDir()
	fifo, sock := filepath.Join(dir, "fifo"), filepath.Join(dir, "sock")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Skipf("no FIFO can be made here: %v", err)
	}
	ln, err := net.Listen("unix", sock)
	if err != nil {
		t.Skipf("no Unix sockets here: %v", err)
	}
	defer ln.Close()
	for text, next := range map[string]func() (io.WriteCloser, error){
		fifo:           func() (io.WriteCloser, error) { return os.OpenFile(fifo, os.O_WRONLY, 0) },
		"unix:" + sock: func() (io.WriteCloser, error) { return ln.Accept() },
	} {
		src, err := ParseSource(text)
		if err != nil {
			t.Fatal(err)
		}
		l := New(Config{Source: src, RNTI: me})
		runListener(t, l)
		for range 2 {
			w, err := next()
			if err != nil {
				t.Fatal(err)
			}
			st, begin := newTestDecoder(t, w), time.Now()
			waitUntil(t, l, func(silent error) bool { return silent == nil }, func() error {
				for st.number <= int64(time.Since(begin)/ms) {
					if err := st.writeSelf(me); err != nil {
						return err
					}
				}
				return nil
			})
			w.Close()
			waitUntil(t, l, func(silent error) bool { // until it has closed its end
				return silent != nil && strings.Contains(silent.Error(), "ended")
			}, func() error { return nil })
		}
	}
}
