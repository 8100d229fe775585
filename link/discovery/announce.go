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
)

// interfaceInterval is how often the interfaces are looked at.
const interfaceInterval = 5 * time.Second

// Announce makes this device be found until ctx ends: the service at a port, at
// each interface that there is at the time, by the addresses it has then. Id is
// told to everybody on the network; "" tells nothing.
func Announce(ctx context.Context, s Service, id string, port int, log *slog.Logger) {
	a := announcer{service: s, port: port, txt: txtRecords(id), log: log, instance: strings.ToLower(rand.Text()[:12]), responders: map[string]responder{}}
	defer a.updateResponders(nil)
	t := time.NewTicker(interfaceInterval)
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

// txtRecords is what is told besides where the device is called.
func txtRecords(id string) []string {
	if id == "" {
		return []string{"v=1"} // a record there must be
	}
	return []string{idKey + id}
}

// announcer answers on the interfaces that are open.
type announcer struct {
	service    Service
	port       int
	txt        []string
	instance   string
	log        *slog.Logger
	responders map[string]responder // by name of the interface
	lastError  string               // the last error
}

type responder struct {
	link
	server *mdns.Server
}

// updateResponders makes what is open what there is.
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
				a.log.Warn("others do not find this device by themselves", "interface", l.iface.Name, "err", err)
			}
			continue
		}
		a.responders[l.iface.Name] = responder{l, server}
	}
}

func (l link) isSameLink(m link) bool {
	return l.iface.Name == m.iface.Name && l.iface.Index == m.iface.Index && slices.Equal(l.addrs, m.addrs)
}

// startResponder answers on one interface. Instance and host have names of their own
// there, as a question may be heard, and answered, on all: who asks then learns
// of all addresses and not of one of them.
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
