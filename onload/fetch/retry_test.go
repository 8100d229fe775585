// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"net/http"
	"testing"
	"time"

	"mpbond/base/unit"
)

// TestRetryAfterOfOne checks that a Retry-After for the local device delays neither helpers nor the
// search for them.
func TestRetryAfterOfOne(t *testing.T) {
	for _, there := range []bool{true, false} {
		virtual(t, func(t *testing.T) {
			o := &origin{data: randomBytes(size, 40), etag: `"v1"`}
			o.wrong = func(w http.ResponseWriter, _ *http.Request, device int) bool {
				if device == 0 {
					w.Header().Set("Retry-After", "600")
					w.WriteHeader(http.StatusTooManyRequests)
				}
				return device == 0
			}
			helper, list := Device{Name: "helper", Transport: newTestLine(t, 1, 40*unit.Mbps)},
				testDevices(newTestLine(t, 0, 0))
			if there {
				list = append(list, helper)
			}
			found, stop, begun := make(chan Device), make(chan struct{}), time.Now()
			go func() {
				defer close(found)
				time.Sleep(time.Second)
				if !there {
					select {
					case found <- helper:
					case <-stop:
					}
				}
			}()
			_, _, err := runGet(t, serveOrigin(t, o), list, func(c *Config) { c.NewDevices = found })
			close(stop)
			if took := time.Since(begun); err != nil || took > 3*time.Second {
				t.Errorf("there %v: %v after %v", there, err, took)
			}
			<-found
		})
	}
}
