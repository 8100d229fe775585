// SPDX-License-Identifier: Apache-2.0

package fetch

import (
	"net/http"
	"strconv"
	"testing"

	"mpbond/base/unit"
)

// TestCopiesOverMetered checks that phones copy little from servers without ranges or versions if
// the home line is as fast, and everything if it is much slower.
func TestCopiesOverMetered(t *testing.T) {
	for name, header := range map[string]string{"no ranges": "none", "no version": "bytes"} {
		for home, most := range map[unit.Rate]float64{16 * unit.Mbps: 0.02, 12 * unit.Mbps: 0.02, unit.Mbps: 1.2} {
			inTime(t, name+" "+home.String(), func(t *testing.T) {
				o := &origin{data: randomBytes(2<<20, 1)}
				o.wrong = func(w http.ResponseWriter, r *http.Request, _ int) bool {
					w.Header().Set("Accept-Ranges", header)
					w.Header().Set("Content-Length", strconv.Itoa(len(o.data)))
					_, _ = w.Write(o.data)
					return true
				}
				list := testDevices(newTestLine(t, 0, home), newTestLine(t, 1, 8*unit.Mbps),
					newTestLine(t, 2, 4*unit.Mbps))
				for i := range list[1:] {
					list[i+1].Metered = func() bool { return true }
				}
				r, file, err := runGet(t, serveOrigin(t, o), list, nil)
				if err != nil {
					t.Fatal(err)
				}
				expectContent(t, file, o.data)
				paid := float64(r.Devices[1].Wasted+r.Devices[2].Wasted) / float64(len(o.data))
				if paid > most || home == unit.Mbps && r.Devices[1].Bytes < unit.Bytes(len(o.data)) {
					t.Errorf("phones wasted %.0f %% of the file: %+v", 100*paid, r.Devices)
				}
			})
		}
	}
}
