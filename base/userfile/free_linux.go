package userfile

import (
	"os"
	"syscall"
)

// FreeSpace is how many bytes more this user may write where a file is, if that can be told.
func FreeSpace(f *os.File) (n int64, ok bool) {
	var st syscall.Statfs_t
	if err := syscall.Fstatfs(int(f.Fd()), &st); err != nil || st.Blocks == 0 { // where nothing is counted
		return 0, false
	}
	return int64(st.Bavail) * int64(st.Frsize), true
}

// DiskUsage is how much of the disk a file has.
func DiskUsage(f *os.File) int64 {
	var st syscall.Stat_t
	if syscall.Fstat(int(f.Fd()), &st) != nil {
		return 0
	}
	return int64(st.Blocks) * 512
}
