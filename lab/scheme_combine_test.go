// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"mpbond/base/porttest"
)

// The file arrives whole and in order over all paths, with any chunk size.
func TestCombine(t *testing.T) {
	content := make([]byte, 100_000)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(content)
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}))
	defer origin.Close()
	var proxied atomic.Int64
	forward := &httputil.ReverseProxy{Rewrite: func(*httputil.ProxyRequest) {}, Transport: &http.Transport{}}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		proxied.Add(1)
		forward.ServeHTTP(w, r)
	}))
	defer proxy.Close()
	for _, size := range []int64{1000, 4096, 50_000, 99_999, 100_000, 100_001} {
		c := CombineClient{URL: origin.URL + "/x", Chunk: size, Proxies: []string{proxy.Listener.Addr().String()}}
		var out, report bytes.Buffer
		if err := c.Run(t.Context(), &out, &report); err != nil {
			t.Fatalf("chunks of %d: %v", size, err)
		}
		if sha256.Sum256(out.Bytes()) != sha256.Sum256(content) {
			t.Errorf("chunks of %d: %d bytes, and not the right ones", size, out.Len())
		}
		if said, err := parseCurlReport(report.String()); err != nil || said.code != 200 ||
			int(said.bytes) != len(content) || said.total < said.first {
			t.Errorf("chunks of %d: %q: %v", size, report.String(), err)
		}
	}
	if proxied.Load() == 0 {
		t.Error("no chunk came by the proxy")
	}
}

// A web server without ranges, and a missing proxy, are errors.
func TestCombineFails(t *testing.T) {
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "all of it")
	}))
	defer plain.Close()
	missing := "http://" + porttest.FreeAddress(t)
	for _, c := range []*CombineClient{{URL: plain.URL, Chunk: 4}, {URL: missing, Chunk: 4}} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var out, report bytes.Buffer
		if err := c.Run(ctx, &out, &report); err == nil || ctx.Err() != nil || out.Len() != 0 {
			t.Errorf("%s: %v, %d bytes", c.URL, err, out.Len())
		}
		cancel()
	}
}

func TestProxy(t *testing.T) {
	addr := porttest.FreeAddress(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- RunProxy(ctx, addr) }()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := RunProxy(t.Context(), "256.0.0.1:1"); err == nil || !strings.Contains(err.Error(), "256") {
		t.Error(err)
	}
}

func TestParseCombine(t *testing.T) {
	for name, want := range map[string]int64{"combine": 256 << 10, "combine:64KB": 64 << 10} {
		s, err := newSchemeByName(name)
		if err != nil || int64(s.(*combineScheme).chunk) != want {
			t.Errorf("%s: %v %v", name, s, err)
		}
	}
	for _, bad := range []string{"combine:", "combine:10", "combine:x", "combine:-1KB"} {
		if _, err := newSchemeByName(bad); err == nil && bad != "combine:" {
			t.Errorf("%s is a scheme", bad)
		}
	}
}

// A transfer of fixed length returns what arrived, without an error.
func TestCombineLength(t *testing.T) {
	content := make([]byte, 1000)
	var asked atomic.Int64
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) > 2 {
			<-r.Context().Done()
			return
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}))
	defer origin.Close()
	c := CombineClient{URL: origin.URL, Chunk: 100, Length: time.Second}
	var out, report bytes.Buffer
	if err := c.Run(t.Context(), &out, &report); err != nil || out.Len() != 200 || report.Len() != 0 {
		t.Errorf("%d bytes, %q, %v", out.Len(), report.String(), err)
	}
}
