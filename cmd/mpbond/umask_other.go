//go:build !unix

package main

import "os"

// newFileMode is what a file gets that a program makes without further wishes.
func newFileMode() os.FileMode { return 0o666 }
