// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package userfile

import "os"

// FreeSpace is not supported on this system.
func FreeSpace(*os.File) (n int64, ok bool) { return 0, false }

// DiskUsage is not supported on this system.
func DiskUsage(*os.File) int64 { return 0 }
