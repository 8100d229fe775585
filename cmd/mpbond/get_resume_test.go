// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"mpbond/base/identity"
	"mpbond/base/porttest"
	"mpbond/base/waittest"
	"mpbond/internal/cli"
)

// breakingServer is a web server whose first responses break off.
type breakingServer struct {
	breaks int
	asked  atomic.Int64
	serve  func(w http.ResponseWriter, r *http.Request, n int64) // the n-th request
}

func (b *breakingServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := b.asked.Add(1)
	if n <= int64(b.breaks) {
		w = &brokenWriter{ResponseWriter: w, remaining: 100_000}
	}
	b.serve(w, r, n)
}

// brokenWriter accepts some bytes and then closes the connection.
type brokenWriter struct {
	http.ResponseWriter
	remaining int
}

func (b *brokenWriter) Write(p []byte) (int, error) {
	if len(p) > b.remaining {
		_, _ = b.ResponseWriter.Write(p[:b.remaining])
		b.ResponseWriter.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	b.remaining -= len(p)
	return b.ResponseWriter.Write(p)
}

// TestGetGoesOn checks that a download resumes if the web server identifies the version of the
// file, else starts over, and never mixes versions.
func TestGetGoesOn(t *testing.T) {
	newTestSite(t, true)
	data, later := make([]byte, fileSize), make([]byte, fileSize)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data)
	_, _ = rand.NewChaCha8([32]byte{2}).Read(later)
	content := func(w http.ResponseWriter, r *http.Request, etag string, data []byte) {
		if etag != "" {
			w.Header().Set("ETag", etag)
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	}
	for name, c := range map[string]struct {
		breaks int
		serve  func(w http.ResponseWriter, r *http.Request, n int64)
		want   []byte
		says   string
		code   int
		stream int // exit code to standard output
	}{
		"a version": {2, func(w http.ResponseWriter, r *http.Request, n int64) {
			if ranged := r.Header.Get("Range"); n > 1 && (ranged == "" || r.Header.Get("If-Range") != `"v1"`) {
				t.Errorf("request %d: Range %q, If-Range %q", n, ranged, r.Header.Get("If-Range"))
			}
			content(w, r, `"v1"`, data)
		}, data, "resuming", cli.ExitOK, cli.ExitOK},
		"no version": {2, func(w http.ResponseWriter, r *http.Request, _ int64) { content(w, r, "", data) }, data,
			"does not identify the version", cli.ExitOK, cli.ExitIntegrity},
		"weak version": {1, func(w http.ResponseWriter, r *http.Request, _ int64) { content(w, r, `W/"v1"`, data) },
			data, "does not identify the version", cli.ExitOK, cli.ExitIntegrity},
		"it changes": {1, func(w http.ResponseWriter, r *http.Request, n int64) {
			if n == 1 {
				content(w, r, `"v1"`, data)
			} else {
				content(w, r, `"v2"`, later)
			}
		}, later, "another version", cli.ExitOK, cli.ExitIntegrity},
		"a lie": {1, func(w http.ResponseWriter, r *http.Request, n int64) {
			r.Header.Del("If-Range")
			content(w, r, fmt.Sprintf(`"v%d"`, n), data)
		}, nil, "another version", cli.ExitIntegrity, cli.ExitIntegrity},
		"gone": {1, func(w http.ResponseWriter, r *http.Request, n int64) {
			if n > 1 {
				http.NotFound(w, r)
				return
			}
			content(w, r, `"v1"`, data)
		}, nil, "404", cli.ExitFailure, cli.ExitFailure},
		"busy": {1, func(w http.ResponseWriter, r *http.Request, n int64) {
			if n == 2 {
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			content(w, r, `"v1"`, data)
		}, data, "resuming", cli.ExitOK, cli.ExitOK},
		"always cut": {1000, func(w http.ResponseWriter, r *http.Request, _ int64) { content(w, r, "", data) }, nil,
			"response is incomplete", cli.ExitIntegrity, cli.ExitIntegrity},
	} {
		t.Run(name, func(t *testing.T) {
			b := &breakingServer{breaks: c.breaks, serve: c.serve}
			site := httptest.NewServer(b)
			defer site.Close()
			file := strings.ReplaceAll(name, " ", "")
			code, _, errs := runProgram(t, "get", "-o", file, site.URL+"/x")
			got, _ := os.ReadFile(file)
			if code != c.code || !bytes.Equal(got, c.want) || !strings.Contains(errs, c.says) {
				t.Errorf("code %d, %d bytes: %s", code, len(got), errs)
			}
			b.asked.Store(0)
			code, out, errs := runProgram(t, "get", "-q", "-o", "-", site.URL+"/x")
			if code != c.stream || code == cli.ExitOK && (out != string(c.want) || errs != "") {
				t.Errorf("to a stream: code %d, %d bytes: %s", code, len(out), errs)
			}
		})
	}
}

// TestGetRestarts downloads from nginx through a real server and primary, and kills and restarts
// both in the middle.
func TestGetRestarts(t *testing.T) {
	nginx, err := exec.LookPath("/usr/sbin/nginx")
	if err != nil {
		t.Skip("no nginx here (Debian: nginx-light)")
	}
	dir, data := t.TempDir(), make([]byte, 6<<20)
	_, _ = rand.NewChaCha8([32]byte{3}).Read(data)
	for at := dir; at != os.TempDir() && at != "/"; at = filepath.Dir(at) {
		if err := os.Chmod(at, 0o755); err != nil { // its workers are of another user, if this is root
			t.Fatal(err)
		}
	}
	web, listen, proxy := porttest.FreeAddress(t), porttest.FreeAddress(t), porttest.FreeAddress(t)
	conf := fmt.Sprintf(`daemon off; master_process off; pid %[1]s/pid; error_log stderr error; events {}
http { access_log %[1]s/log; client_body_temp_path %[1]s/b; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f;
 uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
server { listen %[2]s; root %[1]s; limit_rate 2m; } }`, dir, web)
	for name, text := range map[string][]byte{"conf": []byte(conf), "big": data} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	start := func(cmd *exec.Cmd, home string) *exec.Cmd {
		t.Helper()
		if home != "" {
			cmd.Env = append(cmd.Env, "MPBOND_HOME="+home)
		}
		cmd.Stderr = t.Output()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
		return cmd
	}
	kill := func(cmd *exec.Cmd) {
		_ = cmd.Process.Signal(syscall.SIGKILL)
		_ = cmd.Wait()
	}
	homes := [2]string{filepath.Join(dir, "server"), newHome(t)}
	var keys [2]*identity.Key
	for i, h := range homes {
		if keys[i], err = identity.CreateKey(filepath.Join(h, "device.key")); err != nil {
			t.Fatal(err)
		}
	}
	for i, p := range []identity.Peer{{Name: "laptop", Roles: []identity.Role{identity.RolePrimary},
		Key: keys[1].Public()},
		{Name: "home", Roles: []identity.Role{identity.RoleServer}, Key: keys[0].Public(),
			Addresses: []string{listen}}} {
		trust, err := identity.OpenTrust(filepath.Join(homes[i], "trust.toml"))
		if err == nil {
			err = trust.Add(p)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	server := func() *exec.Cmd {
		return start(newProcess("server", "--listen", listen, "--allow", "127.0.0.0/8"), homes[0])
	}
	primary := func() *exec.Cmd {
		return start(newProcess("primary", "--proxy", proxy, "--transparent", "0", "--pipe", ""), homes[1])
	}
	start(exec.Command(nginx, "-e", "stderr", "-c", dir+"/conf"), "")
	s, p := server(), primary()
	waittest.Until(t, "a bond with a subflow", func() bool {
		all, err := queryStatus(t.Context(), statusSockets(""), false)
		return err == nil && len(all[0].Bonds) > 0 && len(all[0].Bonds[0].Subflows) > 0
	})
	t.Chdir(t.TempDir())
	var said bytes.Buffer
	get := newProcess("get", "--sha256", fmt.Sprintf("%x", sha256.Sum256(data)), "http://"+web+"/big")
	get.Stderr = io.MultiWriter(&said, t.Output())
	if err := get.Start(); err != nil {
		t.Fatal(err)
	}
	part := func(n int64) { // waits until so much is there
		t.Helper()
		waittest.Until(t, fmt.Sprint(n, " bytes in the part file"), func() bool {
			list, _ := filepath.Glob(".big.part-*")
			if len(list) != 1 {
				return false
			}
			st, err := os.Stat(list[0])
			return err == nil && st.Size() >= n
		})
	}
	part(1 << 20)
	kill(s)
	server()
	part(3 << 20)
	kill(p)
	primary()
	err = get.Wait()
	if got, bad := os.ReadFile("big"); err != nil || bad != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes, %v, %v", len(got), err, bad)
	}
	log, err := os.ReadFile(filepath.Join(dir, "log"))
	if n := strings.Count(string(log), " 206 "); err != nil || n < 2 ||
		strings.Contains(said.String(), "starting over") || strings.Count(said.String(), "resuming") < 2 {
		t.Errorf("%v\n%s%s", err, log, &said)
	}
}
