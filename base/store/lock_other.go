// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package store

import "os"

// tryFileLock does nothing where files cannot be locked.
func tryFileLock(*os.File) error { return nil }

func releaseFileLock(*os.File) {}
