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

// lookEvery is how often the interfaces are looked at.
const lookEvery = 5 * time.Second

// Announce makes this device be found until ctx ends: the service at a port, at
// each interface that there is at the time, by the addresses it has then. Id is
// told to everybody on the network; "" tells nothing.
func Announce(ctx context.Context, s Service, id string, port int, log *slog.Logger) {
	a := announcer{service: s, port: port, txt: text(id), log: log, instance: strings.ToLower(rand.Text()[:12]), open: map[string]answered{}}
	defer a.follow(nil)
	t := time.NewTicker(lookEvery)
	defer t.Stop()
	for {
		a.follow(links())
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
	}
}

// text is what is told besides where the device is called.
func text(id string) []string {
	if id == "" {
		return []string{"v=1"} // a record there must be
	}
	return []string{idKey + id}
}

// announcer answers on the interfaces that are open.
type announcer struct {
	service  Service
	port     int
	txt      []string
	instance string
	log      *slog.Logger
	open     map[string]answered // by name of the interface
	told     string              // the last error
}

type answered struct {
	link
	server *mdns.Server
}

// follow makes what is open what there is.
func (a *announcer) follow(now []link) {
	for name, o := range a.open {
		if !slices.ContainsFunc(now, o.same) {
			_ = o.server.Shutdown() // never fails
			delete(a.open, name)
		}
	}
	for _, l := range now {
		if _, ok := a.open[l.iface.Name]; ok {
			continue
		}
		server, err := a.answer(l)
		if err != nil {
			if err.Error() != a.told {
				a.told = err.Error()
				a.log.Warn("others do not find this device by themselves", "interface", l.iface.Name, "err", err)
			}
			continue
		}
		a.open[l.iface.Name] = answered{l, server}
	}
}

func (l link) same(m link) bool {
	return l.iface.Name == m.iface.Name && l.iface.Index == m.iface.Index && slices.Equal(l.addrs, m.addrs)
}

// answer answers on one interface. Instance and host have names of their own
// there, as a question may be heard, and answered, on all: who asks then learns
// of all addresses and not of one of them.
func (a *announcer) answer(l link) (*mdns.Server, error) {
	name := fmt.Sprintf("%s-%d", a.instance, l.iface.Index)
	var ips []net.IP
	for _, addr := range l.addrs {
		ips = append(ips, addr.AsSlice())
	}
	zone, err := mdns.NewMDNSService(name, string(a.service), "local.", name+".local.", a.port, ips, a.txt)
	if err != nil {
		return nil, err
	}
	return mdns.NewServer(&mdns.Config{Zone: zone, Iface: &l.iface, Logger: quiet})
}
