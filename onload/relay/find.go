// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"cmp"
	"context"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"

	"mpbond/base/identity"
	"mpbond/link/discovery"
	"mpbond/link/tcp"
)

// Finder finds the helpers through which this device can onload now.
type Finder struct {
	Key   *identity.Key
	Trust *identity.Trust
	// Discover finds devices in the local networks that offer discovery.Onload; nil finds none.
	Discover func(context.Context) ([]discovery.Found, error)
	// Options apply to connections to helpers.
	Options tcp.Options
}

// Find returns the helpers of the trust file that are not paused and have a known address: first
// addresses that were discovered and have proved their key, then those of the trust file. Only
// dialling shows whether they respond and may carry anything. err is the error of Discover, if no
// helper was found.
func (f Finder) Find(ctx context.Context) (list []*Dialer, err error) {
	var found []discovery.Found
	if f.Discover != nil {
		found, err = f.Discover(ctx)
	}
	var mu sync.Mutex
	var asking sync.WaitGroup
	at := map[identity.PublicKey]map[string]bool{}
	for _, one := range found { // a small number: see package discovery
		asking.Go(func() {
			addr := one.Addr.String()
			key, ok := f.fetchPeerKey(ctx, addr)
			mu.Lock()
			defer mu.Unlock()
			if ok && at[key] == nil {
				at[key] = map[string]bool{}
			}
			if ok {
				at[key][addr] = true
			}
		})
	}
	asking.Wait()
	for _, p := range f.Trust.ByRole(identity.RoleHelper) {
		addrs := slices.Sorted(maps.Keys(at[p.Key]))
		for _, a := range p.Addresses {
			if a, ok := onloadAddress(a); ok && !slices.Contains(addrs, a) {
				addrs = append(addrs, a)
			}
		}
		if len(addrs) > 0 && !p.Paused {
			list = append(list, &Dialer{Key: f.Key, Helper: p, Addresses: addrs, Options: f.Options})
		}
	}
	if len(list) > 0 {
		err = nil
	}
	// discovered helpers first
	slices.SortStableFunc(list,
		func(a, b *Dialer) int { return -cmp.Compare(len(at[a.Helper.Key]), len(at[b.Helper.Key])) })
	return list, err
}

// fetchPeerKey returns the key that the device at an address presents.
func (f Finder) fetchPeerKey(ctx context.Context, addr string) (key identity.PublicKey, ok bool) {
	c, err := DialTLS(ctx, addr, f.Options, f.Key.UnverifiedConfig(ALPN), addressTimeout)
	if err != nil {
		return key, false
	}
	defer c.NetConn().Close()
	key, err = identity.PeerKey(c.ConnectionState())
	return key, err == nil
}

// onloadAddress returns the address for onloading of a helper, given its address in the trust file:
// the same host at Port.
func onloadAddress(addr string) (string, bool) {
	host, _, err := net.SplitHostPort(addr)
	return net.JoinHostPort(host, strconv.Itoa(Port)), err == nil
}
