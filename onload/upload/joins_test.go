// SPDX-License-Identifier: Apache-2.0

package upload

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"mpbond/base/unit"
)

// directTransport is a line of so much to a server in the same process, without a socket, so that
// time can be virtual.
type directTransport struct {
	to   http.HandlerFunc
	rate unit.Rate
}

func (d directTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	w, in := httptest.NewRecorder(), r.Clone(r.Context())
	if r.Body != nil {
		in.Body = pacedReader{r.Body, d.rate}
		defer r.Body.Close()
	}
	d.to(w, in)
	return w.Result(), r.Context().Err()
}

type pacedReader struct {
	io.ReadCloser
	rate unit.Rate
}

func (p pacedReader) Read(b []byte) (int, error) {
	n, err := p.ReadCloser.Read(b[:min(len(b), 4<<10)])
	time.Sleep(p.rate.Time(unit.Bytes(n)))
	return n, err
}

// TestJoins: what is to be sent begins at once, and who is found later takes part; each file
// is there once.
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
			// Alone it takes 8 s. Two are sent when the other one comes; both have the rest within
			// a quarter of theirs.
			if took := time.Since(began); took > 5*time.Second || len(res.Devices) != 2 ||
				res.Devices[1].Bytes < 500_000 {
				t.Errorf("%s: within %v, %+v", method, took, res.Devices)
			}
		})
	}
}

// TestJoinsLast: while somebody may still be found nothing is given up, whatever the own line
// says or does not; when nobody will come it is, at once.
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
