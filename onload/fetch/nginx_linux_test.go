// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"mpbond/base/fault"
	"mpbond/base/unit"
)

const nginxConf = `worker_processes 1; daemon off; pid %[1]s/pid; error_log stderr crit;
events { worker_connections 64; }
http {
  access_log off; default_type application/octet-stream; gzip on; gzip_types *; gzip_min_length 1;
  client_body_temp_path %[1]s/t1; proxy_temp_path %[1]s/t2; fastcgi_temp_path %[1]s/t3;
  uwsgi_temp_path %[1]s/t4; scgi_temp_path %[1]s/t5;
  server {
    listen %[2]s;
    root %[1]s/www; limit_rate 8m;
    location /whole/ { alias %[1]s/www/; max_ranges 0; }
    location /blind/ { alias %[1]s/www/; etag off; }
    location /there/ { return 302 /big; }
    location /busy/ { return 503; }
  }
}
`

// nginx starts an nginx server with a file, and returns its URL and root.
func nginx(t *testing.T, data []byte) (url, root string) {
	t.Helper()
	program, err := exec.LookPath("nginx")
	if err != nil {
		if program, err = exec.LookPath("/usr/sbin/nginx"); err != nil {
			t.Skip("nginx is not there (package nginx-light)")
		}
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil { // its workers run as another user if this is root
		t.Fatal(err)
	}
	for at := dir; at != os.TempDir() && at != "/"; at = filepath.Dir(at) {
		if err := os.Chmod(at, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	root = filepath.Join(dir, "www")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(root, "big"), data)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	socket, err := l.(*net.TCPListener).File() // nginx inherits the socket, so no wait is needed
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	conf := filepath.Join(dir, "conf")
	writeFile(t, conf, fmt.Appendf(nil, nginxConf, dir, l.Addr()))
	cmd := exec.Command(program, "-c", conf, "-e", "stderr")
	cmd.Env, cmd.ExtraFiles, cmd.Stderr = append(os.Environ(), "NGINX=3;"), []*os.File{socket}, t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	return "http://" + l.Addr().String(), root
}

func TestNginx(t *testing.T) {
	data := randomBytes(size, 20)
	url, root := nginx(t, data)
	for _, c := range []struct {
		path   string
		shared bool
		text   string
	}{
		{"/big", true, ""},
		{"/there/", true, ""},
		{"/whole/big", false, ""},
		{"/blind/big", true, ""}, // validated by its date
		{"/none", false, "404"},
		{"/busy/", false, "503"},
	} {
		t.Run(strings.Trim(c.path, "/"), func(t *testing.T) {
			if c.path == "/blind/big" {
				waitFresh(t, filepath.Join(root, "big"))
			}
			r, file, err := runGet(t, url+c.path, testDevices(testLines(t, 3, 16*unit.Mbps)...), func(cfg *Config) {
				if c.text == "" {
					cfg.times = socketTimes
				}
			})
			if c.text != "" {
				if err == nil || !strings.Contains(err.Error(), c.text) {
					t.Error(err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			expectContent(t, file, data)
			for _, d := range r.Devices {
				if c.shared && d.Bytes < size/10 {
					t.Errorf("%s brought %v only", d.Device, d.Bytes)
				}
			}
		})
	}
}

// waitFresh makes a file old enough for Last-Modified to be a strong validator.
func waitFresh(t *testing.T, file string) {
	t.Helper()
	if err := os.Chtimes(file, modified, modified); err != nil {
		t.Fatal(err)
	}
}

// TestNginxChanges checks that a file that is replaced during the download is fetched in its new
// version.
func TestNginxChanges(t *testing.T) {
	url, root := nginx(t, randomBytes(size, 21))
	next := randomBytes(size+100, 22)
	changed := false
	l := testLines(t, 2, 40*unit.Mbps)
	_, file, err := runGet(t, url+"/big", testDevices(l...), func(c *Config) {
		c.times = socketTimes
		c.OnProgress = func(p Progress) {
			if !changed && p.Bytes > size/4 {
				changed = true
				writeFile(t, filepath.Join(root, "big"), next)
				l[0].down(true) // running responses have the old version
				l[0].down(false)
			}
		}
	})
	if err != nil || !changed {
		t.Fatal(err)
	}
	expectContent(t, file, next)
}

// TestNginxSmall checks an empty file and one of a byte.
func TestNginxSmall(t *testing.T) {
	url, root := nginx(t, nil)
	writeFile(t, filepath.Join(root, "one"), []byte("x"))
	for name, want := range map[string]string{"big": "", "one": "x"} {
		_, file, err := runGet(t, url+"/"+name, testDevices(testLines(t, 2, 0)...),
			func(c *Config) { c.times = socketTimes })
		if got, _ := os.ReadFile(file); err != nil || !bytes.Equal(got, []byte(want)) {
			t.Errorf("%s: %q, %v (%s)", name, got, err, fault.HintOf(err))
		}
	}
}
