// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"mpbond/internal/cli/clitest"
)

// Every command of the documents is one that this program accepts.
func TestDocuments(t *testing.T) { clitest.CheckDocuments(t, mpbondLabProgram()) }
