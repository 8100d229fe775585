package doctor

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/node/probe"
)

func lookAtHost(ctx context.Context) Host {
	h := Host{Uplinks: uplinks(), IPv6: probe.HasIPv6(), Public: isPublic()}
	err := probe.Resolver(ctx)
	h.NoResolver = errors.Is(err, probe.ErrNoResolver)
	if !h.NoResolver {
		h.Names = problem(fault.New(fault.Unreachable, err, ""))
	}
	h.ReadBuffer, h.WriteBuffer = most("tcp_rmem"), most("tcp_wmem")
	h.Congestion = sysctl("tcp_congestion_control")
	h.Features = []Feature{{"run", missingRun()}, {"tun", missingTUN()}}
	return h
}

func sysctl(name string) string {
	b, _ := os.ReadFile("/proc/sys/net/ipv4/" + name)
	return strings.TrimSpace(string(b))
}

// most is the last of a sysctl's numbers, 0 if there is none.
func most(name string) unit.Bytes {
	f := strings.Fields(sysctl(name))
	if len(f) == 0 {
		return 0
	}
	n, _ := strconv.ParseInt(f[len(f)-1], 10, 64)
	return unit.Bytes(n)
}

// used is what this program has used of a processor.
type used struct {
	at  time.Time
	cpu time.Duration
}

func (u used) since() time.Duration { return time.Since(u.at) }

// share is the part of one processor since then; more than one may have worked.
func (u used) share() float64 {
	now := startUsed()
	if took := now.at.Sub(u.at); took > 0 {
		return float64(now.cpu-u.cpu) / float64(took)
	}
	return 0
}

// isPublic reports whether an interface has an address that is not for a network
// of its own (RFC 1918, RFC 4193, RFC 6598).
func isPublic() bool {
	list, _ := net.InterfaceAddrs()
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().IsGlobalUnicast() && !p.Addr().IsPrivate() && !carrierNAT.Contains(p.Addr()) {
			return true
		}
	}
	return false
}
