package main

import (
	"testing"

	"mpbond/internal/cli/clitest"
)

func TestMan(t *testing.T) {
	home(t)
	clitest.CheckMan(t, thisProgram())
}
