//go:build unix

package config

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// keepOwner makes the owner of f that of a file that it shall replace.
func keepOwner(f *os.File, old os.FileInfo) error {
	st, ok := old.Sys().(*syscall.Stat_t)
	if !ok || int(st.Uid) == os.Geteuid() && int(st.Gid) == os.Getegid() {
		return nil
	}
	return f.Chown(int(st.Uid), int(st.Gid))
}

// dirWritable tells whether this user may make files in a directory.
func dirWritable(dir string) bool { return unix.Access(dir, unix.W_OK|unix.X_OK) == nil }
