// SPDX-License-Identifier: Apache-2.0

//go:build unix

package cli

import (
	"os"
	"syscall"
)

// NewFileMode returns the mode of a new file.
func NewFileMode() os.FileMode {
	mask := syscall.Umask(0) // the only way to read it; no other goroutine creates files then
	syscall.Umask(mask)
	return 0o666 &^ os.FileMode(mask)
}
