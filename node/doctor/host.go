// SPDX-License-Identifier: Apache-2.0

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

// inspectHost collects what the doctor needs to know about this device and its networks.
func inspectHost(ctx context.Context) Host {
	h := Host{Uplinks: listUplinks(), IPv6: probe.HasIPv6(), Public: hasPublicAddress()}
	err := probe.CheckResolver(ctx)
	h.NoResolver = errors.Is(err, probe.ErrNoResolver)
	if !h.NoResolver {
		h.Names = convertProblem(fault.New(fault.Unreachable, err, ""))
	}
	h.ReadBuffer, h.WriteBuffer = maxTCPBuffer("tcp_rmem"), maxTCPBuffer("tcp_wmem")
	h.Congestion = readSysctl("tcp_congestion_control")
	h.RestartsIdle = readSysctl("tcp_slow_start_after_idle") == "1"
	h.Features = []Feature{{"run", missingForRun()}, {"tun", missingForTUN()}}
	return h
}

func readSysctl(name string) string {
	b, _ := os.ReadFile("/proc/sys/net/ipv4/" + name)
	return strings.TrimSpace(string(b))
}

// maxTCPBuffer returns the last number of a sysctl, 0 if there is none.
func maxTCPBuffer(name string) unit.Bytes {
	f := strings.Fields(readSysctl(name))
	if len(f) == 0 {
		return 0
	}
	n, _ := strconv.ParseInt(f[len(f)-1], 10, 64)
	return unit.Bytes(n)
}

// cpuUsage is the processor time that this program has used at a time.
type cpuUsage struct {
	at  time.Time
	cpu time.Duration
}

func (u cpuUsage) elapsed() time.Duration { return time.Since(u.at) }

// cpuShare returns the used share of one processor since then. It can exceed 1.
func (u cpuUsage) cpuShare() float64 {
	now := startCPUUsage()
	if took := now.at.Sub(u.at); took > 0 {
		return float64(now.cpu-u.cpu) / float64(took)
	}
	return 0
}

// hasPublicAddress reports whether an interface has a public address (not in RFC 1918, RFC 4193,
// RFC 6598).
func hasPublicAddress() bool {
	list, _ := net.InterfaceAddrs()
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().IsGlobalUnicast() &&
			!p.Addr().IsPrivate() && !carrierNAT.Contains(p.Addr()) {
			return true
		}
	}
	return false
}
