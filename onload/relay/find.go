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

// Finder finds the helpers through which this device may onload now.
type Finder struct {
	Key   *identity.Key
	Trust *identity.Trust
	// Discover asks the local networks who offers discovery.Onload; nil asks nobody.
	Discover func(context.Context) ([]discovery.Found, error)
	// Options are how helpers are called.
	Options tcp.Options
}

// Find lists the helpers of the trust file, but for those that are paused, of which an
// address is known: where a helper that says nothing but that it is one has shown its key,
// and then those of the trust file. Whether they answer, and may carry anything, only
// dialling tells. Err is that of the networks, if no helper was found.
func (f Finder) Find(ctx context.Context) (list []*Dialer, err error) {
	var found []discovery.Found
	if f.Discover != nil {
		found, err = f.Discover(ctx)
	}
	var mu sync.Mutex
	var asking sync.WaitGroup
	at := map[identity.PublicKey]map[string]bool{}
	for _, one := range found { // of which there are not many: see package discovery
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
	slices.SortStableFunc(list, func(a, b *Dialer) int { return -cmp.Compare(len(at[a.Helper.Key]), len(at[b.Helper.Key])) }) // who answered first
	return list, err
}

// fetchPeerKey tells whose key somebody shows at an address.
func (f Finder) fetchPeerKey(ctx context.Context, addr string) (key identity.PublicKey, ok bool) {
	c, err := DialTLS(ctx, addr, f.Options, f.Key.UnverifiedConfig(ALPN), addressTimeout)
	if err != nil {
		return key, false
	}
	defer c.NetConn().Close()
	key, err = identity.PeerKey(c.ConnectionState())
	return key, err == nil
}

// onloadAddress is where the helper at an address of the trust file listens: at Port, as the
// file may have the port at which it was paired.
func onloadAddress(addr string) (string, bool) {
	host, _, err := net.SplitHostPort(addr)
	return net.JoinHostPort(host, strconv.Itoa(Port)), err == nil
}
