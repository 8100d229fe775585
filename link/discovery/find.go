package discovery

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// maxFound bounds what one Find returns, and with it what a hostile network can
// make us try.
const maxFound = 32

// Found is a service that somebody says is there.
type Found struct {
	ID   string // of the device that it claims to be of, "" if it tells none
	Addr netip.AddrPort
}

// Find asks once on each interface, and takes what is answered within d. Nobody
// there is no error; err tells that no interface could be asked on.
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
			list = appendNew(list, found)
		})
	}
	asking.Wait()
	if queried > 0 {
		err = nil
	}
	return list, err
}

// appendNew appends what is not in list yet, as far as there is room.
func appendNew(list, found []Found) []Found {
	for _, f := range found {
		if len(list) < maxFound && !slices.Contains(list, f) {
			list = append(list, f)
		}
	}
	return list
}
