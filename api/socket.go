// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"

	"mpbond/base/fault"
	"mpbond/base/userfile"
)

// maxSocketPath is the kernel's limit (unix(7): 108 bytes with the final 0).
const maxSocketPath = 107

const directoryHint = "set MPBOND_HOME, or give --socket, to use another place"

// RuntimeDir returns the directory for sockets: $MPBOND_HOME/run if that variable is set; else
// /run/mpbond for root, and $XDG_RUNTIME_DIR/mpbond or a temporary directory by user number for
// other users.
func RuntimeDir() string {
	if home := os.Getenv("MPBOND_HOME"); home != "" {
		return filepath.Join(home, "run")
	}
	if os.Geteuid() == 0 {
		return "/run/mpbond"
	}
	if dir := os.Getenv("XDG_RUNTIME_DIR"); dir != "" {
		return filepath.Join(dir, "mpbond")
	}
	return filepath.Join(os.TempDir(), "mpbond-"+strconv.Itoa(os.Geteuid()))
}

// SocketPath returns the default socket of a role.
func SocketPath(role string) string { return filepath.Join(RuntimeDir(), role+".sock") }

// Listen opens the socket at path for one process. It replaces a socket that a dead process left; a
// live one is a fault of kind AlreadyRunning. Closing the listener removes the socket.
//
// It creates a missing directory, for its owner only. It rejects a directory that belongs to
// another user, or that others can write to.
func Listen(path string) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fault.New(
			fault.Limit,
			fmt.Errorf("socket path %s is longer than %d bytes", path, maxSocketPath),
			directoryHint,
		)
	}
	if err := ensureOwnDir(filepath.Dir(path)); err != nil {
		return nil, err
	}
	// The holder of the lock owns the socket, so that two processes that start at once cannot both
	// replace an old socket. The lock file stays.
	lock, err := userfile.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR|userfile.NoFollow, 0o600)
	if err != nil {
		return nil, fault.New(fault.Permission, err, directoryHint)
	}
	l, err := listenLocked(path, lock)
	if err != nil {
		lock.Close()
		return nil, err
	}
	return &listener{UnixListener: l, path: path, lock: lock}, nil
}

// listenLocked is Listen with the lock file of the socket. It takes the lock and removes a socket
// that a dead process left.
func listenLocked(path string, lock *os.File) (l *net.UnixListener, err error) {
	err = userfile.TryLock(lock)
	if errors.Is(err, userfile.ErrLocked) {
		return nil, fault.New(fault.AlreadyRunning, fmt.Errorf("mpbond is already running: it holds %s", path),
			"see `mpbond status`; stop that one first, or give this one another --socket")
	}
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	st, err := userfile.Lstat(path)
	switch {
	case err == nil && st.Mode()&os.ModeSocket == 0:
		return nil, fault.New(
			fault.Exists,
			fmt.Errorf("%s exists and is not a socket", path),
			"move it away, or "+directoryHint,
		)
	case err == nil:
		if err := userfile.Remove(path); err != nil {
			return nil, err
		}
	case !errors.Is(err, os.ErrNotExist):
		return nil, err
	}
	// On Linux the socket file gets the mode of the descriptor, so that it is never open to others,
	// not even for a moment. Elsewhere Chmod follows.
	config := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = userfile.CloseToOthers(fd) })
	}}
	err = userfile.WithOwnerRights(filepath.Dir(path), func(dir string) error {
		made, err := config.Listen(context.Background(), "unix", filepath.Join(dir, filepath.Base(path)))
		if err == nil {
			l = made.(*net.UnixListener)
			l.SetUnlinkOnClose(false) // no other process finds it by that name
		}
		return withSocketPath(err, path)
	})
	if err != nil {
		return nil, fmt.Errorf("status socket: %w", err)
	}
	if err := userfile.Chmod(path, 0o600); err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}

// ensureOwnDir creates a directory for its owner, or checks that an existing one is.
func ensureOwnDir(dir string) error {
	if err := userfile.MkdirAll(dir, 0o700); err != nil {
		return fault.New(fault.Permission, err, directoryHint)
	}
	st, err := userfile.Stat(dir)
	if err != nil {
		return err
	}
	if !userfile.IsOwnIn(st, dir) {
		return fault.New(fault.Permission, fmt.Errorf("directory %s belongs to another user", dir),
			"if mpbond made it as root, run `sudo rm -r "+dir+"` while none is running; or "+directoryHint)
	}
	if userfile.GrantsOthers(st, 0o022) {
		return fault.New(fault.Permission, fmt.Errorf("other users can write to the directory %s", dir), directoryHint)
	}
	return nil
}

// Dial connects to the socket at path.
func Dial(ctx context.Context, path string) (c net.Conn, err error) {
	err = userfile.WithOwnerRights(path, func(at string) error {
		c, err = new(net.Dialer).DialContext(ctx, "unix", at)
		return withSocketPath(err, path)
	})
	return c, err
}

// withSocketPath makes a network error show the path that the caller knows.
func withSocketPath(err error, path string) error {
	if e := (*net.OpError)(nil); errors.As(err, &e) && e.Addr != nil {
		e.Addr = &net.UnixAddr{Net: "unix", Name: path}
	}
	return err
}

// listener releases the lock when it closes.
type listener struct {
	*net.UnixListener
	path string
	lock *os.File
	once sync.Once
}

// Addr returns the address to dial.
func (l *listener) Addr() net.Addr { return &net.UnixAddr{Net: "unix", Name: l.path} }

func (l *listener) Close() (err error) {
	l.once.Do(func() {
		err = userfile.Remove(l.path) // while we still own it
		if errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		err = errors.Join(err, l.UnixListener.Close(), l.lock.Close())
	})
	return err
}
