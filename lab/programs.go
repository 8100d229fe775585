package lab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"mpbond/base/fault"
)

// findProgram returns the path of one of the measured programs, mpbond or cellwatch: beside
// this program, else in PATH. The lab runs them as processes and never links them.
func findProgram(name string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	beside := filepath.Join(filepath.Dir(self), name)
	if _, err := exec.LookPath(beside); err == nil {
		return beside, nil
	}
	path, err := exec.LookPath(name)
	if err != nil && !errors.Is(err, exec.ErrDot) {
		return "", fault.New(fault.NotFound, fmt.Errorf("there is no program %s beside %s and none in PATH", name, filepath.Base(self)), "build all three with `make build`")
	}
	return filepath.Abs(path)
}
