// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"mpbond/base/unit"
)

// TestCancelWhileAsking checks that no unconfirmed file is left if the program is interrupted while
// a second device is asked to confirm it.
func TestCancelWhileAsking(t *testing.T) {
	virtual(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		o := &origin{data: randomBytes(100_000, 21), etag: `"v1"`}
		o.wrong = func(w http.ResponseWriter, r *http.Request, device int) bool {
			if device != 0 {
				return false
			}
			if r.Method == http.MethodHead { // the version probe
				go func() { time.Sleep(10 * time.Millisecond); cancel() }()
				<-r.Context().Done()
				return true
			}
			w.WriteHeader(http.StatusServiceUnavailable)
			return true
		}
		url := serveOrigin(t, o)
		file := filepath.Join(t.TempDir(), "file.bin")
		_, err := Get(ctx, Config{Devices: testDevices(newTestLine(t, 0, 8*unit.Mbps), newTestLine(t, 1, 8*unit.Mbps)),
			Objects: []Object{{URL: url, File: file}}, times: fastTimes})
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		if _, err := os.Stat(file); err == nil {
			t.Error("the file was accepted although the probe was cancelled")
		}
	})
}
