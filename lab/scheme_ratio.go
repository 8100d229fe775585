// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"mpbond/base/unit"
)

// ratioScheme stands for mptcp with a scheduler that divides the bytes in a fixed ratio, which the
// kernel's MPTCP lacks. Helpers are NAT routers as there. Each path has one plain TCP connection
// with its own part of the file.
//
// It is an upper bound for MPTCP with that ratio rather than MPTCP. Paths start when its subflows
// would, with the same congestion control. But nothing waits for bytes of another path, no window
// is shared, and packets have no MPTCP options (up to 28 bytes of 1500).
type ratioScheme struct {
	schemeDefaults
	// shares are the shares of the direct path, the first helper, and so on. Helpers without one
	// have equal parts of the rest.
	shares []float64
}

// parseRatioScheme parses "ratio=P[/P…]".
func parseRatioScheme(variant string) (*ratioScheme, error) {
	bad := fmt.Errorf("scheme mptcp:%s: write mptcp:ratio=P[/P…], shares between 0 and 1 of the direct path and "+
		"of helpers, in all at most 1", variant)
	list, ok := strings.CutPrefix(variant, "ratio=")
	if !ok {
		return nil, bad
	}
	s, sum := &ratioScheme{}, 0.0
	for text := range strings.SplitSeq(list, "/") {
		p, err := strconv.ParseFloat(text, 64)
		if err != nil || !(p >= 0 && p <= 1) {
			return nil, bad
		}
		s.shares = append(s.shares, p)
		sum += p
	}
	if sum > 1+1e-9 {
		return nil, bad
	}
	return s, nil
}

// splitPartSizes returns how many bytes each path carries, the direct one first. That one has at
// least one byte: the first connection requests the file, as in MPTCP.
func (s *ratioScheme) splitPartSizes(size unit.Bytes, helpers int) ([]unit.Bytes, error) {
	sum := 0.0
	for _, p := range s.shares {
		sum += p
	}
	if n := len(s.shares) - helpers; n > 1 || n == 1 && sum < 1-1e-9 {
		return nil, fmt.Errorf("mptcp:ratio: %d shares, %g in all, of %d paths", len(s.shares), sum, 1+helpers)
	}
	parts, rest := make([]unit.Bytes, 1+helpers), size
	for i, p := range s.shares {
		parts[i] = min(rest, unit.Bytes(float64(size)*p+0.5))
		if i == 0 {
			parts[i] = max(parts[i], 1)
		}
		rest -= parts[i]
	}
	for i := len(s.shares); i < len(parts); i++ {
		parts[i] = rest / unit.Bytes(len(parts)-i)
		rest -= parts[i]
	}
	parts[len(parts)-1] += rest
	return parts, nil
}

func (s *ratioScheme) Start(ctx context.Context, b *Bench) error {
	if _, err := s.splitPartSizes(0, len(b.Lab.Topology.Helpers())); err != nil {
		return err
	}
	if err := b.tetherHelpers(ctx); err != nil {
		return err
	}
	return b.StartWeb(ctx)
}

func (s *ratioScheme) Client(b *Bench, t Transfer) []string {
	top := b.Lab.Topology
	argv := labCommand("split")
	parts, _ := s.splitPartSizes(t.Size, len(top.Helpers())) // Start has checked it
	for i, n := range parts {
		from := ""
		if i > 0 {
			h := top.Helpers()[i-1]
			addr, _ := top.Addr("primary", top.linkBetween("primary", h))
			from = addr.String()
		}
		argv = append(argv, "--part", fmt.Sprintf("%s=%d", from, n))
	}
	return append(argv, b.fileURLForSize(t.Size))
}

// Verify fails unless each path carried its part.
func (s *ratioScheme) Verify(_ context.Context, b *Bench, r *Result) error {
	if r.Direction != "get" || r.Streams != 1 {
		return fmt.Errorf("mptcp:ratio: only single downloads of whole files")
	}
	helpers := b.Lab.Topology.Helpers()
	parts, err := s.splitPartSizes(r.Bytes, len(helpers))
	if err != nil {
		return err
	}
	for i, device := range append([]string{"primary"}, helpers...) {
		if r.Devices[device] < parts[i] {
			return fmt.Errorf("mptcp:ratio: %v arrived through %s, not %v", r.Devices[device], device, parts[i])
		}
	}
	return nil
}

func (*ratioScheme) Stop(ctx context.Context, b *Bench) error { return b.untetherHelpers(ctx) }

// SplitClient is the client of mptcp:ratio.
type SplitClient struct {
	URL   string
	Parts []SplitPart // in the order of their bytes in the file; the first is the direct path's
}

// SplitPart is what one connection carries.
type SplitPart struct {
	From  netip.Addr // local address, which selects the path; invalid: any
	Bytes int64
}

// ParseSplitPart parses "ADDRESS=BYTES" or "=BYTES".
func ParseSplitPart(text string) (p SplitPart, err error) {
	from, n, _ := strings.Cut(text, "=")
	if p.Bytes, err = strconv.ParseInt(n, 10, 64); err == nil && p.Bytes < 0 {
		err = errors.New("it is negative")
	}
	if err == nil && from != "" {
		p.From, err = netip.ParseAddr(from)
	}
	if err != nil {
		return p, fmt.Errorf("part %q: %w (write ADDRESS=BYTES)", text, err)
	}
	return p, nil
}

// Run writes the file to out, and a report like curl's to report. The other connections begin with
// the first answer. In MPTCP, further subflows begin when the first one's request is acknowledged,
// which is then.
func (s SplitClient) Run(ctx context.Context, out, report io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var total int64
	for _, p := range s.Parts {
		total += p.Bytes
	}
	begin := time.Now()
	first := make(chan struct{})
	ends := make(chan error)
	got := make([][]byte, len(s.Parts))
	var at int64
	for i, p := range s.Parts {
		span := [2]int64{at, at + p.Bytes}
		at = span[1]
		go func() {
			answered := func() {}
			if i == 0 {
				answered = func() { close(first) }
			} else {
				select {
				case <-first:
				case <-ctx.Done():
				}
			}
			var err error
			got[i], err = p.fetchFileSpan(ctx, s.URL, span, total, answered)
			ends <- err
		}()
	}
	var failed error
	for range s.Parts {
		if err := <-ends; err != nil && failed == nil {
			failed = err
			cancel()
		}
	}
	if failed != nil {
		return failed
	}
	took := time.Since(begin)
	for _, part := range got {
		if _, err := out.Write(part); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(report, "curl-report %f %f 200 %d\n", took.Seconds(), took.Seconds(), total)
	return err
}

// fetchFileSpan fetches a span of a file of known size over a new connection.
func (p SplitPart) fetchFileSpan(
	ctx context.Context,
	url string,
	span [2]int64,
	total int64,
	answered func(),
) ([]byte, error) {
	if p.Bytes == 0 {
		answered()
		return nil, ctx.Err()
	}
	dialer := net.Dialer{}
	if p.From.IsValid() {
		dialer.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(p.From, 0))
	}
	t := &http.Transport{DialContext: dialer.DialContext, DisableCompression: true, DisableKeepAlives: true}
	defer t.CloseIdleConnections()
	res, err := requestByteRange(ctx, &http.Client{Transport: t}, url, span[0], span[1])
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	want := fmt.Sprintf("bytes %d-%d/%d", span[0], span[1]-1, total)
	if got := res.Header.Get("Content-Range"); res.StatusCode != http.StatusPartialContent || got != want {
		return nil, fmt.Errorf("the web server answered %s with %q, not %q", res.Status, got, want)
	}
	answered()
	data := make([]byte, p.Bytes)
	_, err = io.ReadFull(res.Body, data)
	return data, err
}
