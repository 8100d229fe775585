// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"mpbond/base/fault"
	"mpbond/base/span"
	"mpbond/base/unit"
	"mpbond/onload/transfer"
)

// TestNoRoom checks that a download that exceeds the free disk space is not started.
func TestNoRoom(t *testing.T) {
	virtual(t, func(t *testing.T) {
		for _, ranges := range []bool{true, false} {
			o := &origin{data: randomBytes(1000, 30), etag: `"v1"`}
			o.wrong = func(w http.ResponseWriter, r *http.Request, _ int) bool {
				if ranges {
					w.Header().Set("ETag", o.etag)
					w.Header().Set("Content-Range", fmt.Sprintf("bytes 0-%d/%d", 1<<50-1, 1<<50))
				}
				w.Header().Set("Content-Length", fmt.Sprint(1<<50))
				status := http.StatusOK
				if ranges {
					status = http.StatusPartialContent
				}
				w.WriteHeader(status)
				writePieces(w, o.data, 100, time.Millisecond)
				return true
			}
			_, file, err := runGet(t, serveOrigin(t, o), testDevices(testLines(t, 1, 0)...), nil)
			if !fault.Is(err, fault.Limit) || !strings.Contains(err.Error(), "are free") ||
				!strings.Contains(fault.HintOf(err), "disk space") {
				t.Errorf("%v: %v, %s", ranges, err, fault.HintOf(err))
			}
			expectOnlyFile(t, file)
		}
	})
}

// TestDiskErrors checks that disk errors are not taken for network errors.
func TestDiskErrors(t *testing.T) {
	virtual(t, func(t *testing.T) {
		for errno, kind := range map[syscall.Errno]fault.Kind{syscall.ENOSPC: fault.Limit, syscall.ENOENT: fault.Usage,
			syscall.ENAMETOOLONG: fault.Usage,
			syscall.EACCES:       fault.Permission, syscall.ENOTDIR: fault.Usage} {
			err := classifyFetchError(transfer.NewLocalError(&fs.PathError{Op: "write", Path: "x", Err: errno}))
			if !fault.Is(err, kind) || fault.HintOf(err) == "" {
				t.Errorf("%v is of the kind %s", err, fault.KindOf(err))
			}
		}
		_, _, err := runGet(t, serveOrigin(t, &origin{data: randomBytes(100, 31), etag: `"v1"`}),
			testDevices(testLines(t, 1, 0)...), func(c *Config) {
				c.Objects[0].File += "/no/such"
			})
		if !fault.Is(err, fault.Usage) {
			t.Error(err)
		}
	})
}

// TestKeptPart checks that an older journal stays valid if no new one can be written.
func TestKeptPart(t *testing.T) {
	for _, older := range []bool{true, false} {
		o := &object{Object: Object{URL: "http://x/y", File: filepath.Join(t.TempDir(), "y")}}
		if err := o.openPartFile(); err != nil {
			t.Fatal(err)
		}
		o.version, o.versionKnown, o.received = version{Size: 100, ETag: `"v1"`}, true, span.Set[unit.Bytes]{{To: 50}}
		if err := o.part.file.Truncate(100); err != nil {
			t.Fatal(err)
		}
		if older {
			if err := o.part.writeJournal(o.version, o.received); err != nil {
				t.Fatal(err)
			}
		}
		o.part.dirty = true
		o.part.file.Close() // makes all writes fail
		o.closePartFile()
		if _, err := os.Stat(o.File + partSuffix); older != (err == nil) || err != nil &&
			!errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v: %v", older, err)
		}
	}
}
