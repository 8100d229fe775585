// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/mdns"

	"mpbond/base/pace"
)

// interfaceInterval is how often the list of interfaces is checked, unless the clock idles.
const interfaceInterval = 5 * time.Second

// Announcement describes a service of a device.
type Announcement struct {
	Service Service
	ID      string // of this device, which all devices on the network can read; "" announces none
	Port    int
}

// Announce announces a service of this device, on each local interface and with its current
// addresses, until ctx ends. It checks for changed interfaces with each tick of clock: at intervals,
// and at once when the system reports a change.
func Announce(ctx context.Context, s Announcement, clock *pace.Clock, log *slog.Logger) {
	a := announcer{service: s.Service, port: s.Port, txt: txtRecords(s.ID), log: log,
		instance: strings.ToLower(rand.Text()[:12]), responders: map[string]responder{}}
	defer a.updateResponders(nil)
	t := clock.NewTicker(interfaceInterval)
	defer t.Stop()
	for {
		a.updateResponders(localLinks())
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// txtRecords returns the TXT records of the service.
func txtRecords(id string) []string {
	if id == "" {
		return []string{"v=1"} // at least one record is required
	}
	return []string{idKey + id}
}

// announcer answers queries on a set of interfaces.
type announcer struct {
	service    Service
	port       int
	txt        []string
	instance   string
	log        *slog.Logger
	responders map[string]responder // by name of the interface
	lastError  string               // the last error logged
}

type responder struct {
	link
	server *mdns.Server
}

// updateResponders starts and stops responders to match the current interfaces.
func (a *announcer) updateResponders(now []link) {
	for name, o := range a.responders {
		if !slices.ContainsFunc(now, o.isSameLink) {
			_ = o.server.Shutdown() // never fails
			delete(a.responders, name)
		}
	}
	for _, l := range now {
		if _, ok := a.responders[l.iface.Name]; ok {
			continue
		}
		server, err := a.startResponder(l)
		if err != nil {
			if err.Error() != a.lastError {
				a.lastError = err.Error()
				a.log.Warn("cannot announce this device on the network", "interface", l.iface.Name, "err", err)
			}
			continue
		}
		a.responders[l.iface.Name] = responder{l, server}
	}
}

func (l link) isSameLink(m link) bool {
	return l.iface.Name == m.iface.Name && l.iface.Index == m.iface.Index && slices.Equal(l.addrs, m.addrs)
}

// startResponder answers queries on one interface. Instance and host names differ between
// interfaces, because a query may arrive, and be answered, on several. So the querier learns all
// addresses, not just one.
func (a *announcer) startResponder(l link) (*mdns.Server, error) {
	name := fmt.Sprintf("%s-%d", a.instance, l.iface.Index)
	var ips []net.IP
	for _, addr := range l.addrs {
		ips = append(ips, addr.AsSlice())
	}
	zone, err := mdns.NewMDNSService(name, string(a.service), "local.", name+".local.", a.port, ips, a.txt)
	if err != nil {
		return nil, err
	}
	return mdns.NewServer(&mdns.Config{Zone: zone, Iface: &l.iface, Logger: discardLog})
}
