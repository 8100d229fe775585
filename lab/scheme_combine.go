// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
	"sync"
	"time"

	"mpbond/base/unit"
)

// proxyPort is the port at which helpers serve as HTTP proxies.
const proxyPort = 3128

// combineScheme is COMBINE (Ananthanarayanan et al., MobiSys 2007). The client fetches a file in
// HTTP byte ranges, directly and through helpers that are HTTP proxies. Each path takes the next
// chunk of a common queue when it has finished one.
type combineScheme struct {
	schemeDefaults
	chunk unit.Bytes
}

// combineChunk is the default chunk size, that of the MPBond paper.
const combineChunk = 256 * unit.KB

// parseCombineScheme parses the variant of "combine:VARIANT".
func parseCombineScheme(variant string) (*combineScheme, error) {
	if variant == "" {
		return &combineScheme{chunk: combineChunk}, nil
	}
	chunk, err := unit.ParseBytes(variant)
	if err != nil || chunk < unit.KB {
		return nil, fmt.Errorf("scheme combine:%s: write combine[:CHUNK], with a chunk of at least 1 KB", variant)
	}
	return &combineScheme{chunk: chunk}, nil
}

// Start starts the web server and a proxy on each helper.
func (c *combineScheme) Start(ctx context.Context, b *Bench) error {
	if err := b.StartWeb(ctx); err != nil {
		return err
	}
	for _, h := range b.Lab.Topology.Helpers() {
		if err := b.SpawnSelf(ctx, h, proxyPort, "proxy", fmt.Sprintf(":%d", proxyPort)); err != nil {
			return err
		}
	}
	return nil
}

// Client returns the lab's own client, since curl has no queue of chunks. Verify rejects uploads
// and several streams.
func (c *combineScheme) Client(b *Bench, t Transfer) []string {
	top := b.Lab.Topology
	argv := labCommand("combine", b.fileURLForSize(t.Size))
	if t.Video != nil {
		argv = b.FetchCommand(t)
	}
	argv = append(argv, "--chunk", strconv.FormatInt(int64(c.chunk), 10))
	for _, h := range top.Helpers() {
		addr, _ := top.Addr(h, top.linkBetween("primary", h))
		argv = append(argv, "--proxy", fmt.Sprintf("%s:%d", addr, proxyPort))
	}
	if t.Length > 0 && t.Video == nil {
		argv = append(argv, "--length", t.Length.String())
	}
	return argv
}

// Verify fails unless the helpers carried a part of the file.
func (c *combineScheme) Verify(_ context.Context, b *Bench, r *Result) error {
	if r.Direction != "get" || r.Streams != 1 {
		return fmt.Errorf("combine: only single downloads are supported")
	}
	var helped unit.Bytes
	for device, n := range r.Devices {
		if device != "primary" {
			helped += n
		}
	}
	if len(b.Lab.Topology.Helpers()) > 0 && r.Bytes > c.chunk && helped < c.chunk/2 {
		return fmt.Errorf("combine: only %v arrived through helpers", helped)
	}
	return nil
}

// Capabilities implements Scheme.
func (*combineScheme) Capabilities() capabilities { return capabilities{video: true} }

// RunProxy serves as an HTTP proxy for plain requests until ctx ends.
func RunProxy(ctx context.Context, addr string) error {
	// A request to a proxy has its whole URL already.
	forward := &httputil.ReverseProxy{Rewrite: func(*httputil.ProxyRequest) {}, FlushInterval: -1,
		Transport: &http.Transport{DisableCompression: true}}
	s := &http.Server{Addr: addr, Handler: forward, ReadHeaderTimeout: stopTimeout}
	context.AfterFunc(ctx, func() { _ = s.Close() })
	if err := s.ListenAndServe(); ctx.Err() == nil {
		return err
	}
	return nil
}

// CombineClient is the client of COMBINE.
type CombineClient struct {
	URL     string
	Chunk   int64
	Proxies []string      // addresses, one path each besides the direct one
	Length  time.Duration // ends an incomplete transfer after that time; 0: no limit
	Size    int64         // of the file, if known

	clients []*http.Client // with connections to reuse; nil: Run makes its own

	mu        sync.Mutex
	nextChunk int64           // guarded by mu: for the next idle path
	size      int64           // guarded by mu: of the file, -1 before the first answer
	chunks    map[int64]chunk // guarded by mu: fetched, not yet written
	wake      chan struct{}
}

// chunk is a part of the file, or the error of fetching it.
type chunk struct {
	data []byte
	err  error
}

// Run writes the file to out, and a report like curl's to report.
func (c *CombineClient) Run(ctx context.Context, out, report io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var ended <-chan time.Time
	if c.Length > 0 {
		ended = time.After(c.Length)
	}
	c.size, c.chunks, c.wake = -1, map[int64]chunk{}, make(chan struct{}, 1)
	if c.Size > 0 {
		c.size = c.Size
	}
	if c.clients == nil {
		c.clients = c.newPathClients()
	}
	begin := time.Now()
	for _, path := range c.clients {
		go c.fetchChunks(ctx, path)
	}
	var first time.Duration
	var written int64
	for i := int64(0); ; {
		c.mu.Lock()
		part, there := c.chunks[i]
		delete(c.chunks, i)
		size := c.size
		c.mu.Unlock()
		switch {
		case size >= 0 && written == size:
			_, err := fmt.Fprintf(report, "curl-report %f %f 200 %d\n", time.Since(begin).Seconds(), first.Seconds(),
				written)
			return err
		case part.err != nil:
			return part.err
		case there:
			if i == 0 {
				first = time.Since(begin)
			}
			n, err := out.Write(part.data)
			if err != nil {
				return err
			}
			written += int64(n)
			i++
			continue
		}
		select {
		case <-c.wake:
		case <-ended:
			return nil // a transfer of fixed length is judged by its bytes
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// newPathClients returns a client for each path, the direct one first.
func (c *CombineClient) newPathClients() (paths []*http.Client) {
	for _, proxy := range append([]string{""}, c.Proxies...) {
		paths = append(paths, &http.Client{Transport: &http.Transport{DisableCompression: true,
			Proxy: httpProxyFunc("http", proxy)}})
	}
	return paths
}

// fetchChunks fetches chunks from the queue until it is empty.
func (c *CombineClient) fetchChunks(ctx context.Context, client *http.Client) {
	for {
		c.mu.Lock()
		i := c.nextChunk
		if c.size >= 0 && i*c.Chunk >= c.size {
			c.mu.Unlock()
			return
		}
		c.nextChunk++
		c.mu.Unlock()
		data, size, err := c.fetchChunk(ctx, client, i)
		c.mu.Lock()
		if err == nil {
			c.size = size
		}
		c.chunks[i] = chunk{data, err}
		c.mu.Unlock()
		select {
		case c.wake <- struct{}{}:
		default: // Run wakes up anyway
		}
		if err != nil {
			return
		}
	}
}

// fetchChunk fetches one chunk and returns it with the size of the file. A chunk behind the end of
// the file is empty.
func (c *CombineClient) fetchChunk(
	ctx context.Context,
	client *http.Client,
	i int64,
) (data []byte, size int64, err error) {
	res, err := requestByteRange(ctx, client, c.URL, i*c.Chunk, (i+1)*c.Chunk)
	if err != nil {
		return nil, 0, err
	}
	defer res.Body.Close()
	_, total, _ := strings.Cut(res.Header.Get("Content-Range"), "/")
	if size, err = strconv.ParseInt(total, 10, 64); err != nil || size < 0 {
		return nil, 0, fmt.Errorf("the web server answered %s to a range", res.Status)
	}
	want := min(c.Chunk, size-i*c.Chunk)
	switch {
	case res.StatusCode == http.StatusRequestedRangeNotSatisfiable && want <= 0:
		_, err = io.Copy(io.Discard, res.Body) // keep the connection usable
		return nil, size, err
	case res.StatusCode != http.StatusPartialContent:
		return nil, 0, fmt.Errorf("the web server answered %s to a range", res.Status)
	}
	data, err = io.ReadAll(io.LimitReader(res.Body, c.Chunk+1))
	if err == nil && int64(len(data)) != want {
		err = fmt.Errorf("chunk %d has %d bytes, not %d", i, len(data), want)
	}
	return data, size, err
}
