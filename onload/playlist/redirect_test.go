// SPDX-License-Identifier: Apache-2.0

package playlist

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/unit"
)

// edge is a site whose segments are redirected to another host, each time to another address, and
// from there to a third one.
type edge struct {
	rig   *rig
	given map[string]bool
	leaks []string
}

func (e *edge) answer(w http.ResponseWriter, r *http.Request) bool {
	e.rig.web.mu.Lock()
	defer e.rig.web.mu.Unlock()
	own := r.Host == "tv.test"
	if secret := r.Header.Get("Cookie") + r.Header.Get("Authorization"); !own && secret != "" || own &&
		!strings.Contains(secret, "mine") {
		e.leaks = append(e.leaks, fmt.Sprintf("%s%s: %q", r.Host, r.URL.Path, secret))
	}
	switch name := r.URL.RequestURI(); {
	case own && strings.HasPrefix(name, "/v/seg"):
		to := fmt.Sprintf("http://a.edge.test/%d%s", len(e.given), name)
		e.given[to] = true
		http.Redirect(w, r, to, http.StatusFound)
	case own:
		return false
	case e.given["http://"+r.Host+name]:
		http.Redirect(w, r, "//b.edge.test"+name[strings.Index(name, "/v/"):], http.StatusTemporaryRedirect)
	case r.Host == "b.edge.test":
		return false
	default:
		w.WriteHeader(http.StatusGone)
	}
	return true
}

// TestRedirected checks that redirected segments are prefetched over both devices from targets that
// only the local device has resolved, that the player sees each redirect, and that credentials stay
// with their host.
func TestRedirected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, 0, .375*mbit, .25*mbit)
		const n, size = 20, 250_000
		data := r.vod("/v", n, size)
		e := &edge{rig: r, given: map[string]bool{}}
		r.web.wrong = e.answer
		get := func(path string, want []byte) {
			q, _ := http.NewRequest(http.MethodGet, "http://tv.test"+path, nil)
			q.Header.Set("Cookie", "a=mine")
			q.Header.Set("Authorization", "mine")
			seen := 0
			c := &http.Client{Transport: r.player.Transport,
				CheckRedirect: func(*http.Request, []*http.Request) error { seen++; return nil }}
			a, err := c.Do(q)
			if err != nil {
				t.Fatal(err)
			}
			defer a.Body.Close()
			if got, err := io.ReadAll(a.Body); err != nil || want != nil && (string(got) != string(want) || seen != 2) {
				t.Errorf("%s: %s, %d bytes, %d redirects, %v", path, a.Status, len(got), seen, err)
			}
		}
		get("/v/list.m3u8", nil)
		var ready time.Time
		var stalled time.Duration
		for i, path := range hlsPaths("/v", n) {
			if i > 0 { // its buffer is full
				time.Sleep(max(0, time.Until(ready)-12*time.Second))
			}
			get(path, data[i])
			if now := time.Now(); i > 0 && now.After(ready) {
				stalled += now.Sub(ready)
			}
			if now := time.Now(); ready.Before(now) {
				ready = now
			}
			ready = ready.Add(4 * time.Second)
		}
		res := r.stop()
		t.Logf("stood still for %v; %+v", stalled, res)
		if stalled > 4*time.Second { // over the local device only, for 25 s
			t.Errorf("the player stalled for %v", stalled)
		}
		var all unit.Bytes
		for _, d := range res.Devices {
			all += d.Bytes
		}
		if res.Segments != n || res.Passed != 0 || res.Devices[1].Bytes < all/4 || len(e.leaks) > 0 {
			t.Errorf("%+v, %v", res, e.leaks)
		}
		helped := 0
		for _, asked := range r.lines[1].log {
			if strings.HasPrefix(asked, "tv.test/v/seg") {
				helped++
			}
		}
		if helped > 2 {
			t.Errorf("the helper sent %d requests for redirected segments", helped)
		}
	})
}

// TestRedirectedWrongly checks that redirects that must not be followed are passed to the player,
// and their targets not requested.
func TestRedirectedWrongly(t *testing.T) {
	for name, to := range map[string]string{
		"to itself": "", "encrypted": "https://b.test/x", "a password": "http://u:p@b.test/x", "none": "-",
		"no end": "http://c.test/1",
		"a file": "file:///etc/passwd",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, 0, 8*mbit, 8*mbit)
				data := r.vod("/v", 12, 100_000)
				hops := 0
				r.web.wrong = func(w http.ResponseWriter, q *http.Request) bool {
					is := strings.HasPrefix(q.URL.Path, "/v/seg") &&
						!strings.HasPrefix(q.URL.Path, "/v/seg0.") || q.Host != "tv.test"
					switch {
					case !is:
						return false
					case name == "no end":
						r.web.mu.Lock()
						hops++
						w.Header().Set("Location", fmt.Sprintf("http://c.test/%d", hops))
						r.web.mu.Unlock()
					case to == "":
						w.Header().Set("Location", q.URL.RequestURI())
					case to != "-":
						w.Header().Set("Location", to)
					}
					w.WriteHeader(http.StatusMovedPermanently)
					return true
				}
				r.get("/v/list.m3u8", nil)
				r.get("/v/seg0.ts?k=0", data[0])
				time.Sleep(5 * time.Second)
				for i := 1; i < 6; i++ {
					a, got := r.get(hlsPaths("/v", 12)[i], nil)
					if a == nil || a.StatusCode != http.StatusMovedPermanently || len(got) > 0 || name == "encrypted" &&
						a.Header.Get("Location") != to {
						t.Errorf("segment %d: %v, %d bytes", i, a, len(got))
					}
					time.Sleep(5 * time.Second)
				}
				for i, l := range r.lines {
					for _, asked := range l.log {
						if !strings.HasPrefix(asked, "tv.test") && name != "no end" {
							t.Errorf("line %d asked for %s", i, asked)
						}
					}
					if most := 80; len(l.log) > most {
						t.Errorf("line %d asked %d times: %v", i, len(l.log), l.log)
					}
				}
				if res := r.stop(); res.Segments != 1 {
					t.Errorf("%+v", res)
				}
			})
		})
	}
}
