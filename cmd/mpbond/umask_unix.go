//go:build unix

package main

import (
	"os"
	"syscall"
)

// newFileMode is what a file gets that a program makes without further wishes.
func newFileMode() os.FileMode {
	mask := syscall.Umask(0) // how one reads it; nothing else makes files here
	syscall.Umask(mask)
	return 0o666 &^ os.FileMode(mask)
}
