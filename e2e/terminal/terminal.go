// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package terminal runs programs in a pseudo-terminal, follows what they draw on the screen, and
// writes the screen as SVG.
//
//	terminal.go  the pseudo-terminal
//	screen.go    the screen: text, colours and the control sequences that programs use
//	svg.go       the picture
package terminal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// termName is the kind of terminal that programs find in TERM.
const termName = "xterm-256color"

// Terminal is a program that runs in a pseudo-terminal. Its methods may be called concurrently.
type Terminal struct {
	cmd    *exec.Cmd
	master *os.File
	done   chan struct{} // closed when the program has exited and all its output is on the screen
	err    error         // exit error, valid once done is closed

	mu     sync.Mutex
	screen *Screen
}

// Start starts a program in a terminal that shows the screen and has its size. Standard input,
// output and error of the program are the terminal. The terminal owns the screen until the program
// has exited.
func Start(cmd *exec.Cmd, screen *Screen) (*Terminal, error) {
	master, slave, err := openPseudoTerminal(screen.Columns, screen.Rows)
	if err != nil {
		return nil, err
	}
	t := &Terminal{cmd: cmd, master: master, done: make(chan struct{}), screen: screen}
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	// A language with UTF-8, whatever this machine's is, and no wish for more or fewer colours.
	cmd.Env = append(cmd.Env, "TERM="+termName, "LC_ALL=C.UTF-8", "COLORTERM=", "NO_COLOR=", "COLUMNS=", "LINES=")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = slave, slave, slave
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid, cmd.SysProcAttr.Setctty = true, true
	err = cmd.Start()
	slave.Close()
	if err != nil {
		master.Close()
		return nil, err
	}
	go t.followOutput()
	return t, nil
}

// openPseudoTerminal opens both ends of a new pseudo-terminal.
func openPseudoTerminal(columns, rows int) (master, slave *os.File, err error) {
	if master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		return nil, nil, err
	}
	raw, err := master.SyscallConn()
	number := -1
	if err == nil {
		_ = raw.Control(func(fd uintptr) {
			size := &unix.Winsize{Row: uint16(rows), Col: uint16(columns)}
			if err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, size); err != nil {
				return
			}
			if number, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN); err == nil {
				err = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0)
			}
		})
	}
	if err == nil {
		slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		master.Close()
		return nil, nil, err
	}
	return master, slave, nil
}

// followOutput puts the program's output on the screen until it has exited.
func (t *Terminal) followOutput() {
	defer close(t.done)
	buf := make([]byte, 1<<16)
	for {
		n, err := t.master.Read(buf)
		t.mu.Lock()
		t.screen.Write(buf[:n])
		answer := t.screen.takeAnswer()
		t.mu.Unlock()
		if answer != "" {
			_, _ = io.WriteString(t.master, answer)
		}
		if err != nil { // EIO: no process has the terminal any more
			break
		}
	}
	t.err = t.cmd.Wait()
	t.master.Close()
}

// Screen returns a copy of the screen as it is now.
func (t *Terminal) Screen() *Screen {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.screen.cloneScreen()
}

// Type sends text as if it were typed.
func (t *Terminal) Type(text string) error {
	_, err := io.WriteString(t.master, text)
	return err
}

// Done returns a channel that is closed when the program has exited.
func (t *Terminal) Done() <-chan struct{} { return t.done }

// Wait waits until the program has exited and returns its exit error.
func (t *Terminal) Wait() error {
	<-t.done
	return t.err
}

// Signal sends a signal to the program. A program that has exited is no error.
func (t *Terminal) Signal(s os.Signal) error {
	if err := t.cmd.Process.Signal(s); !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}
