// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"mpbond/base/unit"
)

// TestOverlap checks that each device requests several small objects at once, each object once, and
// stops that if the server refuses it.
func TestOverlap(t *testing.T) {
	for _, most := range []int{100, 1} { // concurrent responses of the server
		inTime(t, fmt.Sprint(most), func(t *testing.T) {
			o := &origin{data: randomBytes(20_000, 1), etag: `"v1"`}
			var mu sync.Mutex
			now, peak, refused := map[int]int{}, 0, 0
			o.wrong = func(w http.ResponseWriter, r *http.Request, device int) bool {
				if r.Method == http.MethodHead { // a version probe
					return false
				}
				mu.Lock()
				now[device]++
				busy := now[device] > most
				if peak = max(peak, now[device]); busy {
					refused++
				}
				mu.Unlock()
				time.Sleep(50 * time.Millisecond) // the way of the response
				mu.Lock()
				now[device]--
				mu.Unlock()
				if busy {
					w.WriteHeader(http.StatusServiceUnavailable)
				} else {
					o.serve(w, r)
				}
				return true
			}
			url, dir := serveOrigin(t, o), t.TempDir()
			cfg := Config{Devices: testDevices(newTestLine(t, 0, 16*unit.Mbps),
				newTestLine(t, 1, 8*unit.Mbps)), times: fastTimes}
			for i := range 40 {
				cfg.Objects = append(cfg.Objects,
					Object{URL: fmt.Sprint(url, "?", i), File: filepath.Join(dir, fmt.Sprint(i))})
			}
			r, err := Get(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			for i := range cfg.Objects {
				if got, err := os.ReadFile(cfg.Objects[i].File); err != nil || !bytes.Equal(got, o.data) {
					t.Errorf("file %d: %d bytes, %v", i, len(got), err)
				}
			}
			_, wasted := totalBytes(r)
			t.Logf("%v, %d at once, %d refused, %v wasted", r.Duration, peak, refused, wasted)
			switch {
			case most > 1 && (peak < 3 || peak > maxConcurrency || wasted > 40_000 ||
				r.Duration > 1200*time.Millisecond):
				t.Error("not concurrent, or some requested twice")
			case most == 1 && refused > 2*maxConcurrency:
				t.Error("concurrent requests continue after refusals")
			}
		})
	}
}
