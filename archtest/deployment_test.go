// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// lintProgram returns the path of a program that `.ci/deps lint` installs. It skips the test if there is none.
func lintProgram(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs("../bin/lint/bin/" + name)
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		path, err = exec.LookPath(name)
	}
	if err != nil {
		t.Skipf("%s is not installed: run .ci/deps lint", name)
	}
	return path
}

// TestContainerfileLint has hadolint read the Containerfile.
func TestContainerfileLint(t *testing.T) {
	runTool(t, lintProgram(t, "hadolint"), "--no-color", "--failure-threshold", "style", "Containerfile")
}

// TestComposeLint has the parser of the Compose Specification read the compose file.
func TestComposeLint(t *testing.T) {
	runTool(t, lintProgram(t, "compose-spec"), "packaging/fleet/compose.yaml")
}

// TestKubernetesLint validates the objects for Kubernetes. The tool only warns of a kind that it does not know.
func TestKubernetesLint(t *testing.T) {
	const name = "packaging/fleet/kubernetes.yaml"
	out := runTool(t, lintProgram(t, "kubernetes-validate"), "--strict", name)
	want := strings.Count(readFile(t, name), "\nkind: ")
	if got := strings.Count(out, " passed for resource "); got != want || want == 0 {
		t.Errorf("%d of %d objects are valid:\n%s", got, want, out)
	}
}

// TestVersionsOfNATS checks that all files name the same versions of the programs of NATS: .ci/deps that of the server,
// and go.mod that of nk.
func TestVersionsOfNATS(t *testing.T) {
	server := regexp.MustCompile(`nats-io/nats-server/v2@v([\d.]+\d)`)
	want := server.FindStringSubmatch(readFile(t, ".ci/deps"))
	if want == nil {
		t.Fatal(".ci/deps names no version")
	}
	image := regexp.MustCompile(`image: docker\.io/library/nats:(\S+)`)
	keys := regexp.MustCompile(`nats-io/nkeys/nk@(v\S+\d)`)
	keysWant := regexp.MustCompile(`nats-io/nkeys (v\S+)`).FindStringSubmatch(readFile(t, "go.mod"))
	for _, c := range []struct {
		file, want string
		version    *regexp.Regexp
	}{
		{"docs/howto/fleet.md", want[1], server},
		{"packaging/fleet/compose.yaml", want[1], image},
		{"docs/howto/fleet.md", keysWant[1], keys},
	} {
		var got []string
		for _, m := range c.version.FindAllStringSubmatch(readFile(t, c.file), -1) {
			got = append(got, m[1])
		}
		if got = slices.Compact(got); !slices.Equal(got, []string{c.want}) {
			t.Errorf("%s names %q, want %s (%v)", c.file, got, c.want, c.version)
		}
	}
}
