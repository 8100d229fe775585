// SPDX-License-Identifier: Apache-2.0

package archtest

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"mpbond/base/config"
	"mpbond/base/fault"
	"mpbond/node/helper"
	"mpbond/node/primary"
	"mpbond/node/server"
)

// runTool runs a command, which must succeed, in the root of the tree, and returns its output.
func runTool(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = ".."
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return string(out)
}

// requirePrograms skips a test without a program.
func requirePrograms(t *testing.T, programs ...string) {
	t.Helper()
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("%s is not installed", p)
		}
	}
}

// listFiles lists the plain files below root, as paths from there, sorted.
func listFiles(t *testing.T, root string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			list = append(list, strings.TrimPrefix(path, root))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(list)
	return list
}

// documentedFiles lists the files that docs/howto/install.md names, for a PREFIX.
func documentedFiles(t *testing.T, prefix string) (list []string) {
	t.Helper()
	for _, m := range regexp.MustCompile("(?m)^\\| `(PREFIX)?(/[^`]+)` \\|").FindAllStringSubmatch(readFile(t,
		"docs/howto/install.md"), -1) {
		if m[1] != "" {
			m[2] = prefix + m[2]
		}
		list = append(list, m[2])
	}
	if len(list) < 5 {
		t.Fatalf("docs/howto/install.md names %q: this test looks in the wrong place", list)
	}
	slices.Sort(list)
	return list
}

// TestInstall: make install puts what docs/howto/install.md lists, and make deb packs
// that, and the program pairs three devices, as docs/tutorial/first-bond.md says, and carries
// a file; all from one build.
func TestInstall(t *testing.T) {
	requirePrograms(t, "make")
	dir := t.TempDir()
	mpbond := filepath.Join(dir, "mpbond")
	runTool(t, "make", "build", "LDFLAGS=-s -w", "VERSION=v1.2.3-4-gabc", "MPBOND="+mpbond)
	t.Run("files", func(t *testing.T) {
		dest := t.TempDir()
		own := filepath.Join(dest, "etc/mpbond/server.toml")
		const kept = "listen = \":443\"\n"
		if err := os.MkdirAll(filepath.Dir(own), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(own, []byte(kept), 0o644); err != nil {
			t.Fatal(err)
		}
		runTool(t, "make", "install", "MPBOND="+mpbond, "DESTDIR="+dest)
		got := listFiles(t, dest)
		if want := documentedFiles(t, "/usr/local"); !slices.Equal(got, want) {
			t.Errorf("installed are\n%s\nand listed in docs/howto/install.md\n%s", strings.Join(got, "\n"),
				strings.Join(want, "\n"))
		}
		for _, name := range got {
			text, err := os.ReadFile(dest + name)
			if err != nil {
				t.Fatal(err)
			}
			starts := strings.Contains(string(text), "\nExecStart=/usr/local/bin/mpbond ") &&
				strings.Contains(string(text), " --config /etc/mpbond/")
			if len(text) == 0 || strings.HasSuffix(name, ".service") && !starts {
				t.Errorf("%s:\n%s", name, text)
			}
			mode := fs.FileMode(0o644)
			if strings.Contains(name, "/bin/") {
				mode = 0o755
			}
			if st, err := os.Stat(dest + name); err != nil || st.Mode() != mode {
				t.Errorf("%s: mode %v, want %v; %v", name, st.Mode(), mode, err)
			}
		}
		if text, err := os.ReadFile(own); err != nil || string(text) != kept {
			t.Errorf("a configuration that was there is now %q (%v)", text, err)
		}
		if text, err := os.ReadFile(dest + "/usr/local/share/bash-completion/completions/mpbond"); err != nil ||
			!bytes.Contains(text, []byte("complete -o default")) {
			t.Errorf("completion for bash: %v\n%.200s", err, text)
		}
	})
	t.Run("deb", func(t *testing.T) { testDeb(t, mpbond) })
	t.Run("try", func(t *testing.T) {
		requirePrograms(t, "bash", "curl", "python3", "ip", "unshare")
		if out, err := exec.Command("unshare", "--map-root-user", "--net", "true").CombinedOutput(); err != nil {
			t.Skipf("needs namespaces: %v: %s", err, out)
		}
		runTool(t, "packaging/try", mpbond)
	})
	t.Run("units", func(t *testing.T) { testUnits(t, mpbond) })
}

func testDeb(t *testing.T, mpbond string) {
	requirePrograms(t, "dpkg-deb")
	t.Setenv("DPKG_DEB_COMPRESSOR_TYPE", "none") // compressing takes seconds
	runTool(t, "make", "deb", "MPBOND="+mpbond, "VERSION=v1.2.3-4-gabc")
	debs, err := filepath.Glob(filepath.Dir(mpbond) + "/*.deb")
	if err != nil || len(debs) != 1 {
		t.Fatal(debs, err)
	}
	root, control := t.TempDir(), t.TempDir()
	runTool(t, "dpkg-deb", "-x", debs[0], root)
	runTool(t, "dpkg-deb", "-e", debs[0], control)
	for field, want := range map[string]string{"Package": "mpbond", "Version": "1.2.3+4+gabc"} {
		if got := strings.TrimSpace(runTool(t, "dpkg-deb", "-f", debs[0], field)); got != want {
			t.Errorf("%s: %s, want %s", field, got, want)
		}
	}
	want := append(documentedFiles(t, "/usr"), "/usr/share/doc/mpbond/changelog.gz", "/usr/share/doc/mpbond/copyright")
	for i, name := range want {
		want[i] = strings.NewReplacer("zsh/site-functions", "zsh/vendor-completions", "man1/mpbond.1",
			"man1/mpbond.1.gz").Replace(name)
	}
	slices.Sort(want)
	got := listFiles(t, root)
	if !slices.Equal(got, want) {
		t.Errorf("the package has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	conffiles, err := os.ReadFile(filepath.Join(control, "conffiles"))
	etc := slices.DeleteFunc(got, func(name string) bool { return !strings.HasPrefix(name, "/etc/") })
	if err != nil || !slices.Equal(strings.Fields(string(conffiles)), etc) {
		t.Errorf("conffiles are %q (%v), want %q", conffiles, err, etc)
	}
	for line := range strings.Lines(runTool(t, "dpkg-deb", "-c", debs[0])) {
		if f := strings.Fields(line); f[1] != "root/root" || strings.Contains(f[0][4:], "w") {
			t.Errorf("not root's alone: %s", line)
		}
	}
	if got := runTool(t, root+"/usr/bin/mpbond", "version"); !strings.HasPrefix(got, "mpbond v1.2.3-4-gabc") {
		t.Error(got)
	}
	copyright, err := os.ReadFile(root + "/usr/share/doc/mpbond/copyright")
	for _, module := range []string{"github.com/spf13/cobra", "golang.org/x/sys", "gvisor.dev/gvisor"} {
		if _, text, _ := bytes.Cut(copyright, []byte("======== "+module+" v")); err != nil ||
			!bytes.Contains(bytes.ToLower(text[:min(len(text), 4000)]), []byte("copyright")) {
			t.Errorf("no licence of %s (%v)", module, err)
		}
	}
	t.Run("dpkg", func(t *testing.T) { testScripts(t, debs[0]) })
}

// testScripts has dpkg install, upgrade, remove and purge the package below a
// directory, with a systemctl that only writes down what it is asked.
func testScripts(t *testing.T, deb string) {
	requirePrograms(t, "dpkg")
	if os.Geteuid() != 0 {
		t.Skip("dpkg needs root, below a directory too")
	}
	root, bin := t.TempDir(), t.TempDir()
	log := filepath.Join(bin, "log")
	for name, text := range map[string]string{
		bin + "/systemctl":                  "#!/bin/sh\necho \"$@\" >>" + log + "\n",
		root + "/var/lib/dpkg/status":       "",
		root + "/var/lib/dpkg/available":    "",
		root + "/var/lib/dpkg/info/x":       "",
		root + "/var/lib/dpkg/updates/.x":   "",
		root + "/run/systemd/system/x":      "",
		root + "/var/lib/mpbond/device.key": "own",
		root + "/var/lib/mpbond/trust.toml": "own",
	} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const units = " mpbond-server.service mpbond-helper.service mpbond-primary.service\n"
	templates := []string{"/mpbond/helper.toml", "/mpbond/primary.toml", "/mpbond/server.toml"}
	state := []string{"/mpbond/device.key", "/mpbond/trust.toml"}
	for _, c := range []struct {
		args, asked string
		etc, state  []string
		program     bool
	}{
		{"--install " + deb, "daemon-reload\n", templates, state, true},
		{"--install " + deb, "daemon-reload\ntry-restart" + units, templates, state, true},
		{"--remove mpbond", "disable --now" + units + "daemon-reload\n", templates, state, false},
		{"--purge mpbond", "daemon-reload\n", nil, nil, false},
	} {
		cmd := exec.Command("dpkg", append([]string{"--root=" + root, "--force-script-chrootless"},
			strings.Fields(c.args)...)...)
		cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("dpkg %s: %v\n%s", c.args, err, out)
		}
		if got, _ := os.ReadFile(log); string(got) != c.asked {
			t.Errorf("dpkg %s asked systemctl for %q, want %q", c.args, got, c.asked)
		}
		_ = os.Remove(log)
		for dir, want := range map[string][]string{"/etc": c.etc, "/var/lib/mpbond": c.state} {
			var got []string
			if _, err := os.Stat(root + dir); err == nil {
				got = listFiles(t, root+dir)
			}
			for i := range got {
				got[i] = "/mpbond/" + filepath.Base(got[i])
			}
			if !slices.Equal(got, want) {
				t.Errorf("after dpkg %s %s has %q, want %q", c.args, dir, got, want)
			}
		}
		if _, err := os.Stat(root + "/usr/bin/mpbond"); (err == nil) != c.program {
			t.Errorf("after dpkg %s the program: %v", c.args, err)
		}
	}
}

// testUnits has systemd read the units, with and without the files for more rights, and judge how
// exposed they are (0 to 100).
func testUnits(t *testing.T, mpbond string) {
	requirePrograms(t, "systemd-analyze")
	help, err := exec.Command("systemd-analyze", "--help").Output()
	if err != nil || !bytes.Contains(help, []byte("--recursive-errors")) || !bytes.Contains(help, []byte("--offline")) {
		t.Skipf("systemd-analyze is older than 250 (%v)", err)
	}
	dir := t.TempDir()
	runTool(t, "make", "install", "MPBOND="+mpbond, "PREFIX="+dir+"/usr", "SYSCONFDIR="+dir+"/etc", "UNITDIR="+dir)
	verify := func(name, most string) {
		t.Helper()
		path := filepath.Join(dir, name)
		out, err := exec.Command("systemd-analyze", "verify", "--man=no", "--recursive-errors=no",
			path).CombinedOutput()
		if err != nil || bytes.Contains(out, []byte(name)) {
			t.Errorf("systemd-analyze verify %s: %v\n%s", name, err, out)
		}
		if out, err := exec.Command("systemd-analyze", "security", "--no-pager", "--offline=true",
			"--threshold="+most, path).CombinedOutput(); err != nil {
			t.Errorf("%s is too exposed: %v\n%s", name, err, out)
		}
	}
	// The program of NATS is not ours: another one stands for it.
	nats := strings.Replace(readFile(t, "packaging/fleet/nats.service"), "/usr/local/bin/nats-server", mpbond, 1)
	if err := os.WriteFile(filepath.Join(dir, "nats.service"), []byte(nats), 0o644); err != nil {
		t.Fatal(err)
	}
	verify("nats.service", "20")
	for _, role := range []string{"server", "helper", "primary"} {
		verify("mpbond-"+role+".service", "20")
	}
	more := filepath.Join(dir, "mpbond-primary.service.d")
	if err := os.Mkdir(more, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"apps.conf", "tun.conf"} {
		if err := os.Rename(dir+"/usr/share/doc/mpbond/examples/"+name, more+"/"+name); err != nil {
			t.Fatal(err)
		}
	}
	verify("mpbond-primary.service", "32")
}

// TestConfigurationTemplates: each line that is commented out is a setting. Those of
// [onload] cmd/mpbond knows, and tests.
func TestConfigurationTemplates(t *testing.T) {
	for name, into := range map[string]any{"server": &server.Config{}, "helper": &helper.Config{},
		"primary": &primary.Config{}} {
		name := "packaging/" + name + ".toml"
		text, _, _ := strings.Cut(readFile(t, name), "#[onload]")
		if err := config.Parse(name, []byte(text), into); err != nil {
			t.Error(err)
		}
		settings := regexp.MustCompile(`(?m)^#([a-z_]+ = )`)
		if len(settings.FindAllString(text, -1)) < 3 {
			t.Errorf("%s has hardly a setting: this test looks wrongly", name)
		}
		if err := config.Parse(name, settings.ReplaceAll([]byte(text), []byte("$1")), into); err != nil {
			t.Error(err, fault.HintOf(err))
		}
	}
}

// TestContainerfile: what it copies from the tree is there, it builds with the
// language that the tree is written in, and what it makes does not run as root.
func TestContainerfile(t *testing.T) {
	text := readFile(t, "Containerfile")
	language := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(readFile(t, "go.mod"))
	if language == nil || !strings.Contains(text, "FROM golang:"+language[1]+" AS build\n") {
		t.Errorf("it is not built by Go %q", language)
	}
	for _, m := range regexp.MustCompile(`(?m)^replace \S+ => \./(\S+)$`).FindAllStringSubmatch(readFile(t, "go.mod"),
		-1) {
		if copied := "COPY " + m[1] + "/go.mod " + m[1] + "/\n"; !strings.Contains(text, copied) {
			t.Errorf("`go mod download` in it needs %q", copied)
		}
	}
	_, last, _ := strings.Cut(text, "\nFROM scratch\n")
	user := regexp.MustCompile(`(?m)^USER (\d+):\d+$`).FindStringSubmatch(last)
	if user == nil || user[1] == "0" {
		t.Fatalf("it runs as %q", user)
	}
	if !strings.Contains(last, "COPY --from=build --chown="+strings.TrimPrefix(user[0], "USER ")+" ") {
		t.Error("its user cannot write the state")
	}
}
