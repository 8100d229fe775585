// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mpbond/base/fault"
)

// TestCheckProduct checks that results never name another build than the measured one.
func TestCheckProduct(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	for answer, says := range map[string]string{`{"version":"v1"}`: "",
		`{"version":"v2"}`: `is version "v2", and this program "v1"`, "no json": "invalid character"} {
		script := "#!/bin/sh\necho '" + answer + "'\n"
		if err := os.WriteFile(filepath.Join(dir, "mpbond"), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
		err := CheckProduct(t.Context(), "v1")
		if (err == nil) != (says == "") || err != nil && !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v", answer, err)
		}
		if says != "" && strings.Contains(says, "v2") && !fault.Is(err, fault.Usage) {
			t.Errorf("%s is of kind %s", answer, fault.KindOf(err))
		}
	}
	t.Setenv("PATH", t.TempDir())
	if err := CheckProduct(t.Context(), "v1"); !fault.Is(err, fault.NotFound) || !strings.Contains(fault.HintOf(err),
		"make build") {
		t.Errorf("without a program: %v", err)
	}
}
