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
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"mpbond/base/porttest"
	"mpbond/base/unit"
)

// The file arrives whole and in order, each part over a connection from its own address, and none
// before the first answer.
func TestSplit(t *testing.T) {
	content := make([]byte, 100_000)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(content)
	var mu sync.Mutex
	var asked []string
	origin := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		from := netip.MustParseAddrPort(r.RemoteAddr).Addr()
		mu.Lock()
		asked = append(asked, fmt.Sprintf("%v %s", from, r.Header.Get("Range")))
		mu.Unlock()
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	}))
	defer origin.Close()
	here := func(text string) netip.Addr { return netip.MustParseAddr(text) }
	for _, c := range []struct {
		parts []SplitPart
		want  []string
	}{
		{[]SplitPart{{Bytes: 100_000}}, []string{"127.0.0.1 bytes=0-99999"}},
		{[]SplitPart{{Bytes: 1}, {here("127.0.0.2"), 99_999}}, []string{"127.0.0.1 bytes=0-0",
			"127.0.0.2 bytes=1-99999"}},
		{[]SplitPart{{Bytes: 60_000}, {here("127.0.0.2"), 30_000}, {here("127.0.0.3"), 10_000}},
			[]string{"127.0.0.1 bytes=0-59999", "127.0.0.2 bytes=60000-89999", "127.0.0.3 bytes=90000-99999"}},
		{[]SplitPart{{Bytes: 100_000}, {here("127.0.0.2"), 0}}, []string{"127.0.0.1 bytes=0-99999"}},
	} {
		asked = nil
		var out, report bytes.Buffer
		if err := (SplitClient{URL: origin.URL + "/x", Parts: c.parts}).Run(t.Context(), &out, &report); err != nil {
			t.Fatalf("%v: %v", c.parts, err)
		}
		if sha256.Sum256(out.Bytes()) != sha256.Sum256(content) {
			t.Errorf("%v: %d bytes, and not the right ones", c.parts, out.Len())
		}
		if said, err := parseCurlReport(report.String()); err != nil || said.code != 200 ||
			int(said.bytes) != len(content) {
			t.Errorf("%v: %q: %v", c.parts, report.String(), err)
		}
		if first := asked[0]; first != c.want[0] {
			t.Errorf("%v: %s was asked first", c.parts, first)
		}
		slices.Sort(asked)
		if !slices.Equal(asked, c.want) {
			t.Errorf("%v: asked %v", c.parts, asked)
		}
	}
}

// Wrong sizes of parts, a web server without ranges, and a missing one are errors. Nothing hangs.
func TestSplitFails(t *testing.T) {
	whole := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader("0123456789"))
	}))
	defer whole.Close()
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "all of it")
	}))
	defer plain.Close()
	missing := "http://" + porttest.FreeAddress(t)
	for _, url := range []string{whole.URL, plain.URL, missing} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var out, report bytes.Buffer
		if err := (SplitClient{URL: url, Parts: []SplitPart{{Bytes: 4}, {Bytes: 5}}}).Run(ctx, &out,
			&report); err == nil || ctx.Err() != nil || out.Len() != 0 {
			t.Errorf("%s: %v, %d bytes", url, err, out.Len())
		}
		cancel()
	}
}

func TestParseSplit(t *testing.T) {
	for _, c := range []struct {
		name    string
		helpers int
		want    []unit.Bytes // of 1000
	}{
		{"mptcp:ratio=0.6", 1, []unit.Bytes{600, 400}},
		{"mptcp:ratio=0.333", 2, []unit.Bytes{333, 333, 334}},
		{"mptcp:ratio=0.5/0.3", 2, []unit.Bytes{500, 300, 200}},
		{"mptcp:ratio=0.7/0.2/0.1", 2, []unit.Bytes{700, 200, 100}},
		{"mptcp:ratio=0", 1, []unit.Bytes{1, 999}},
		{"mptcp:ratio=1", 1, []unit.Bytes{1000, 0}},
		{"mptcp:ratio=1", 0, []unit.Bytes{1000}},
		{"mptcp:ratio=0.5/0.3", 1, nil},
	} {
		s, err := newSchemeByName(c.name)
		if err != nil {
			t.Fatal(err)
		}
		got, err := s.(*ratioScheme).splitPartSizes(1000, c.helpers)
		if !slices.Equal(got, c.want) || (err == nil) != (c.want != nil) {
			t.Errorf("%s with %d helpers: %v, %v", c.name, c.helpers, got, err)
		}
	}
	for _, bad := range []string{"mptcp:", "mptcp:ratio=", "mptcp:ratio=2", "mptcp:ratio=-0.1", "mptcp:ratio=NaN",
		"mptcp:ratio=0.6/0.6", "mptcp:ratio=x", "mptcp:0.5"} {
		if _, err := newSchemeByName(bad); err == nil {
			t.Errorf("%s is a scheme", bad)
		}
	}
	for _, bad := range []string{"", "x", "=-1", "10.0.0=5", "10.0.0.1="} {
		if p, err := ParseSplitPart(bad); err == nil {
			t.Errorf("part %q: %v", bad, p)
		}
	}
	if p, err := ParseSplitPart("10.0.0.1=5"); err != nil || p.Bytes != 5 || p.From != netip.MustParseAddr("10.0.0.1") {
		t.Errorf("%v %v", p, err)
	}
}
