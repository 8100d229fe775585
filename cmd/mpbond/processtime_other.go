// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package main

import "time"

// processTime returns 0: the processor time is unknown here.
func processTime() time.Duration { return 0 }
