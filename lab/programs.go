// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"mpbond/base/fault"
)

// findProgram returns the path of mpbond or cellwatch: beside this program, else in PATH. The lab
// runs them as processes and never links them.
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
		return "", fault.New(fault.NotFound, fmt.Errorf("no program %s beside %s or in PATH", name,
			filepath.Base(self)), "build all three with `make build`")
	}
	return filepath.Abs(path)
}

// RunsProduct reports whether a scheme runs the program mpbond.
func RunsProduct(scheme string) bool {
	name, _, _ := strings.Cut(scheme, ":")
	return name == "mpbond" || name == "onload" || name == "page"
}

// CheckProduct checks that the program mpbond exists and has the given build version, which results
// name.
func CheckProduct(ctx context.Context, version string) error {
	path, err := findProgram("mpbond")
	if err != nil {
		return err
	}
	out, err := exec.CommandContext(ctx, path, "version", "--json").Output()
	if err != nil {
		return fmt.Errorf("%s version: %w", path, err)
	}
	var found struct{ Version string }
	if err := json.Unmarshal(out, &found); err != nil {
		return fmt.Errorf("%s version: %w", path, err)
	}
	if found.Version != version {
		return fault.New(fault.Usage, fmt.Errorf("%s is version %.64q, and this program %q", path, found.Version,
			version), "build all three with `make build`, and run them from one directory")
	}
	return nil
}
