// SPDX-License-Identifier: Apache-2.0

package upload

import (
	"crypto/sha256"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"

	"mpbond/base/fault"
	"mpbond/base/porttest"
	"mpbond/base/waittest"
)

// startDaemon runs a program until the test ends, and waits until it listens.
func startDaemon(t *testing.T, cmd *exec.Cmd, addr string) {
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	waittest.UntilSuccess(t, func() error {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
		}
		return err
	})
}

func expectSameFiles(t *testing.T, dir string, sums map[string][32]byte) {
	t.Helper()
	for name, sum := range sums {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil || sha256.Sum256(data) != sum {
			t.Errorf("%s: %d bytes, %v", name, len(data), err)
		}
	}
}

// TestRealWebDAV puts files to nginx, also into missing collections.
func TestRealWebDAV(t *testing.T) {
	nginx, err := exec.LookPath("nginx")
	if err != nil {
		if nginx, err = exec.LookPath("/usr/sbin/nginx"); err != nil {
			t.Skip("no nginx here (Debian: nginx-light)")
		}
	}
	dir, addr := t.TempDir(), porttest.FreeAddress(t)
	root := filepath.Join(dir, "www")
	conf := fmt.Sprintf(`daemon off; master_process off; pid %[1]s/pid; error_log stderr error;
events {}
http { access_log off; client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f;
 uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
server { listen %[2]s; root %[1]s/www; client_max_body_size 3m; dav_methods PUT DELETE MKCOL COPY MOVE; } }`, dir, addr)
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/conf", []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	startDaemon(t, exec.Command(nginx, "-e", "stderr", "-c", dir+"/conf"), addr)
	files, sums := testPhotos(t, 2_500_000, 1000, 0, 700_000)
	cfg := testConfig(t, Put, "http://"+addr+"/2026/summer/", files)
	res, err := Send(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	expectSameFiles(t, root+"/2026/summer", sums)
	for i := range files {
		files[i].Name = "by day/21/" + files[i].Name
	}
	cfg.Target.KeepExisting = true
	for range 2 {
		if res, err = Send(t.Context(), cfg); err != nil {
			break
		}
		expectSameFiles(t, root+"/2026/summer/by day/21", sums)
	}
	if !fault.Is(err, fault.Exists) || len(res.Failed) != len(files) {
		t.Errorf("the second time: %v, %+v", err, res)
	}
	many, _ := testPhotos(t, 4_000_000)
	cfg = testConfig(t, Put, "http://"+addr+"/", many)
	if _, err = Send(t.Context(), cfg); !fault.Is(err, fault.Limit) {
		t.Errorf("too large: %v", err)
	}
}

// TestRealS3 puts objects to the gateway of Versity, an S3 server.
func TestRealS3(t *testing.T) {
	gateway, err := filepath.Abs("../../bin/versitygw")
	if _, e := os.Stat(gateway); err != nil || e != nil {
		if gateway, err = exec.LookPath("versitygw"); err != nil {
			t.Skip("no S3 server here: `.ci/deps s3` builds one")
		}
	}
	dir, meta, addr := t.TempDir(), t.TempDir(), porttest.FreeAddress(t)
	if err := os.Mkdir(dir+"/photos", 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(gateway, "--quiet", "--port", addr, "--region", "eu-test-1", "posix", "--sidecar", meta, dir)
	cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY=key", "ROOT_SECRET_KEY=secret")
	startDaemon(t, cmd, addr)
	files, sums := testPhotos(t, 2*minPartSize+1000, 3_000_000, 0, 10)
	cfg := s3Config(t, "http://"+addr+"/photos/2026 summer/", files)
	cfg.times = defaultTimes
	var failed atomic.Bool
	cfg.Devices[1].Transport = faulty{cfg.Devices[1].Transport, func(r *http.Request) error {
		if r.Method == http.MethodPut && failed.CompareAndSwap(false, true) {
			return fmt.Errorf("no line")
		}
		return nil
	}}
	res, err := Send(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	expectSameFiles(t, dir+"/photos/2026 summer", sums)
	for _, f := range res.Files {
		if f.Proof != ByDigest {
			t.Errorf("%+v", f)
		}
	}
	cfg.Target.KeepExisting = true
	if res, err = Send(t.Context(), cfg); !fault.Is(err, fault.Exists) || len(res.Failed) != len(files) {
		t.Errorf("the second time: %v, %+v", err, res)
	}
	named, sums := testPhotos(t, oddSizes...)
	sums = renameOddly(named, sums)
	cfg.Files = named
	if _, err = Send(t.Context(), cfg); err != nil {
		t.Errorf("odd names: %v", err)
	}
	expectSameFiles(t, dir+"/photos/2026 summer", sums)
	cfg.Target.Secret = "wrong"
	if _, err = Send(t.Context(), cfg); !fault.Is(err, fault.Permission) {
		t.Errorf("with a wrong secret: %v", err)
	}
}
