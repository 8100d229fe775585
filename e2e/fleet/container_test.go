// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"mpbond/base/natstest"
	"mpbond/e2e/rig"
)

// root is the root of the repository.
const root = "../.."

// readFile returns a file of the repository.
func readFile(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// image is what a container gets from its image.
type image struct {
	entrypoint, command, env []string
	user                     string            // UID:GID
	files                    map[string]string // files of this machine by their paths in the container
	state                    string            // a directory that belongs to user, "" for none
}

// static is the program mpbond that the Containerfile builds.
var static struct {
	once sync.Once
	path string
	err  error
}

// mpbondImage returns the image of the Containerfile. Its program is built as there.
func mpbondImage(t testing.TB, n *rig.Network) image {
	t.Helper()
	text := readFile(t, "Containerfile")
	if !strings.Contains(text, "\nRUN make product ") {
		t.Fatal("the Containerfile does not run `make product`")
	}
	static.once.Do(func() {
		static.path = filepath.Join(filepath.Dir(n.Mpbond), "mpbond-static")
		cmd := exec.Command("make", "-C", root, "product", "MPBOND="+static.path, "VERSION=image")
		if out, err := cmd.CombinedOutput(); err != nil {
			static.err = fmt.Errorf("%w: %s", err, out)
		}
	})
	if static.err != nil {
		t.Fatal(static.err)
	}
	m := image{user: "0:0", files: map[string]string{}}
	_, last, _ := strings.Cut(text, "\nFROM scratch\n")
	for line := range strings.Lines(last) {
		f := strings.Fields(line)
		switch {
		case len(f) == 0 || f[0] == "#" || f[0] == "VOLUME":
		case f[0] == "COPY":
			from, to := f[len(f)-2], f[len(f)-1]
			switch {
			case from == "/src/bin/mpbond":
				m.files[to] = static.path
			case strings.HasPrefix(from, "/etc/"):
				m.files[to] = from
			default:
				m.state = to
			}
		case f[0] == "ENV":
			m.env = append(m.env, f[1:]...)
		case f[0] == "USER":
			m.user = f[1]
		case f[0] == "ENTRYPOINT":
			m.entrypoint = splitCommand(t, strings.TrimPrefix(line, "ENTRYPOINT"))
		case f[0] == "CMD":
			m.command = splitCommand(t, strings.TrimPrefix(line, "CMD"))
		default:
			t.Fatalf("the Containerfile has %q", line)
		}
	}
	return m
}

// splitCommand parses a JSON list.
func splitCommand(t testing.TB, text string) (list []string) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return list
}

// natsImage returns the official image of NATS: its program and nothing else.
func natsImage(t testing.TB) image {
	return image{entrypoint: []string{"/nats-server"}, command: []string{"--config", "nats-server.conf"}, user: "0:0",
		files: map[string]string{"/nats-server": natstest.Program(t)}}
}

// container is a container without a container engine: a process in a node that sees the files of its image, the
// volumes, and nothing else of this machine.
type container struct {
	image
	node         string
	hosts        []string          // lines of /etc/hosts
	volumes      map[string]string // directories of this machine by their paths in the container
	readOnly     []string          // paths of volumes that are read-only; "/" is the image
	restarts     bool              // is started again when it ends
	env, command []string          // instead of the image's, or besides
}

// newVolume makes a new volume for a path of an image. As a container engine does, it takes what the image has there.
func newVolume(t testing.TB, m image, path string) string {
	t.Helper()
	dir := t.TempDir()
	if path == m.state {
		if out, err := exec.Command("chown", m.user, dir).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		if err := os.Chmod(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// argv returns the command that makes the container and runs its program.
func (c *container) argv(t testing.TB) []string {
	t.Helper()
	var s strings.Builder
	fmt.Fprintf(&s, "set -e; root=%s; mount --make-rprivate /; mount -t tmpfs -o mode=755 container $root\n", t.TempDir())
	s.WriteString("mkdir $root/dev $root/proc $root/etc; mount --rbind /proc $root/proc\n")
	s.WriteString("for d in null zero random urandom; do touch $root/dev/$d; mount --bind /dev/$d $root/dev/$d; done\n")
	for to, from := range c.files {
		fmt.Fprintf(&s, "mkdir -p $root%s; touch $root%s; mount --bind %s $root%[2]s\n", filepath.Dir(to), to, from)
	}
	fmt.Fprintf(&s, "printf '%%s\\n' '%s' >$root/etc/hosts\n", strings.Join(c.hosts, "\n"))
	if c.state != "" {
		fmt.Fprintf(&s, "install -d -m 700 -o %s -g %s $root%s\n", strings.Split(c.user, ":")[0],
			strings.Split(c.user, ":")[1], c.state)
	}
	for to, from := range c.volumes {
		fmt.Fprintf(&s, "mkdir -p $root%s; mount --bind %s $root%[1]s\n", to, from)
	}
	for _, path := range c.readOnly {
		fmt.Fprintf(&s, "mount -o remount,bind,ro $root%s\n", path)
	}
	fmt.Fprintf(&s, `trap 'kill $pid; wait $pid; exit 0' TERM
while :; do
	code=0
	setpriv --no-new-privs chroot --userspec=%s --groups= $root "$@" & pid=$!
	wait $pid || code=$?
	%v || exit $code
	sleep 0.2
done`, c.user, c.restarts)
	return append([]string{"unshare", "--mount", "sh", "-c", s.String(), "container"},
		slices.Concat(c.entrypoint, c.command)...)
}

// prepare returns the command to run in the container's node.
func (c *container) prepare(n *rig.Network) *exec.Cmd {
	n.Helper()
	cmd := n.Command(c.node, c.argv(n)...)
	cmd.Env = slices.Concat(os.Environ(), c.image.env, c.env)
	return cmd
}

// run runs the container to its end, and returns what it printed.
func (c *container) run(n *rig.Network) (string, error) {
	n.Helper()
	out, err := c.prepare(n).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%q: %w: %s", c.command, err, out)
	}
	return string(out), err
}

// mustRun is run for a container that must succeed.
func (c *container) mustRun(n *rig.Network) string {
	n.Helper()
	out, err := c.run(n)
	if err != nil {
		n.Fatal(err)
	}
	return out
}

var (
	loggedKey = regexp.MustCompile(`key=(mpb1[a-z0-9]+)`)
	invited   = regexp.MustCompile(`mpbond pair (\S+)`)
)

// awaitKey waits until a server has logged its key.
func awaitKey(t testing.TB, p *rig.Process) (key string) {
	t.Helper()
	rig.Eventually(t, func() error {
		m := loggedKey.FindStringSubmatch(p.Log.String())
		if m == nil {
			return fmt.Errorf("%s has logged no key:\n%s", p.Node, &p.Log)
		}
		key = m[1]
		return nil
	})
	return key
}

// webAddress is a public address, with the web server of the node web.
const webAddress = "192.0.2.7"

// useFleet pairs the node primary by a code, starts it, and downloads over its bond.
func useFleet(n *rig.Network, code string) {
	n.Helper()
	rig.Eventually(n, func() error { // a server reads the code from the engine
		_, err := n.Run("primary", n.Mpbond, "pair", code)
		return err
	})
	n.Start("primary", n.Mpbond, "primary")
	rig.Eventually(n, func() error { return download(n) })
}

// download downloads over the bond of the node primary.
func download(n *rig.Network) error {
	out, err := n.Run("primary", "curl", "-sSf", "--max-time", "20", "-x", "socks5h://127.0.0.1:1080",
		"http://"+webAddress+"/100000")
	if err == nil && len(out) != 100_000 {
		err = fmt.Errorf("%d bytes", len(out))
	}
	return err
}
