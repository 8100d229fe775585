//go:build !linux

package userfile

import "os"

// FreeSpace is not told here.
func FreeSpace(*os.File) (n int64, ok bool) { return 0, false }

// DiskUsage is not told here.
func DiskUsage(*os.File) int64 { return 0 }
