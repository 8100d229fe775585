//go:build !unix

package config

import "os"

// keepOwner does nothing where files have no owner of that kind.
func keepOwner(*os.File, os.FileInfo) error { return nil }

// dirWritable takes each directory for one where this user may make files: who may
// is not in its mode.
func dirWritable(dir string) bool {
	st, err := os.Stat(dir)
	return err == nil && st.IsDir()
}
