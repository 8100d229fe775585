// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"mpbond/internal/cli"
	"mpbond/link/wire"
)

// onTerminal runs the program in this process with a terminal as standard error, and returns what
// it showed.
func onTerminal(t *testing.T, args ...string) (code int, stdout, shown string) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminals can be made here: %v", err)
	}
	defer master.Close()
	number := -1
	raw, err := master.SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) {
			if number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN); err == nil {
				err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0)
			}
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	screen, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminals can be made here: %v", err)
	}
	var seen bytes.Buffer
	read := make(chan struct{})
	go func() {
		defer close(read)
		_, _ = io.Copy(&seen, master) // ends with EIO when nobody has the terminal
	}()
	var out bytes.Buffer
	code = mpbondProgram().Run(t.Context(), args, &out, screen)
	screen.Close()
	<-read
	return code, out.String(), seen.String()
}

// TestPairOnTerminal checks that a terminal shows the present step and then clears it, and that
// --json shows none.
func TestPairOnTerminal(t *testing.T) {
	newHome(t)
	one := newPairingDevice(t, wire.PairServer, "one")
	const wiped = "\r\x1b[K"
	code, _, shown := onTerminal(t, "pair", one())
	if code != cli.ExitOK || !strings.Contains(shown, wiped+"connecting to 127.0.0.1:") ||
		!strings.Contains(shown, " answers …"+wiped+"paired with one as server") {
		t.Errorf("code %d: %q", code, shown)
	}
	code, out, shown := onTerminal(t, "pair", "--json", one())
	if code != cli.ExitOK || strings.Contains(shown, wiped) || !strings.Contains(out, `"name":"one"`) {
		t.Errorf("code %d: %s%q", code, out, shown)
	}
}

// TestDoctorOnTerminal checks that a terminal shows the present step and clears it before the
// report.
func TestDoctorOnTerminal(t *testing.T) {
	newPairedHome(t)
	code, out, shown := onTerminal(t, "doctor", "--no-rate")
	if code != cli.ExitNoConnection || !strings.HasPrefix(shown, "\r\x1b[Kthis device …\r\x1b[K") ||
		!strings.HasSuffix(shown, "\r\x1b[K") || strings.Contains(out, "\x1b") {
		t.Errorf("code %d: %s%q", code, out, shown)
	}
}
