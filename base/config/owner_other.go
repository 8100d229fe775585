// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package config

import "os"

// keepFileOwner does nothing where files have no Unix owner.
func keepFileOwner(*os.File, os.FileInfo) error { return nil }
