// SPDX-License-Identifier: Apache-2.0

package upload

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
)

// TestSecretsOverHelpers checks that a helper, present at first or joining later, carries no
// headers or credentials unencrypted, and takes part with https or without secrets.
func TestSecretsOverHelpers(t *testing.T) {
	key := http.Header{"X-Key": {"k1"}}
	for _, c := range []struct {
		what   string
		url    string
		header http.Header
		fields []Field // of a form
		helps  bool
	}{
		{"nothing", "http://photos.test/", nil, nil, true},
		{"a header", "http://photos.test/", key, nil, false},
		{"a password", "http://me:pass@photos.test/", nil, nil, false},
		{"a header by https", "https://photos.test/", key, nil, true},
		{"a form field", "http://photos.test/", nil, []Field{{"album", "summer"}}, false},
		{"a form field by https", "https://photos.test/", nil, []Field{{"album", "summer"}}, true},
	} {
		for _, late := range []bool{false, true} {
			t.Run(c.what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, helped := newTestServer(), atomic.Int32{}
					files, sums := testPhotos(t, 125_000, 125_000, 125_000)
					method, handler, prefix := Put, s.place, "/"
					if c.fields != nil {
						method, handler, prefix = Post, s.form, ""
					}
					cfg := testConfig(t, method, c.url, files)
					cfg.times, cfg.Target.Header, cfg.Target.Fields = defaultTimes, c.header, c.fields
					cfg.Devices = []Device{{Name: "own", Transport: directTransport{handler, unit.Mbps}}}
					phone := Device{Name: "phone", Helper: true, Transport: faulty{directTransport{handler, unit.Mbps},
						func(*http.Request) error { helped.Add(1); return nil }}}
					if !late {
						cfg.Devices = append(cfg.Devices, phone)
					} else {
						found := make(chan Device)
						cfg.NewDevices = found
						go func() {
							time.Sleep(100 * time.Millisecond)
							found <- phone
							close(found)
						}()
					}
					res, err := Send(t.Context(), cfg)
					if err != nil {
						t.Fatal(err)
					}
					expectFiles(t, s, sums, prefix)
					if helps := helped.Load() > 0; helps != c.helps ||
						len(res.Devices) != 1+map[bool]int{true: 1}[c.helps] {
						t.Errorf("late %v: the helper carried %d requests: %+v", late, helped.Load(), res.Devices)
					}
				})
			})
		}
	}
	files, _ := testPhotos(t, 1000)
	cfg := testConfig(t, Put, "http://photos.test/", files)
	cfg.Target.Header = key
	for i := range cfg.Devices {
		cfg.Devices[i].Helper = true
	}
	if _, err := Send(t.Context(), cfg); !fault.Is(err, fault.Permission) ||
		!strings.Contains(err.Error(), "not encrypted") {
		t.Errorf("helpers alone: %v", err)
	}
}
