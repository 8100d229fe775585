// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"fmt"
	"net/http"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"mpbond/base/unit"
)

// TestSlowHoldUpNothing checks that with two slow helpers the first of many files are not later
// than over the local device alone, and the last one is earlier.
func TestSlowHoldUpNothing(t *testing.T) {
	const files = 20
	virtual(t, func(t *testing.T) {
		o := &origin{data: randomBytes(500_000, 41), etag: `"v1"`}
		o.wrong = func(http.ResponseWriter, *http.Request, int) bool {
			time.Sleep(40 * time.Millisecond) // both directions
			return false
		}
		url := serveOrigin(t, o)
		by := func(dev []Device) (first [files]time.Duration) {
			var mu sync.Mutex
			at, begun, dir := map[string]time.Duration{}, time.Now(), t.TempDir()
			cfg := Config{Devices: dev, times: fastTimes, OnVerified: func(g Fetched) {
				mu.Lock()
				defer mu.Unlock()
				at[g.File] = time.Since(begun)
			}}
			for i := range files {
				cfg.Objects = append(cfg.Objects,
					Object{URL: fmt.Sprint(url, "?", i), File: filepath.Join(dir, fmt.Sprint(i))})
			}
			if _, err := Get(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
			for i := range files {
				first[i] = at[cfg.Objects[i].File]
				if i > 0 {
					first[i] = max(first[i], first[i-1])
				}
			}
			return first
		}
		own, slow := 20*unit.Mbps, 2*unit.Mbps
		alone := by(testDevices(newTestLine(t, 0, own)))
		all := by(testDevices(newTestLine(t, 0, own), newTestLine(t, 1, slow), newTestLine(t, 2, slow)))
		for _, share := range []int{20, 40, 60, 80, 100} {
			n := files*share/100 - 1
			if all[n] > alone[n]+alone[0]/2 || share == 100 && all[n] > alone[n]*95/100 {
				t.Errorf("%d %% complete after %v, over the local device alone after %v", share, all[n], alone[n])
			}
			t.Logf("%d %%: %v, alone %v", share, all[n], alone[n])
		}
	})
}
