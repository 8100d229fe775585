// SPDX-License-Identifier: Apache-2.0

//go:build unix

package endpoint

import (
	"math"
	"syscall"
)

// maxFiles returns how many files this process may open. The Go runtime has raised that to what the system allows.
func maxFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt32
	}
	return int(min(uint64(limit.Cur), math.MaxInt32))
}
