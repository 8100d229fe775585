// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"mpbond/internal/cli/clitest"
)

func TestMan(t *testing.T) {
	newHome(t)
	clitest.CheckMan(t, mpbondProgram())
}
