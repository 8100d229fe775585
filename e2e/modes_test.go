// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"testing"

	"mpbond/api"
	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/e2e/rig"
	"mpbond/node/intercept"
)

// TestModesAndChunks: connections that rules make low-latency or redundant carry their bytes
// unchanged. An app may announce the chunk it waits for on its own connection.
func TestModesAndChunks(t *testing.T) {
	for _, rule := range []string{"latency", "redundant", "bond"} {
		w := newTestbed(t)
		_, port, err := net.SplitHostPort(w.web.addr)
		if err != nil {
			t.Fatal(err)
		}
		switch rule {
		case "latency":
			w.pcfg.Latency = []string{"port:" + port}
		case "redundant":
			w.pcfg.Redundant = []string{"port:" + port}
		}
		w.startAll("phone")
		if err := w.download(3 * mb); err != nil {
			t.Errorf("%s: %v", rule, err)
		}
		if err := w.upload(3 * mb); err != nil {
			t.Errorf("%s: %v", rule, err)
		}
		wasted := w.s.Status(false)[0].WastedBytes["sent_redundantly"]
		most := unit.Bytes(6 * mb / 100) // copies of messages
		if rule == "latency" {
			most = 0
		}
		if (wasted > most) != (rule == "redundant") {
			t.Errorf("%s: the server sent %v redundantly", rule, wasted)
		}
	}

	w := newTestbed(t)
	w.startAll("phone")
	ln, err := intercept.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	edge := intercept.New(intercept.Config{Dialer: w.p})
	served := make(chan error, 1)
	go func() { served <- edge.ServeProxy(ln) }()
	defer func() {
		edge.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	site := http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(rw, r.Body)
	})}
	web, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go site.Serve(web) //nolint:errcheck // ends with Close
	defer site.Close()
	var app string
	client := http.Client{Transport: &http.Transport{
		Proxy: func(*http.Request) (*url.URL, error) {
			return &url.URL{Scheme: "socks5", Host: ln.Addr().String()}, nil
		},
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if err == nil {
				app = c.LocalAddr().String()
			}
			return c, err
		}}}
	answer, err := client.Post("http://"+web.Addr().String(), "text/plain", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	for _, up := range []bool{false, true} {
		if err := w.p.MarkChunk(api.Chunk{App: app, Bytes: 1000, Up: up}); err != nil {
			t.Errorf("chunk on %s, up %v: %v", app, up, err)
		}
	}
	client.CloseIdleConnections()
	rig.Eventually(t, func() error {
		if err := w.p.MarkChunk(api.Chunk{App: app, Bytes: 1}); !fault.Is(err, fault.NotFound) {
			return err
		}
		return nil
	})
}
