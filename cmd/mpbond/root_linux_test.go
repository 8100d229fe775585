// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"mpbond/api"
	"mpbond/api/client"
	"mpbond/base/identity"
	"mpbond/base/waittest"
	"mpbond/internal/cli"
)

const ordinaryUID = 12345 // a user

// knownNames lists each file name that the source of the program contains: arguments of cli.InHome,
// and names and endings in the packages that save files. Values that are not constant count as each
// role.
func knownNames(t *testing.T) (names []string) {
	t.Helper()
	name, ending := regexp.MustCompile(`^\.?[a-z][a-z-]*\.(toml|json|jsonl|key|token|html|sock)$`),
		regexp.MustCompile(`^\.[a-z]+$`)
	bases, endings := map[string]bool{"run": true, ".lock": true}, map[string]bool{"": true}
	for _, dir := range []string{"cmd/mpbond", "cmd/mpbond-lab", "internal/cli", "api", "api/serve", "base/config",
		"control/device", "base/identity", "node/primary", "base/store", "onload/page", "onload/permit",
		"onload/dataplan"} {
		files, err := filepath.Glob(filepath.Join("../..", dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatal(dir, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			syntax, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(syntax, func(n ast.Node) bool {
				switch n := n.(type) {
				case *ast.CallExpr:
					if f, ok := n.Fun.(*ast.SelectorExpr); ok && f.Sel.Name == "InHome" {
						for _, s := range listTexts(n.Args[0]) {
							bases[s] = true
						}
					}
				case *ast.BinaryExpr:
					for _, s := range listTexts(n) {
						if filepath.Base(s) == s && name.MatchString(s) {
							bases[s] = true
						}
					}
					if s := listTexts(n.Y); n.Op == token.ADD && len(s) == 1 && ending.MatchString(s[0]) {
						endings[s[0]] = true
					}
				case *ast.BasicLit:
					if s, err := strconv.Unquote(n.Value); err == nil && name.MatchString(s) {
						bases[s] = true
					}
				}
				return true
			})
		}
	}
	for base := range bases {
		for e := range endings {
			names = append(names, base+e, "run/"+base+e)
		}
	}
	slices.Sort(names)
	for _, want := range []string{"policy.toml", "places.json.new", "trust.toml.new", "device.key",
		"usage-primary.jsonl.bad", "run/primary.sock.lock",
		"run/console.html", "primary.toml", "api.token", "facts.toml", "permits.jsonl", "page-helper",
		"page-helper.jsonl"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is missing among the names: the test looks in the wrong place", want)
		}
	}
	return names
}

// listTexts lists the possible values of a string expression. A part that is not constant may be
// any role.
func listTexts(e ast.Expr) []string {
	switch e := e.(type) {
	case *ast.BasicLit:
		if s, err := strconv.Unquote(e.Value); err == nil {
			return []string{s}
		}
	case *ast.BinaryExpr:
		var all []string
		x, y := listTexts(e.X), listTexts(e.Y)
		if e.Op != token.ADD || len(x)*len(y) > 16 { // no name of a file has so many parts
			return nil
		}
		for _, x := range x {
			for _, y := range y {
				all = append(all, x+y)
			}
		}
		return all
	case *ast.Ident:
		if e.Name == "KeyFile" {
			return []string{cli.KeyFile}
		}
	}
	return []string{"primary", "helper", "server", "dual"}
}

// describeTree describes all files in a directory: names, owners, modes and contents.
func describeTree(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err != nil {
			return err
		}
		sys := st.Sys().(*syscall.Stat_t)
		fmt.Fprintf(&b, "%s %v %d:%d", path, st.Mode(), sys.Uid, sys.Gid)
		if st.Mode().IsRegular() {
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " %x", sha256.Sum256(text))
		}
		b.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

const rootsSecret = "default = 'deny' # secret-of-root"

// TestRootInAUsersDirectory checks that `sudo MPBOND_HOME=$HOME/.config/mpbond mpbond primary --tun
// --api` reads and changes no file of root, whatever the user puts in place of any file, and leaves
// nothing that keeps the user's own mpbond from starting.
func TestRootInAUsersDirectory(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	top := t.TempDir()
	user, root := filepath.Join(top, "user"), filepath.Join(top, "root")
	// Other users cannot pass the test's own parent directories, like /root.
	for dir := top; dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile("/proc/self/exe")
	self := filepath.Join(top, "mpbond")
	if err = errors.Join(err, os.WriteFile(self, text, 0o755)); err != nil {
		t.Fatal(err)
	}
	names := knownNames(t)
	p := plantedHome{self: self, home: user, root: root}
	t.Run("nothing planted", func(t *testing.T) {
		p.makeHome(t)
		p.serve(t, 0, true, true)
		p.serve(t, ordinaryUID, false, true)
		p.serve(t, 0, true, true)
	})
	kinds := map[string]func(path string) error{
		"link":           func(path string) error { return os.Symlink(filepath.Join(root, "secret"), path) },
		"link to script": func(path string) error { return os.Symlink(filepath.Join(root, "script"), path) },
		"dangling link":  func(path string) error { return os.Symlink(filepath.Join(root, "closed", "new"), path) },
		"directory link": func(path string) error { return os.Symlink(filepath.Join(root, "closed"), path) },
		"hard link":      func(path string) error { return os.Link(filepath.Join(root, "secret"), path) },
		"FIFO":           func(path string) error { return syscall.Mkfifo(path, 0o666) },
	}
	for what, plant := range kinds {
		t.Run(what, func(t *testing.T) {
			// The files that it needs to start are the user's until it has started; all others are planted.
			p.makeHome(t)
			p.plantFiles(t, names, plant)
			p.later = func() error { return plant(filepath.Join(user, "policy.toml")) }
			p.serve(t, 0, true, true)
			p.later = nil
			// Each of the files that it needs.
			for _, name := range []string{"policy.toml", "device.key", "trust.toml", "primary.toml", "api.token",
				"run", "run/primary.sock", "run/primary.sock.lock"} {
				p.makeHome(t)
				path := filepath.Join(user, name)
				if err := errors.Join(os.RemoveAll(path), os.MkdirAll(filepath.Dir(path), 0o700),
					os.Chown(filepath.Dir(path), ordinaryUID, ordinaryUID), plant(path)); err != nil {
					t.Fatal(err)
				}
				p.serve(t, 0, true, false)
			}
		})
	}
	t.Run("named in the configuration", func(t *testing.T) {
		for _, line := range []string{"policy = %q", "[cell.x]\nmessages = %q", "policy = \"link\"\n# %s"} {
			p.makeHome(t)
			p.write(t, "primary.toml", fmt.Sprintf(line, filepath.Join(root, "secret")))
			p.serve(t, 0, true, false)
		}
	})
}

// plantedHome is a user's directory, and a directory of root that must stay untouched.
type plantedHome struct {
	self, home, root string
	later            func() error // plants once a primary runs; nil: nothing
}

func (p plantedHome) write(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(p.home, name)
	if err := errors.Join(os.WriteFile(path, []byte(text), 0o600),
		os.Chown(path, ordinaryUID, ordinaryUID)); err != nil {
		t.Fatal(err)
	}
}

func (p plantedHome) makeHome(t *testing.T) {
	t.Helper()
	err := errors.Join(os.RemoveAll(p.home), os.RemoveAll(p.root), os.Mkdir(p.home, 0o700),
		os.Chown(p.home, ordinaryUID, ordinaryUID),
		os.Mkdir(p.root, 0o755), os.Mkdir(filepath.Join(p.root, "closed"),
			0o700), os.WriteFile(filepath.Join(p.root, "secret"), []byte(rootsSecret), 0o600),
		os.WriteFile(filepath.Join(p.root, "script"), []byte("# a script of root's"), 0o755))
	if err != nil {
		t.Fatal(err)
	}
	key, err := identity.Generate()
	if err != nil {
		t.Fatal(err)
	}
	p.write(t, "trust.toml", fmt.Sprintf("[[peer]]\nname = 'home'\nroles = ['server']\nkey = '%v'\n"+
		"addresses = ['127.0.0.1:9']\n", key.Public()))
	p.write(t, "primary.toml", "")
}

// plantFiles puts something in the place of each missing file.
func (p plantedHome) plantFiles(t *testing.T, names []string, plant func(path string) error) {
	t.Helper()
	n := 0
	for _, name := range names {
		if slices.Contains([]string{"policy.toml", "device.key", "api.token", "run", "run/primary.sock",
			"run/primary.sock.lock"}, name) {
			continue
		}
		path := filepath.Join(p.home, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700),
			os.Chown(filepath.Dir(path), ordinaryUID, ordinaryUID)); err != nil {
			t.Fatal(err)
		}
		if err := plant(path); err == nil {
			n++
		} else if !errors.Is(err, fs.ErrExist) {
			t.Fatal(err)
		}
	}
	if n < 50 {
		t.Errorf("planted in %d places only", n)
	}
}

// serve runs a primary for a while as the user with that number, and calls and changes everything
// over the API.
func (p plantedHome) serve(t *testing.T, uid uint32, tun, must bool) {
	t.Helper()
	before := describeTree(t, p.root)
	args := []string{"primary", "--api", "127.0.0.1:7680", "--proxy", "127.0.0.1:0", "--transparent", "0", "--pipe", ""}
	if tun {
		args = append(args, "--tun")
	}
	var log bytes.Buffer
	cmd := exec.Command(p.self, args...)
	cmd.Env = append(os.Environ(), "MPBOND_TEST_ROLE=program", "MPBOND_HOME="+p.home, "GORACE=atexit_sleep_ms=0")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL,
		Credential: &syscall.Credential{Uid: uid, Gid: uid, NoSetGroups: uid == 0}}
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	c := client.New(filepath.Join(p.home, "run", "primary.sock"))
	defer c.Close()
	up := false
	waittest.UntilSuccess(t, func() error { // until it answers or ends
		_, err := c.Status(t.Context(), false)
		up = err == nil
		select {
		case <-ended:
			return nil
		default:
			return err
		}
	})
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	if up {
		if p.later != nil {
			if err := p.later(); err != nil {
				t.Error(err)
			}
			_ = cmd.Process.Signal(syscall.SIGHUP)
		}
		policy, err := c.Policy(ctx)
		if strings.Contains(policy.Text, "secret-of-root") {
			t.Error("the API shows root's file")
		}
		_, _ = c.SetPolicy(ctx, api.PolicyText{Text: "# touch /tmp/rooted"})
		_, written := c.SetPolicy(ctx, api.PolicyText{Text: "default = 'allow'"})
		if must && p.later == nil && (err != nil || written != nil) {
			t.Errorf("policy: %v; %v", err, written)
		}
		_ = c.RenameDevice(ctx, "home", "other")
		_, _ = c.Usage(ctx)
		_, _ = c.Devices(ctx)
		_ = cmd.Process.Signal(syscall.SIGTERM)
	} else if must {
		t.Errorf("it does not serve:\n%s", &log)
	}
	select {
	case <-ended:
	case <-ctx.Done():
		t.Error("it does not end")
		_ = cmd.Process.Kill()
		<-ended
	}
	if strings.Contains(log.String(), "secret-of-root") || strings.Contains(log.String(), "DATA RACE") {
		t.Errorf("the log:\n%s", &log)
	}
	if after := describeTree(t, p.root); after != before {
		t.Errorf("root's files were\n%s and are\n%s\n%s", before, after, &log)
	}
	err := filepath.WalkDir(p.home, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		st, err := d.Info()
		if err == nil && st.Sys().(*syscall.Stat_t).Uid != ordinaryUID && d.Type() == 0 &&
			st.Sys().(*syscall.Stat_t).Nlink == 1 || d.IsDir() && st.Sys().(*syscall.Stat_t).Uid != ordinaryUID {
			t.Errorf("%s became root's", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
