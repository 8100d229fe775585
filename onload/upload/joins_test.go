// SPDX-License-Identifier: Apache-2.0

package upload

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/unit"
)

// directTransport is a device of a given rate to a server in the same process, without a socket,
// for virtual time.
type directTransport struct {
	to   http.HandlerFunc
	rate unit.Rate
}

func (d directTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	w, in := httptest.NewRecorder(), r.Clone(r.Context())
	in.RequestURI, in.Host, in.Body = r.URL.RequestURI(), cmp.Or(r.Host, r.URL.Host), http.NoBody
	if r.Body != nil {
		in.Body = pacedReader{r.Body, d.rate, r.Context()}
		defer r.Body.Close()
	}
	d.to(w, in)
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	return w.Result(), nil
}

// pacedReader is a request's body at the server. It breaks off when the request is cancelled.
type pacedReader struct {
	io.ReadCloser
	rate unit.Rate
	ctx  context.Context
}

func (p pacedReader) Read(b []byte) (int, error) {
	n, err := p.ReadCloser.Read(b[:min(len(b), 4<<10)])
	select {
	case <-time.After(p.rate.Time(unit.Bytes(n))):
		return n, err
	case <-p.ctx.Done():
		return 0, p.ctx.Err()
	}
}

// TestJoins checks that an upload starts at once, that devices found later take part, and that each
// file is stored once.
func TestJoins(t *testing.T) {
	for _, method := range []string{Post, Put} {
		synctest.Test(t, func(t *testing.T) {
			s := newTestServer()
			handler, prefix := s.form, ""
			if method == Put {
				handler, prefix = s.place, "/"
			}
			files, sums := testPhotos(t, 125_000, 125_000, 125_000, 125_000, 125_000, 125_000, 125_000, 125_000)
			cfg := testConfig(t, method, "http://photos.test/", files)
			cfg.times = defaultTimes
			cfg.Devices = []Device{{Name: "own", Transport: directTransport{handler, unit.Mbps}}}
			found := make(chan Device)
			cfg.NewDevices = found
			began := time.Now()
			go func() {
				time.Sleep(2500 * time.Millisecond)
				found <- Device{Name: "late", Transport: directTransport{handler, 4 * unit.Mbps}}
				close(found)
			}()
			res, err := Send(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			expectFiles(t, s, sums, prefix)
			// One device alone needs 8 s. Two files are sent when the other device joins; both send
			// the rest within a quarter of that.
			if took := time.Since(began); took > 5*time.Second || len(res.Devices) != 2 ||
				res.Devices[1].Bytes < 500_000 {
				t.Errorf("%s: within %v, %+v", method, took, res.Devices)
			}
		})
	}
}

// TestJoinsLast checks that nothing is given up while devices may join, whatever happens to the
// local device, and that it is given up at once when none will.
func TestJoinsLast(t *testing.T) {
	for name, own := range map[string]http.RoundTripper{
		"refused": directTransport{func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
			unit.Mbps},
		"dead": faulty{nil, func(*http.Request) error { return errors.New("no such line") }},
	} {
		for _, comes := range []bool{true, false} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newTestServer()
					files, sums := testPhotos(t, 125_000, 125_000)
					cfg := testConfig(t, Put, "http://photos.test/", files)
					cfg.times = defaultTimes
					cfg.Devices = []Device{{Name: "own", Transport: own}}
					found := make(chan Device)
					cfg.NewDevices = found
					began := time.Now()
					go func() {
						time.Sleep(time.Minute)
						if comes {
							found <- Device{Name: "late", Transport: directTransport{s.place, 4 * unit.Mbps}}
						}
						close(found)
					}()
					res, err := Send(t.Context(), cfg)
					took := time.Since(began)
					switch {
					case comes && err != nil:
						t.Fatal(err)
					case comes:
						expectFiles(t, s, sums, "/")
						if took > 70*time.Second || res.Devices[1].Bytes != 250_000 {
							t.Errorf("within %v: %+v", took, res.Devices)
						}
					case err == nil || took < time.Minute || took > 80*time.Second ||
						len(res.Failed) != 2 || len(s.files) > 0:
						t.Errorf("%v within %v: %+v", err, took, res)
					}
				})
			})
		}
	}
}
