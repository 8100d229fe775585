// SPDX-License-Identifier: Apache-2.0

package pair

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"mpbond/e2e/rig"
)

// documentedLine is a command in a code block of a document, with the device whose prompt it has.
var documentedLine = regexp.MustCompile(`(?m)^    ([a-z]+)\$ +(mpbond .*?)(?: +#.*)?$`)

// TestReadme runs the commands of README.md as written, on devices with the names of their prompts.
// Only the codes and the server's address are filled in.
func TestReadme(t *testing.T) {
	t.Parallel() // it checks neither rates nor times
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	n := newNetwork(t, "20/20/20")
	bin := t.TempDir()
	if err := os.Symlink(n.Mpbond, filepath.Join(bin, "mpbond")); err != nil {
		t.Fatal(err)
	}
	nodes := map[string]string{"vps": "server", "spare": "helper1", "laptop": "primary"}
	codes := []string{}
	for _, m := range documentedLine.FindAllStringSubmatch(string(text), -1) {
		device, line := m[1], strings.Replace(m[2], "vps.example.org", "server", 1)
		if nodes[device] == "" {
			t.Fatalf("README.md has a command for %q", device)
		}
		for strings.Contains(line, "CODE") {
			if len(codes) == 0 {
				t.Fatalf("%q has more codes than devices show", m[2])
			}
			line, codes = strings.Replace(line, "CODE", codes[0], 1), codes[1:]
		}
		shell := func(command string) []string {
			return []string{"unshare", "--uts", "sh", "-c",
				fmt.Sprintf("echo %s >/proc/sys/kernel/hostname && PATH=%s:$PATH && %s", device, bin, command)}
		}
		commands := strings.Split(line, " && ")
		last := len(commands) - 1
		for _, c := range commands[:last] {
			n.Must(nodes[device], shell(c)...)
		}
		role := n.Start(nodes[device], shell("exec "+commands[last])...)
		if strings.Contains(m[0], "shows a code") {
			codes = append(codes, role.AwaitCode())
		}
	}
	n.Await(2)
	want := fmt.Sprint(map[string]string{"vps": "server connected", "spare": "helper connected"})
	rig.Eventually(t, func() error {
		if got := fmt.Sprint(n.deviceStates("primary")); got != want {
			return fmt.Errorf("the laptop knows %s, want %s", got, want)
		}
		return nil
	})
}
