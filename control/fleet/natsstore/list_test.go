// SPDX-License-Identifier: Apache-2.0

package natsstore

import (
	"fmt"
	"sync"
	"testing"

	"mpbond/base/natstest"
	"mpbond/control/fleet"
)

// TestListRequests checks that the records of many devices are one request, and that more records than the engine puts
// into one answer are all listed.
func TestListRequests(t *testing.T) {
	t.Parallel()
	c := natstest.Start(t, natstest.Options{Monitor: true})
	s := open(t, c, Config{})
	const servers = 20
	var devices []string
	var g sync.WaitGroup
	for d := range maxPrefixes {
		device := fmt.Sprintf("d%d", d)
		devices = append(devices, device)
		g.Go(func() {
			for n := range servers {
				if _, err := s.Put(t.Context(), fleet.UsageCounts, fmt.Sprintf("%s.eu%d", device, n), []byte("1")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	g.Wait()
	for _, of := range []struct{ devices, requests int }{{1, 1}, {50, 1}, {maxPrefixes, 3}} {
		before, err := c.Requests()
		if err != nil {
			t.Fatal(err)
		}
		list, err := s.ListUnder(t.Context(), fleet.UsageCounts, devices[:of.devices])
		if err != nil || len(list) != of.devices*servers {
			t.Errorf("%d records of %d: %v", len(list), of.devices*servers, err)
		}
		after, err := c.Requests()
		if n := after - before; err != nil || n != int64(of.requests) {
			t.Errorf("%d devices took %d requests, not %d: %v", of.devices, n, of.requests, err)
		}
	}
}
