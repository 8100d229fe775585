// SPDX-License-Identifier: Apache-2.0

package upload

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"mpbond/base/porttest"
)

// davServer has collections, and reads a whole file before it refuses it.
type davServer struct {
	testServer
	exists int // response to MKCOL of an existing or pending collection

	collections sync.Map // path to whether the collection is complete
	refused     []string // files that were refused; seen.mu must be held
}

func newDAVServer(exists int) *davServer {
	d := &davServer{testServer: *newTestServer(), exists: exists}
	d.collections.Store("/", true)
	return d
}

func (d *davServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	above := path.Dir(strings.TrimSuffix(r.URL.Path, "/"))
	complete, _ := d.collections.Load(above)
	switch {
	case r.Method == "MKCOL" && complete != true:
		w.WriteHeader(http.StatusConflict)
	case r.Method == "MKCOL":
		if _, there := d.collections.LoadOrStore(path.Clean(r.URL.Path), false); there {
			w.Header().Set("Location", r.URL.Path)
			w.WriteHeader(d.exists)
			return
		}
		time.Sleep(20 * time.Millisecond) // while another device asks
		d.collections.Store(path.Clean(r.URL.Path), true)
		w.WriteHeader(http.StatusCreated)
	case r.Method == http.MethodPut && complete != true:
		_, _ = io.Copy(io.Discard, r.Body)
		d.mu.Lock()
		d.refused = append(d.refused, r.URL.Path)
		d.mu.Unlock()
		w.WriteHeader(http.StatusConflict)
	default:
		d.place(w, r)
	}
}

// TestCollections checks that collections exist before any file is sent, whichever device creates
// them and whatever the response for existing ones.
func TestCollections(t *testing.T) {
	for _, exists := range []int{http.StatusMethodNotAllowed, http.StatusMovedPermanently, http.StatusForbidden} {
		for _, there := range []bool{false, true} {
			d := newDAVServer(exists)
			if there {
				d.collections.Store("/photos", true)
				d.collections.Store("/photos/2026", true)
			}
			site := httptest.NewServer(d)
			files, sums := testPhotos(t, 90_000, 80_000, 70_000, 60_000, 50_000, 40_000)
			for i := range files {
				files[i].Name = fmt.Sprintf("day %d/%s", i%2, files[i].Name)
			}
			cfg := testConfig(t, Put, site.URL+"/photos/2026/", files)
			cfg.Devices = testDevices(t, 3)
			if _, err := Send(t.Context(), cfg); err != nil {
				t.Errorf("%d, %v: %v", exists, there, err)
			}
			site.Close()
			if len(d.files) != len(sums) || len(d.refused) > 0 {
				t.Errorf("%d, %v: %d of %d files, refused %v", exists, there, len(d.files), len(sums), d.refused)
			}
		}
	}
}

// TestRealApache puts files into new collections of Apache's mod_dav, several of which are
// requested at once.
func TestRealApache(t *testing.T) {
	const modules = "/usr/lib/apache2/modules"
	apache, err := exec.LookPath("/usr/sbin/apache2")
	if err != nil {
		t.Skip("no Apache here (Debian: apache2-bin)")
	}
	dir, addr := t.TempDir(), porttest.FreeAddress(t)
	root := filepath.Join(dir, "www")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	conf := fmt.Sprintf(
		"ServerName localhost\nServerRoot %[1]s\nPidFile %[1]s/pid\nDocumentRoot %[1]s/www\nListen %[2]s\n"+
			"DavLockDB %[1]s/lock\nErrorLog %[1]s/errors\n", dir, addr)
	for _, m := range []string{"mpm_event", "authz_core", "dav", "dav_fs"} {
		conf += fmt.Sprintf("LoadModule %s_module %s/mod_%s.so\n", m, modules, m)
	}
	if os.Geteuid() == 0 { // it keeps its user
		conf += "User nobody\nGroup nogroup\n"
		if err := os.Chmod(root, 0o777); err != nil {
			t.Fatal(err)
		}
		for at := dir; at != os.TempDir() && at != "/"; at = filepath.Dir(at) {
			if err := os.Chmod(at, 0o777); err != nil {
				t.Fatal(err)
			}
		}
	}
	conf += fmt.Sprintf("<Directory %s>\nDav On\nRequire all granted\n</Directory>\n", root)
	if err := os.WriteFile(dir+"/conf", []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	startDaemon(t, exec.Command(apache, "-X", "-f", dir+"/conf"), addr)
	for run := range 20 {
		files, sums := testPhotos(t, 50_000, 40_000, 30_000, 20_000, 10_000, 5000)
		cfg := testConfig(t, Put, fmt.Sprintf("http://%s/a%d/b/", addr, run), files)
		cfg.Devices = testDevices(t, 3)
		res, err := Send(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range res.Devices {
			if d.Wasted > 0 {
				t.Errorf("run %d: %s sent %v for nothing", run, d.Device, d.Wasted)
			}
		}
		expectSameFiles(t, fmt.Sprintf("%s/a%d/b", root, run), sums)
	}
}
