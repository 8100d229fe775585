// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// Streams is a client that downloads a URL many times at once, each over its own connection.
type Streams struct {
	URL   string
	N     int
	SOCKS string // address of a proxy, or none
}

// Run prints one Received for all downloads to out, with their common SHA-256, and a report like
// curl's to report. It reports no gaps, since streams wait for each other.
func (s Streams) Run(ctx context.Context, out, report io.Writer) error {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true,
		Proxy: httpProxyFunc("socks5h", s.SOCKS)}, Timeout: 10 * time.Minute}
	type answer struct {
		got   Received
		first time.Duration
		err   error
	}
	begin := time.Now()
	answers := make(chan answer, s.N)
	for range s.N {
		go func() {
			got, first, err := downloadURL(ctx, client, s.URL)
			answers <- answer{got, first, err}
		}()
	}
	var all Received
	var first time.Duration
	for i := range s.N {
		a := <-answers
		switch {
		case a.err != nil:
			return fmt.Errorf("one of %d streams: %w", s.N, a.err)
		case i > 0 && a.got.SHA != all.SHA:
			return fmt.Errorf("one of %d streams has different content (%d bytes)", s.N, a.got.Bytes)
		case i == 0 || a.first < first:
			first = a.first
		}
		all.SHA = a.got.SHA
		all.Bytes += a.got.Bytes
	}
	fmt.Fprintf(report, "curl-report %f %f 200 %d\n", time.Since(begin).Seconds(), first.Seconds(), all.Bytes)
	return json.NewEncoder(out).Encode(all)
}

// httpProxyFunc returns the Proxy of an http.Transport, nil without an address.
func httpProxyFunc(scheme, addr string) func(*http.Request) (*url.URL, error) {
	if addr == "" {
		return nil
	}
	return http.ProxyURL(&url.URL{Scheme: scheme, Host: addr})
}

// requestByteRange requests the bytes of a URL between two offsets. With 0 and 0 it requests all of
// them; any answer but 200 is then an error.
func requestByteRange(ctx context.Context, client *http.Client, target string, from, to int64) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target, nil)
	if err != nil {
		return nil, err
	}
	if to > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", from, to-1))
	}
	res, err := client.Do(req)
	if err == nil && to == 0 && res.StatusCode != http.StatusOK {
		res.Body.Close()
		return nil, fmt.Errorf("the web server answered %s", res.Status)
	}
	return res, err
}

// downloadURL makes one download.
func downloadURL(
	ctx context.Context,
	client *http.Client,
	target string,
) (got Received, first time.Duration, err error) {
	begin := time.Now()
	res, err := requestByteRange(ctx, client, target, 0, 0)
	if err != nil {
		return got, 0, err
	}
	defer res.Body.Close()
	first = time.Since(begin)
	got, err = receiveAll(res.Body, &byteCounter{}, 0)
	return got, first, err
}
