// SPDX-License-Identifier: Apache-2.0

package userfile

import (
	"os"
	"syscall"
)

// FreeSpace returns how many bytes this user can still write to the file system of f, if known.
func FreeSpace(f *os.File) (n int64, ok bool) {
	var st syscall.Statfs_t
	if err := syscall.Fstatfs(int(f.Fd()), &st); err != nil || st.Blocks == 0 { // no block counts
		return 0, false
	}
	return int64(st.Bavail) * int64(st.Frsize), true
}

// DiskUsage returns the disk space that a file uses.
func DiskUsage(f *os.File) int64 {
	var st syscall.Stat_t
	if syscall.Fstat(int(f.Fd()), &st) != nil {
		return 0
	}
	return int64(st.Blocks) * 512
}
