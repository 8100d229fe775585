// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package cli

import "os"

// NewFileMode returns the mode of a new file.
func NewFileMode() os.FileMode { return 0o666 }
