// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"net/http"
	"sync"
	"testing"

	"mpbond/base/fault"
	"mpbond/base/unit"
)

// TestJoins checks that a download starts at once, that devices found later take part, and that
// nothing is given up while more may be found.
func TestJoins(t *testing.T) {
	virtual(t, func(t *testing.T) {
		o := &origin{data: randomBytes(size, 40), etag: `"v1"`}
		var once sync.Once
		found := make(chan Device)
		late := Device{Name: "late", Transport: newTestLine(t, 1, 40*unit.Mbps)}
		r, file, err := runGet(t, serveOrigin(t, o), testDevices(newTestLine(t, 0, 16*unit.Mbps)), func(c *Config) {
			c.NewDevices = found
			c.OnProgress = func(p Progress) {
				if p.Bytes > 0 {
					once.Do(func() {
						go func() {
							found <- late
							close(found)
						}()
					})
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		expectContent(t, file, o.data)
		if len(r.Devices) != 2 || r.Devices[1].Bytes < size/4 {
			t.Errorf("%+v", r.Devices)
		}

		o.wrong = func(w http.ResponseWriter, r *http.Request, device int) bool {
			if device == 0 {
				w.WriteHeader(http.StatusForbidden)
			}
			return device == 0
		}
		for _, comes := range []bool{true, false} {
			found := make(chan Device)
			_, file, err := runGet(t, serveOrigin(t, o), testDevices(newTestLine(t, 0, 0)), func(c *Config) {
				c.NewDevices = found
				c.OnProgress = func(p Progress) {
					if len(p.Devices) == 1 && found != nil {
						go func(to chan Device) {
							if comes {
								to <- late
							}
							close(to)
						}(found)
						found = nil
					}
				}
			})
			switch {
			case comes && err != nil:
				t.Error(err)
			case comes:
				expectContent(t, file, o.data)
			case err == nil || fault.Is(err, fault.Timeout):
				t.Error(err)
			}
		}
	})
}
