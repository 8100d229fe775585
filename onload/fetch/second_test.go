// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"mpbond/base/unit"
)

const portal = "<html>please log in</html>"

// behindPortal returns an origin that device 2 never reaches: it gets a portal page for any
// request.
func behindPortal(o *origin) *origin {
	o.wrong = func(w http.ResponseWriter, r *http.Request, device int) bool {
		if device == 2 {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, portal)
		}
		return device == 2
	}
	return o
}

// getSeveral fetches n objects of a server and returns how many are right.
func getSeveral(t *testing.T, url string, n int, dev []Device, change func(*Config)) (r Result, right int) {
	t.Helper()
	dir := t.TempDir()
	r, _, err := runGet(t, url, dev, func(c *Config) {
		c.Objects = nil
		for i := range n {
			c.Objects = append(c.Objects, Object{URL: fmt.Sprintf("%s/%d.jpg", url, i),
				File: filepath.Join(dir, fmt.Sprint(i)), KeepExisting: true})
		}
		if change != nil {
			change(c)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range r.Objects {
		if got, err := os.ReadFile(o.File); err == nil && !bytes.Equal(got, []byte(portal)) {
			right++
		}
	}
	if list, _ := os.ReadDir(dir); len(list) != n {
		t.Errorf("%d files", len(list))
	}
	return r, right
}

// TestPortal checks that no file is accepted from a helper that gets a portal page instead, even if
// only it was asked.
func TestPortal(t *testing.T) {
	virtual(t, func(t *testing.T) {
		url := serveOrigin(t, behindPortal(&origin{data: randomBytes(100_000, 20), etag: `"v1"`}))
		dev := testDevices(newTestLine(t, 0, 8*unit.Mbps), newTestLine(t, 1, 8*unit.Mbps), newTestLine(t, 2, 0))
		r, right := getSeveral(t, url, 9, dev, nil)
		if right != 9 {
			t.Errorf("%d of 9 are right", right)
		}
		for _, o := range r.Objects {
			if o.Unchecked != "" || o.Bytes != 100_000 {
				t.Errorf("%+v", o)
			}
		}
		if d := r.Devices[2]; d.Bytes != d.Wasted || d.Bytes > 9*unit.Bytes(len(portal)) {
			t.Errorf("%+v", d)
		}
	})
}

// TestUnchecked checks that an object is reported as unchecked if no other device can be asked, and
// is fetched again if a later response contradicts it.
func TestUnchecked(t *testing.T) {
	virtual(t, func(t *testing.T) {
		o := &origin{data: randomBytes(100_000, 21), etag: `"v1"`}
		url := serveOrigin(t, o)
		own, helper := newTestLine(t, 0, 0), newTestLine(t, 1, 0)
		own.down(true)
		r, right := getSeveral(t, url, 3, testDevices(own, helper), nil)
		if right != 3 {
			t.Errorf("%d of 3 are right", right)
		}
		for _, o := range r.Objects {
			if o.Unchecked != "device1" {
				t.Errorf("%+v", o)
			}
		}

		o = behindPortal(&origin{data: randomBytes(100_000, 21), etag: `"v1"`})
		o.data = randomBytes(2_000_000, 22)
		url = serveOrigin(t, o)
		unused := newTestLine(t, 1, 0)
		unused.down(true)
		reported := false
		r, right = getSeveral(t, url, 9, testDevices(own, unused, newTestLine(t, 2, 0)), func(c *Config) {
			o.wrong = func(w http.ResponseWriter, r *http.Request, device int) bool {
				if device != 2 {
					return false
				}
				if strings.HasSuffix(r.URL.Path, "/8.jpg") {
					own.down(false)
					reported = true
				}
				w.Header().Set("Content-Type", "text/html")
				_, _ = io.WriteString(w, portal)
				return true
			}
		})
		if right != 9 || !reported {
			t.Errorf("%d of 9 are right", right)
		}
		for _, o := range r.Objects {
			if o.Unchecked != "" {
				t.Errorf("%+v", o)
			}
		}
	})
}

// TestOwnAnswerCounts checks that an object that the local device knows not to exist is not accepted from a
// helper.
func TestOwnAnswerCounts(t *testing.T) {
	virtual(t, func(t *testing.T) {
		o := &origin{data: randomBytes(100, 23), etag: `"v1"`}
		o.wrong = func(w http.ResponseWriter, r *http.Request, device int) bool {
			if device == 0 {
				http.NotFound(w, r)
			}
			return device == 0
		}
		_, file, err := runGet(t, serveOrigin(t, o), testDevices(testLines(t, 2, 0)...), nil)
		if _, gone := os.Stat(file); err == nil || gone == nil || !strings.Contains(err.Error(), "404") {
			t.Errorf("%v, %v", err, gone)
		}
	})
}
