// SPDX-License-Identifier: Apache-2.0

// Package onload tests onloading as its users run it: the real program, with a process for each
// command and helper, over emulated links, against a real web server if one is installed. Several
// tests kill processes.
//
//	lines_test.go  the network, its devices and servers, and the progress of commands
//	get_test.go    downloads
//	put_test.go    uploads
//	play_test.go   videos
//	page_test.go   a helper's photo page
//	small_test.go  many small files
package onload

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"mpbond/base/identity"
	"mpbond/e2e/rig"
	"mpbond/lab"
)

const mb = 1_000_000

// nginxPort is the port of nginx. Port 80 belongs to the rig's own web server.
const nginxPort = "8080"

func TestMain(m *testing.M) {
	rig.Main(m, func(args []string) error { return http.ListenAndServe(":"+nginxPort, formServer{dir: args[1]}) })
}

// network is a primary with a home link, and helpers. At first only the rig's web server runs.
//
//	primary ─────────── ps ────────── server ─ core ─ web
//	   ├─ pipe1 ─ helper1 ─ hs1 ─────────┤
//	   └─ pipe2 ─ helper2 ─ hs2 ─────────┘
type network struct {
	*rig.Network
	www     string // root directory of nginx
	url     string // base URL of nginx
	helpers map[string]*rig.Process
}

// newNetwork builds a network in which the primary and its helpers trust each other.
func newNetwork(t *testing.T, topology *lab.Topology) *network {
	t.Helper()
	n := &network{Network: rig.New(t, rig.Options{Lab: topology, Race: true}), helpers: map[string]*rig.Process{}}
	n.www = filepath.Join(n.Dir, "www")
	keys := map[string]identity.PublicKey{}
	for _, node := range append(topology.Helpers(), "primary") {
		k, err := identity.CreateKey(filepath.Join(n.Dir, node, "device.key"))
		if err != nil {
			t.Fatal(err)
		}
		keys[node] = k.Public()
	}
	trust := func(at string, p identity.Peer) {
		list, err := identity.OpenTrust(filepath.Join(n.Dir, at, "trust.toml"))
		if err == nil {
			err = list.Add(p)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, node := range topology.Helpers() {
		at := n.linkAddr(node, fmt.Sprint("pipe", i+1))
		trust("primary", identity.Peer{
			Name:      node,
			Roles:     []identity.Role{identity.RoleHelper},
			Key:       keys[node],
			Addresses: []string{at + ":7602"},
		})
		trust(node, identity.Peer{Name: "laptop", Roles: []identity.Role{identity.RolePrimary}, Key: keys["primary"]})
		n.writeFile(filepath.Join(n.Dir, node, "helper.toml"),
			"[onload]\nallowance = \"unlimited\"\nallow = [\"10.77.0.0/16\"]\n")
	}
	return n
}

func (n *network) linkAddr(node, link string) string {
	n.Helper()
	a, err := n.Lab.Topology.Addr(node, link)
	if err != nil {
		n.Fatal(err)
	}
	return a.String()
}

func (n *network) writeFile(file, text string) {
	n.Helper()
	err := os.MkdirAll(filepath.Dir(file), 0o755)
	if err == nil {
		err = os.WriteFile(file, []byte(text), 0o600)
	}
	if err != nil {
		n.Fatal(err)
	}
}

// startHelper starts a helper and waits until it accepts connections.
func (n *network) startHelper(node string) {
	n.Helper()
	n.helpers[node] = n.Start(node, n.Mpbond, "helper", "--name", node)
	n.waitUntil(node, "accepts connections", func() (bool, error) {
		s, err := n.Status(node, "helper")
		return err == nil && s.Onload != nil && s.Onload.Open, err
	})
}

// killProcess kills a process as a power failure would, and removes it from the rig's list.
func (n *network) killProcess(p *rig.Process) {
	n.Helper()
	n.All = slices.DeleteFunc(n.All, func(o *rig.Process) bool { return o == p })
	p.End(syscall.SIGKILL)
}

// waitUntil waits until is returns true. who and what describe the condition in the failure.
func (n *network) waitUntil(who, what string, is func() (bool, error)) {
	n.Helper()
	rig.Eventually(n, func() error {
		if ok, err := is(); !ok || err != nil {
			return fmt.Errorf("timed out: %s never %s: %v", who, what, err)
		}
		return nil
	})
}

// carriedBytes returns how many bytes a helper has carried to the primary over its current
// connections.
func (n *network) carriedBytes(node string) (down int64, err error) {
	s, err := n.Status(node, "helper")
	if err == nil && s.Onload != nil {
		for _, t := range s.Onload.Tunnels {
			down += int64(t.DownBytes)
		}
	}
	return down, err
}

const nginxConf = `daemon off; master_process off; pid %[1]s/pid; error_log stderr error;
events { }
http {
  default_type application/octet-stream; sendfile on; client_max_body_size 0;
  log_format plain '$request_method $uri $status'; access_log %[1]s/access plain;
  client_body_temp_path %[1]s/t1; proxy_temp_path %[1]s/t2; fastcgi_temp_path %[1]s/t3;
  uwsgi_temp_path %[1]s/t4; scgi_temp_path %[1]s/t5;
  server { listen %[2]s; root %[3]s; dav_methods PUT MKCOL; }
}
`

// startNginx starts nginx in node web and returns its URL.
func (n *network) startNginx() string {
	n.Helper()
	program, err := exec.LookPath("nginx")
	if err != nil {
		if program, err = exec.LookPath("/usr/sbin/nginx"); err != nil {
			n.Skip("nginx is not installed (Debian: nginx-light)")
		}
	}
	dir := filepath.Join(n.Dir, "nginx")
	n.writeFile(filepath.Join(dir, "conf"), fmt.Sprintf(nginxConf, dir, nginxPort, n.www))
	if err := os.MkdirAll(n.www, 0o755); err != nil {
		n.Fatal(err)
	}
	return n.startWebServer(program, "-e", "stderr", "-c", filepath.Join(dir, "conf"))
}

// startWebServer starts a web server in node web, waits until it answers, and returns its URL.
func (n *network) startWebServer(argv ...string) string {
	n.Helper()
	n.Start("web", argv...)
	url := fmt.Sprintf("http://%s:%s/", n.linkAddr("web", ""), nginxPort)
	n.waitUntil("the web server", "answers", func() (bool, error) {
		_, err := n.Run("web", "curl", "-s", "-o", "/dev/null", url)
		return err == nil, err
	})
	return url
}

// countAnswers counts, by path, nginx's answers to a method with one of the status codes. Requests
// under way are not counted.
func (n *network) countAnswers(method string, status ...string) map[string]int {
	n.Helper()
	log, err := os.ReadFile(filepath.Join(n.Dir, "nginx", "access"))
	if err != nil {
		n.Fatal(err)
	}
	times := map[string]int{}
	for line := range strings.Lines(string(log)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == method && slices.Contains(status, f[2]) {
			times[f[1]]++
		}
	}
	return times
}

// writeNoise creates a file of size bytes of noise and returns its SHA-256.
func (n *network) writeNoise(file string, size int64) string {
	n.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		n.Fatal(err)
	}
	f, err := os.Create(file)
	if err != nil {
		n.Fatal(err)
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(io.MultiWriter(f, sum), rig.Noise(size)); err != nil {
		n.Fatal(err)
	}
	return fmt.Sprintf("%x", sum.Sum(nil))
}

// fileSum returns a file's SHA-256, or the error's text if it cannot be read.
func fileSum(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%x", sum.Sum(nil))
}

// run is a command that logs its progress and prints a result as JSON.
type run struct {
	*rig.Process
}

// startCommand starts an mpbond command on the primary, which writes its output to the file out.
func (n *network) startCommand(args ...string) *run {
	n.Helper()
	r := new(run)
	argv := []string{"sh", "-c", `out=$1; shift; exec "$@" >"$out"`, "sh", filepath.Join(n.Dir, "out"),
		n.Mpbond, "--log-level", "debug", "--log-format", "json"}
	r.Process = n.Start("primary", append(argv, args...)...)
	return r
}

// progress returns the bytes done and the total size that a run last logged.
func (r *run) progress() (done, of int64) {
	last := r.Log.String()
	if i := strings.LastIndex(last, `"msg":"progress"`); i >= 0 {
		last = last[strings.LastIndex(last[:i], "\n")+1:]
	}
	last, _, _ = strings.Cut(last, "\n")
	var p struct{ Bytes, Size int64 }
	_ = json.Unmarshal([]byte(last), &p) // fails on a half-written line, which counts later
	return p.Bytes, p.Size
}

// waitForProgress waits until a run has done the given part, and returns the bytes done.
func (n *network) waitForProgress(r *run, part float64) (at int64) {
	n.Helper()
	n.waitUntil("the run", fmt.Sprint("reaches ", part), func() (bool, error) {
		select {
		case <-r.Done:
			n.Fatalf("the run ended early: %v\n%s", r.Err, &r.Log)
		default:
		}
		done, of := r.progress()
		at = done
		return of > 0 && float64(done) >= part*float64(of), nil
	})
	return at
}

// deviceShare is the part that a device carried.
type deviceShare struct {
	Device        string
	Bytes, Wasted int64
}

// waitForResult waits until a run succeeds, and decodes its result.
func (n *network) waitForResult(r *run, into any) {
	n.Helper()
	<-r.Done
	text, err := os.ReadFile(filepath.Join(n.Dir, "out"))
	if r.Err != nil || err != nil || json.Unmarshal(text, into) != nil {
		n.Fatalf("the command failed or printed no result: %v, %v: %s\n%s", r.Err, err, text, &r.Log)
	}
}
