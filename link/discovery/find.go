// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// maxFound bounds the result of Find, and so how many addresses a hostile network can make us try.
const maxFound = 32

// Found is a service that a device claims to offer.
type Found struct {
	ID   string // claimed ID of the device, "" for none
	Addr netip.AddrPort
}

// Find queries each interface once and collects answers for d. An empty result is not an error; err
// means that no interface could be queried.
func Find(ctx context.Context, s Service, d time.Duration) (list []Found, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	var asking sync.WaitGroup
	queried := 0
	for _, l := range localLinks() {
		asking.Go(func() {
			found, e := queryInterface(ctx, l.iface, s, d)
			mu.Lock()
			defer mu.Unlock()
			if e == nil {
				queried++
			} else if err == nil {
				err = e
			}
			list = appendNewFound(list, found)
		})
	}
	asking.Wait()
	if queried > 0 {
		err = nil
	}
	return list, err
}

// appendNewFound appends the elements of found that are not in list yet, up to maxFound.
func appendNewFound(list, found []Found) []Found {
	for _, f := range found {
		if len(list) < maxFound && !slices.Contains(list, f) {
			list = append(list, f)
		}
	}
	return list
}
