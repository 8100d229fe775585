//go:build !unix

package store

import "os"

// lock does nothing where files cannot be locked.
func lock(*os.File) error { return nil }

func unlock(*os.File) {}
