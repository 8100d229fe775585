// SPDX-License-Identifier: Apache-2.0

package upload

import (
	"bytes"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"mpbond/base/fault"
)

// bucket is a minimal S3 server that can misbehave. TestRealS3 has a real one.
type bucket struct {
	t       *testing.T
	mu      sync.Mutex
	objects map[string][]byte
	etags   map[string]string
	uploads map[string]map[int][]byte
	begun   int // uploads
	parts   int // accepted
	taken   int // objects in one request
	aborted int
	// odd, if it returns true, has responded instead.
	odd func(b *bucket, w http.ResponseWriter, r *http.Request) bool
}

func newBucket(t *testing.T) *bucket {
	return &bucket{t: t, objects: map[string][]byte{}, etags: map[string]string{}, uploads: map[string]map[int][]byte{}}
}

// storedObject returns an object. A request that was overtaken may still be under way.
func (b *bucket) storedObject(name string) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.objects[name]
}

// escapeStrictly escapes a path as S3 signs it: AWS's "UriEncode".
func escapeStrictly(path string) (s string) {
	for _, c := range []byte(path) {
		if c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || strings.IndexByte("-._~/", c) >= 0 {
			s += string(rune(c))
		} else {
			s += fmt.Sprintf("%%%02X", c)
		}
	}
	return s
}

func etag(data []byte) string { return fmt.Sprintf(`"%x"`, md5.Sum(data)) }

func (b *bucket) fail(w http.ResponseWriter, status int, code string) {
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>it is so</Message></Error>", code)
}

func (b *bucket) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if b.odd != nil && b.odd(b, w, r) {
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	if path, _, _ := strings.Cut(r.RequestURI, "?"); path != escapeStrictly(r.URL.Path) {
		b.fail(w, http.StatusForbidden, "SignatureDoesNotMatch")
		return
	}
	sum := sha256.Sum256(body)
	if r.Header.Get(amzDigest) != hex.EncodeToString(sum[:]) || !strings.Contains(r.Header.Get("Authorization"),
		"/eu-test-1/s3/aws4_request") {
		b.fail(w, http.StatusBadRequest, "XAmzContentSHA256Mismatch")
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	q, name := r.URL.Query(), r.URL.Path
	id := q.Get("uploadId")
	if id != "" && b.uploads[id] == nil {
		b.fail(w, http.StatusNotFound, "NoSuchUpload")
		return
	}
	switch {
	case r.Method == http.MethodPost && q.Has("uploads"):
		id := fmt.Sprint("up", b.begun, "+/") // never reuse an ID: its DELETE may still be under way
		b.begun++
		b.uploads[id] = map[int][]byte{}
		fmt.Fprintf(w, "<InitiateMultipartUploadResult><UploadId>%s</UploadId></InitiateMultipartUploadResult>", id)
	case r.Method == http.MethodPut && id != "":
		var n int
		_, _ = fmt.Sscan(q.Get("partNumber"), &n)
		b.uploads[id][n] = body
		b.parts++
		w.Header().Set("ETag", etag(body))
	case r.Header.Get("If-None-Match") == "*" && b.objects[name] != nil:
		b.fail(w, http.StatusPreconditionFailed, "PreconditionFailed")
	case r.Method == http.MethodPut:
		b.taken++
		b.objects[name], b.etags[name] = body, etag(body)
		w.Header().Set("ETag", etag(body))
	case r.Method == http.MethodGet && id != "":
		fmt.Fprint(w, "<ListPartsResult><IsTruncated>false</IsTruncated>")
		for n, data := range b.uploads[id] {
			fmt.Fprintf(w, "<Part><PartNumber>%d</PartNumber><ETag>%s</ETag><Size>%d</Size></Part>",
				n, etag(data), len(data))
		}
		fmt.Fprint(w, "</ListPartsResult>")
	case r.Method == http.MethodPost && id != "":
		b.complete(w, name, id, body)
	case r.Method == http.MethodDelete && id != "":
		delete(b.uploads, id)
		b.aborted++
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodHead && b.objects[name] != nil:
		w.Header().Set("ETag", b.etags[name])
		w.Header().Set("Content-Length", fmt.Sprint(len(b.objects[name])))
	default:
		w.WriteHeader(http.StatusNotFound)
	}
}

func (b *bucket) complete(w http.ResponseWriter, name, id string, body []byte) {
	var list struct {
		Parts []completedPart `xml:"Part"`
	}
	if err := xml.Unmarshal(body, &list); err != nil {
		b.t.Error(err)
	}
	var all, digests []byte
	for i, p := range list.Parts {
		data := b.uploads[id][p.Number]
		if p.Number != i+1 || etag(data) != p.ETag {
			b.fail(w, http.StatusBadRequest, "InvalidPart")
			return
		}
		sum := md5.Sum(data)
		all, digests = append(all, data...), append(digests, sum[:]...)
	}
	delete(b.uploads, id)
	b.objects[name], b.etags[name] = all, fmt.Sprintf(`"%x-%d"`, md5.Sum(digests), len(list.Parts))
	fmt.Fprintf(w, "<CompleteMultipartUploadResult><ETag>%s</ETag></CompleteMultipartUploadResult>", b.etags[name])
}

func s3Config(t *testing.T, url string, files []File) Config {
	if !hasS3 {
		t.Skip("the build for routers has no S3")
	}
	cfg := testConfig(t, S3, url, files)
	cfg.Target.Region, cfg.Target.Key, cfg.Target.Secret = "eu-test-1", "key", "secret"
	return cfg
}

// large is the size of a file of three parts; each may take more than one request.
const large = 2*smallPart + 1000

// TestS3 sends small and large objects over two devices, and checks that errors of S3 are handled
// or reported.
func TestS3(t *testing.T) {
	is := func(r *http.Request, method, key string) bool { return r.Method == method && r.URL.Query().Has(key) }
	once := func(f func(*bucket, http.ResponseWriter, *http.Request) bool) func(*bucket,
		http.ResponseWriter, *http.Request) bool {
		var did bool
		return func(b *bucket, w http.ResponseWriter, r *http.Request) bool {
			b.mu.Lock()
			before := did
			b.mu.Unlock()
			if before || !f(b, w, r) {
				return false
			}
			b.mu.Lock()
			did = true
			b.mu.Unlock()
			return true
		}
	}
	for _, c := range []struct {
		name    string
		kind    fault.Kind
		says    string
		aborted int
		odd     func(*bucket, http.ResponseWriter, *http.Request) bool
	}{
		{name: "all is well"},
		{name: "200, with an error in it", odd: once(func(b *bucket, w http.ResponseWriter, r *http.Request) bool {
			if !is(r, http.MethodPost, "uploadId") {
				return false
			}
			b.fail(w, http.StatusOK, "InternalError")
			return true
		})},
		{name: "the answer to the last request is lost",
			odd: once(func(b *bucket, w http.ResponseWriter, r *http.Request) bool {
				if !is(r, http.MethodPost, "uploadId") {
					return false
				}
				body, _ := io.ReadAll(r.Body)
				b.mu.Lock()
				b.complete(discardWriter{http.Header{}}, r.URL.Path, r.URL.Query().Get("uploadId"), body)
				b.mu.Unlock()
				c, _, _ := http.NewResponseController(w).Hijack()
				c.Close()
				return true
			})},
		{name: "parts are forgotten", odd: once(func(b *bucket, w http.ResponseWriter, r *http.Request) bool {
			if !is(r, http.MethodPost, "uploadId") {
				return false
			}
			b.mu.Lock()
			delete(b.uploads, r.URL.Query().Get("uploadId"))
			b.mu.Unlock()
			b.fail(w, http.StatusNotFound, "NoSuchUpload")
			return true
		})},
		{name: "SlowDown", odd: once(func(b *bucket, w http.ResponseWriter, r *http.Request) bool {
			b.fail(w, http.StatusServiceUnavailable, "SlowDown")
			return true
		})},
		{name: "wrong secret", kind: fault.Permission, says: "SignatureDoesNotMatch",
			odd: func(b *bucket, w http.ResponseWriter, _ *http.Request) bool {
				b.fail(w, http.StatusForbidden, "SignatureDoesNotMatch")
				return true
			}},
		{name: "no S3", kind: fault.Protocol, says: "started no multipart upload",
			odd: func(_ *bucket, w http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodPost {
					fmt.Fprint(w, "<html>hello")
				}
				return r.Method == http.MethodPost
			}},
		{name: "no part is taken", kind: fault.Limit, says: "413", aborted: 1,
			odd: func(_ *bucket, w http.ResponseWriter, r *http.Request) bool {
				if is(r, http.MethodPut, "partNumber") {
					w.WriteHeader(http.StatusRequestEntityTooLarge)
				}
				return is(r, http.MethodPut, "partNumber")
			}},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBucket(t)
			b.odd = c.odd
			sizes := []int{large, 1000, 0}
			if c.kind != "" {
				sizes = sizes[:1]
			}
			files, sums := testPhotos(t, sizes...)
			cfg := s3Config(t, startServer(t, b.ServeHTTP)+"/bucket/a b/", files)

			res, err := Send(t.Context(), cfg)
			if c.kind != "" {
				if !fault.Is(err, c.kind) || !strings.Contains(err.Error(), c.says) ||
					len(res.Failed) != 1 || b.aborted != c.aborted {
					t.Errorf("%v (%s), %+v, %d aborted", err, fault.KindOf(err), res, b.aborted)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for name, sum := range sums {
				if sha256.Sum256(b.storedObject("/bucket/a b/"+name)) != sum {
					t.Errorf("%s is another", name)
				}
			}
			for _, f := range res.Files {
				if f.Proof != ByDigest {
					t.Errorf("%+v", f)
				}
			}
		})
	}
}

type discardWriter struct{ h http.Header }

func (d discardWriter) Header() http.Header       { return d.h }
func (discardWriter) WriteHeader(int)             {}
func (discardWriter) Write(p []byte) (int, error) { return len(p), nil }

// TestS3GoesOn checks that another run does not send confirmed parts again, and that without a
// journal nothing is left at the server.
func TestS3GoesOn(t *testing.T) {
	for _, kept := range []bool{true, false} {
		b := newBucket(t)
		files, sums := testPhotos(t, large)
		ctx, cancel := context.WithCancel(t.Context())
		b.odd = func(b *bucket, _ http.ResponseWriter, r *http.Request) bool {
			b.mu.Lock()
			stop := b.parts == 1 && r.Method == http.MethodPut && ctx.Err() == nil
			b.mu.Unlock()
			if stop {
				cancel()
			}
			return stop
		}
		cfg := s3Config(t, startServer(t, b.ServeHTTP)+"/bucket/", files)
		cfg.Devices = cfg.Devices[:1]
		path := filepath.Join(t.TempDir(), "put.jsonl")
		if kept {
			cfg.Journal, cfg.Known = openJournal(t, path)
		}
		if _, err := Send(ctx, cfg); !errors.Is(err, context.Canceled) || b.parts != 1 {
			t.Fatal(err, b.parts)
		}
		if !kept {
			if b.aborted != 1 || len(b.uploads) != 0 {
				t.Errorf("%d aborted, %d left", b.aborted, len(b.uploads))
			}
			continue
		}
		cfg.Journal.Close()
		cfg.Journal, cfg.Known = openJournal(t, path)
		if _, err := Send(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		cfg.Journal.Close()
		if b.parts != 3 || sha256.Sum256(b.storedObject("/bucket/p00.jpg")) != sums["p00.jpg"] {
			t.Errorf("%d parts were sent", b.parts)
		}
	}
}

// TestS3Names checks the signatures of unusual names.
func TestS3Names(t *testing.T) {
	b := newBucket(t)
	files, sums := testPhotos(t, oddSizes...)
	sums = renameOddly(files, sums)
	cfg := s3Config(t, startServer(t, b.ServeHTTP)+"/bucket/a+b@c/", files)
	if _, err := Send(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	for name, sum := range sums {
		if sha256.Sum256(b.storedObject("/bucket/a+b@c/"+name)) != sum {
			t.Errorf("%s is another", name)
		}
	}
	cfg.Target.URL, cfg.Files = strings.Replace(cfg.Target.URL, "a+b@c/", "one+two.jpg", 1), files[:1]
	if _, err := Send(t.Context(), cfg); err != nil || b.storedObject("/bucket/one+two.jpg") == nil {
		t.Error(err)
	}
}

// oddNames are names that servers might sign in different ways.
var oddNames = []string{"logo@2x.png", "a+b.jpg", "12:30:05.jpg", "a,b.jpg", "a&b=c.jpg", "$x;y.jpg", "a (2)*'!~.jpg",
	"50%2B.jpg", "Größe.jpg", "[x].jpg"}

var oddSizes = []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 2*smallPart + 10}

// renameOddly gives files these names.
func renameOddly(files []File, sums map[string][32]byte) map[string][32]byte {
	named := map[string][32]byte{}
	for i, name := range oddNames {
		named[name] = sums[files[i].Name]
		files[i].Name = name
	}
	return named
}

func TestJoined(t *testing.T) {
	a, b := md5.Sum([]byte("a")), md5.Sum([]byte("b"))
	want := fmt.Sprintf("%x-2", md5.Sum(bytes.Join([][]byte{a[:], b[:]}, nil)))
	if got := multipartETag(map[int]part{2: {ETag: etag([]byte("b"))}, 1: {ETag: etag([]byte("a"))}}); got != want {
		t.Error(got, want)
	}
	if got := multipartETag(map[int]part{1: {ETag: `"other"`}}); got != "" {
		t.Error(got)
	}
}
