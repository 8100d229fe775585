// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"mpbond/api"
)

// ServerSide holds what the server contributes to a measurement.
type ServerSide struct {
	Version string
	Seen    string // where the subflow comes from
	Copied  bool   // two instances of mpbond use the client's key
	Reports []Report
	// Hop returns a sample of the subflow, nil after it has ended.
	Hop func() *api.Hop
	// Now is the server's clock; nil means time.Now.
	Now func() time.Time
}

// Serve answers a request on c, which is bound to the subflow, until it is done or ctx ends.
// It does not close c.
func Serve(ctx context.Context, c net.Conn, f ServerSide) error {
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if f.Now == nil {
		f.Now = time.Now
	}
	_ = c.SetDeadline(time.Now().Add(answerTimeout))
	r := bufio.NewReaderSize(c, 2*maxBlock)
	var a Request
	if err := readJSONLine(r, &a); err != nil {
		return fmt.Errorf("measurement: %w", err)
	}
	a = a.clampedToLimits()
	about := About{Version: f.Version, Seen: f.Seen, IPv6: HasIPv6()}
	if a.Resolve {
		if err := CheckResolver(ctx); err != nil {
			about.Names = err.Error()
		}
	}
	if a.Resolve {
		about.Copied, about.Reports = f.Copied, f.Reports
	}
	about.Time = f.Now()
	if err := writeJSONLine(c, about); err != nil || ctx.Err() != nil {
		return errors.Join(err, ctx.Err())
	}
	_ = c.SetDeadline(time.Now().Add(time.Duration(a.Ms)*time.Millisecond + answerTimeout))
	var res Result
	var err error
	busy := ReadCPUTimes()
	switch a.Direction {
	case Down:
		samples, waits := 0, 0
		res.Bytes, err = sendBlocks(c, r, a, func() {
			if h := f.Hop(); h != nil {
				samples++
				if h.FarWaitMs > durationInMs(FarWaitThreshold) {
					waits++
				}
			}
		})
		res.FarShare = float64(waits) / float64(max(samples, 1))
	case Up:
		var m rateMeter
		m, err = receiveBlocks(ctx, c, r, a.Bytes)
		res.Bytes, res.RateBps = m.totalArrived(), m.rateAfterSlowStart()
	}
	if err != nil {
		return fmt.Errorf("measurement: %w", err)
	}
	res.Busy, res.Hop = busy.BusyShare(), f.Hop()
	return writeJSONLine(c, res)
}

func durationInMs(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// HasIPv6 reports whether there is a route for IPv6. It sends nothing: connecting a UDP socket asks
// the kernel for a route.
func HasIPv6() bool {
	c, err := net.Dial("udp6", "[2000::1]:9")
	if err != nil {
		return false
	}
	defer c.Close()
	a, ok := c.LocalAddr().(*net.UDPAddr)
	return ok && a.IP.IsGlobalUnicast() && !a.IP.IsPrivate()
}

// CheckResolver returns nil if one of this system's resolvers answers. It asks for the name servers
// of the root, which all resolvers know and which reveals nothing.
func CheckResolver(ctx context.Context) error {
	if b, err := os.ReadFile("/etc/resolv.conf"); err == nil && !hasNameServer(string(b)) {
		return ErrNoResolver
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout/2)
	defer cancel()
	_, err := net.DefaultResolver.LookupNS(ctx, ".")
	return err
}

// ErrNoResolver is returned by CheckResolver if no resolver is configured.
var ErrNoResolver = errors.New("no name server is configured")

// hasNameServer reports whether the text of resolv.conf(5) names one.
func hasNameServer(text string) bool {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "nameserver" {
			return true
		}
	}
	return false
}
