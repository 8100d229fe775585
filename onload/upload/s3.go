package upload

import (
	"bytes"
	"cmp"
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"hash"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"mpbond/base/fault"
	"mpbond/base/text"
	"mpbond/base/unit"
	"mpbond/onload/board"
	"mpbond/onload/transfer"
)

// Limits of S3 (its documentation, "Multipart upload limits").
const (
	leastPart = 5 << 20 // but for the last
	mostParts = 10000
)

// amzDigest is what S3 compares what it received with.
const amzDigest = "X-Amz-Content-Sha256"

// part is a part of an object, as the server confirmed it.
type part struct {
	ETag string     `json:"etag"`
	Size unit.Bytes `json:"size"`
}

// partsOf is how a large object goes up.
type partsOf struct {
	id     string // its upload's, "": in one request
	size   unit.Bytes
	have   map[int]part
	listed bool   // the server has been asked what it has
	etag   string // of the object when it was confirmed
}

// number of the part that begins at a byte.
func (p partsOf) number(at unit.Bytes) int { return int(at/p.size) + 1 }

// bare is an ETag as servers that forget the quotes write it.
func bare(etag string) string { return strings.Trim(etag, `"`) }

// unsent is what of a file is not confirmed.
func (f *file) unsent() unit.Bytes {
	n := f.size
	for _, p := range f.parts.have {
		n -= p.Size
	}
	return n
}

// joins tells whether a file's next step is that the server makes an object of parts.
func (f *file) joins() bool { return f.state == finishing && f.parts.id != "" }

// s3 sends objects by the S3 protocol: with Signature Version 4, so that the server
// checks each byte's digest; large ones in parts of which each is an item.
type s3 struct {
	*asker
	signer    func(r *http.Request, digest string) error
	leastPart unit.Bytes
	log       *slog.Logger
}

func newS3(a *asker, cfg Config) *s3 {
	return &s3{a, newSigner(a.target), cfg.times.part, cfg.Log}
}

// sign signs a request whose body has the digest.
func (s *s3) sign(digest []byte) func(*http.Request) error {
	return func(r *http.Request) error {
		sum := hex.EncodeToString(digest)
		r.Header.Set(amzDigest, sum)
		return s.signer(r, sum)
	}
}

// call asks for something small.
func (s *s3) call(ctx context.Context, d *transfer.Worker, method, where string, body []byte) (*answer, error) {
	digest := sha256.Sum256(body)
	q := request{method: method, url: where, sign: s.sign(digest[:]), read: method != http.MethodHead, header: http.Header{}}
	if body != nil {
		q.header.Set("Content-Type", "application/xml")
		if s.target.Keep {
			q.header.Set("If-None-Match", "*")
		}
		q.length, q.body = int64(len(body)), func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	}
	return s.ask(ctx, d, q)
}

func with(where string, query url.Values) string { return where + "?" + query.Encode() }

// first begins an object in parts, or asks which parts the server has of it.
func (s *s3) first(ctx context.Context, d *transfer.Worker, f *file) error {
	empty := sha256.Sum256(nil)
	if err := s.keep(ctx, d, f, s.sign(empty[:])); err != nil {
		return err
	}
	if f.parts.id != "" {
		return s.list(ctx, d, f)
	}
	if f.size <= 2*s.leastPart { // parts cost two requests more
		return nil
	}
	r, err := s.call(ctx, d, http.MethodPost, with(f.url, url.Values{"uploads": {""}}), nil)
	if err != nil {
		return err
	}
	var begun struct {
		XMLName xml.Name `xml:"InitiateMultipartUploadResult"`
		ID      string   `xml:"UploadId"`
	}
	if r.StatusCode != http.StatusOK {
		return said(r)
	}
	if err := xml.Unmarshal(r.text, &begun); err != nil || begun.ID == "" {
		return refuse(transfer.Final, fault.Protocol, "does it speak S3?", "the server begins no upload: %.100q", text.Printable(string(r.text)))
	}
	f.parts = partsOf{id: begun.ID, size: max(s.leastPart, (f.size+mostParts-1)/mostParts), listed: true}
	return nil
}

// list asks which parts the server has: of those that a journal knows, others are sent
// again.
func (s *s3) list(ctx context.Context, d *transfer.Worker, f *file) error {
	if f.parts.listed {
		return nil
	}
	there := map[int]part{}
	for after := 0; ; {
		r, err := s.call(ctx, d, http.MethodGet, with(f.url, url.Values{"uploadId": {f.parts.id}, "part-number-marker": {strconv.Itoa(after)}}), nil)
		if err != nil {
			return err
		}
		if r.StatusCode == http.StatusNotFound { // it is over: complete, or begun anew
			if f.unsent() == 0 && s.whether(ctx, d, f) == nil {
				f.parts.listed = true
				return nil
			}
			f.parts = partsOf{}
			return s.first(ctx, d, f)
		}
		if r.StatusCode != http.StatusOK {
			return said(r)
		}
		var page struct {
			XMLName xml.Name `xml:"ListPartsResult"`
			More    bool     `xml:"IsTruncated"`
			Next    int      `xml:"NextPartNumberMarker"`
			Parts   []struct {
				Number int    `xml:"PartNumber"`
				ETag   string `xml:"ETag"`
				Size   int64  `xml:"Size"`
			} `xml:"Part"`
		}
		if err := xml.Unmarshal(r.text, &page); err != nil {
			return refuse(transfer.Final, fault.Protocol, "", "the server lists no parts: %w", err)
		}
		for _, p := range page.Parts {
			there[p.Number] = part{p.ETag, unit.Bytes(p.Size)}
		}
		if !page.More || page.Next <= after || len(there) > mostParts {
			break
		}
		after = page.Next
	}
	for n, p := range f.parts.have {
		if bare(there[n].ETag) != bare(p.ETag) || there[n].Size != p.Size {
			delete(f.parts.have, n)
		}
	}
	f.parts.listed = true
	return nil
}

func (s *s3) items(f *file) (list []board.Item) {
	if f.parts.id == "" {
		return []board.Item{{Object: f.index, To: f.size, Once: s.target.Keep}} // or a copy meets what the other one made
	}
	for at := unit.Bytes(0); at < f.size; at += f.parts.size {
		if _, ok := f.parts.have[f.parts.number(at)]; !ok {
			list = append(list, board.Item{Object: f.index, From: at, To: min(at+f.parts.size, f.size)})
		}
	}
	return list
}

func (s *s3) send(ctx context.Context, j *job) error {
	digest, err := j.digest(sha256.New())
	if err != nil {
		return err
	}
	q := request{method: http.MethodPut, url: j.of.url, header: http.Header{}, length: int64(j.Item.Size()),
		body: j.body(nil, nil), sent: j, expect: j.expect, sign: s.sign(digest), read: true}
	if j.of.parts.id == "" {
		q.header.Set("Content-Type", typeOf(j.of.Name))
		if s.target.Keep {
			q.header.Set("If-None-Match", "*")
		}
	} else {
		q.url = with(q.url, url.Values{"partNumber": {strconv.Itoa(j.of.parts.number(j.Item.From))}, "uploadId": {j.of.parts.id}})
	}
	r, err := s.ask(ctx, j.Worker, q)
	if err != nil {
		return err
	}
	j.part = part{r.Header.Get("ETag"), j.Item.Size()}
	switch {
	case r.StatusCode == http.StatusPreconditionFailed && j.of.lost:
		return s.ours(ctx, j)
	case r.StatusCode != http.StatusOK:
		return said(r)
	case j.part.ETag == "":
		return refuse(transfer.Final, fault.Protocol, "does it speak S3?", "the server took something, and gives it no ETag")
	}
	return nil
}

// ours tells whether the object that is there is the one that was sent without an answer.
func (s *s3) ours(ctx context.Context, j *job) error {
	r, err := s.call(ctx, j.Worker, http.MethodHead, j.of.url, nil)
	if err != nil {
		return err
	}
	if r.StatusCode != http.StatusOK {
		return said(r)
	}
	digest, err := j.digest(md5.New())
	if err == nil && (r.ContentLength != int64(j.of.size) || bare(r.Header.Get("ETag")) != hex.EncodeToString(digest)) {
		err = exists(j.of.url)
	}
	return err
}

// digest reads what a job will send.
func (j *job) digest(sum hash.Hash) ([]byte, error) {
	s, err := j.of.open()
	if err != nil {
		return nil, err
	}
	defer s.f.Close()
	if _, err := io.Copy(sum, io.NewSectionReader(s.f, int64(j.Item.From), int64(j.Item.Size()))); err != nil {
		return nil, transfer.Local(err)
	}
	j.Touch()
	return sum.Sum(nil), nil
}

// last has the server make the object of its parts, and asks what it has then.
func (s *s3) last(ctx context.Context, d *transfer.Worker, f *file) error {
	if f.parts.id != "" && f.parts.etag == "" {
		if err := s.complete(ctx, d, f); err != nil {
			return err
		}
	}
	r, err := s.call(ctx, d, http.MethodHead, f.url, nil)
	switch {
	case err != nil:
		return err
	case r.StatusCode == http.StatusForbidden: // to write only
		f.proof = ByDigest
		return nil
	case r.StatusCode == http.StatusNotFound:
		return refuse(transfer.Restart, fault.Integrity, "", "the server took the object, and does not have it")
	case r.StatusCode != http.StatusOK:
		return said(r)
	case r.ContentLength != int64(f.size):
		return refuse(transfer.Restart, fault.Integrity, "does somebody else write there?", "the server has %d bytes of it instead of %d", r.ContentLength, int64(f.size))
	case f.parts.etag != "" && bare(r.Header.Get("ETag")) != f.parts.etag:
		return refuse(transfer.Restart, fault.Integrity, "does somebody else write there?", "the server has another object than was sent: ETag %q instead of %q",
			text.Printable(r.Header.Get("ETag")), text.Printable(f.parts.etag))
	}
	f.proof = ByDigest
	return nil
}

type completed struct {
	Number int    `xml:"PartNumber"`
	ETag   string `xml:"ETag"`
}

func (s *s3) complete(ctx context.Context, d *transfer.Worker, f *file) error {
	var list struct {
		XMLName xml.Name    `xml:"CompleteMultipartUpload"`
		Parts   []completed `xml:"Part"`
	}
	for n, p := range f.parts.have {
		list.Parts = append(list.Parts, completed{n, p.ETag})
	}
	slices.SortFunc(list.Parts, func(a, b completed) int { return cmp.Compare(a.Number, b.Number) })
	body, err := xml.Marshal(list)
	if err != nil {
		return err
	}
	r, err := s.call(ctx, d, http.MethodPost, with(f.url, url.Values{"uploadId": {f.parts.id}}), body)
	if err != nil {
		return err
	}
	var done struct { // an error may come with 200, since it takes long
		XMLName xml.Name
		ETag    string `xml:"ETag"`
		errorXML
	}
	bad := xml.Unmarshal(r.text, &done)
	switch {
	case r.StatusCode == http.StatusOK && bad == nil && done.XMLName.Local == "CompleteMultipartUploadResult" && done.ETag != "":
		f.parts.etag = bare(done.ETag)
		return nil
	case r.StatusCode == http.StatusPreconditionFailed && s.whether(ctx, d, f) != nil:
		return exists(f.url)
	case r.StatusCode == http.StatusPreconditionFailed:
		return nil // it was this one
	case done.Code == "NoSuchUpload": // perhaps an answer was lost: then the object is there
		f.parts.etag = ""
		return s.whether(ctx, d, f)
	case r.StatusCode == http.StatusOK && done.Code == "InternalError":
		return refuse(transfer.Retry, fault.Protocol, "", "the server cannot complete the object: %s", text.Printable(done.Message))
	case done.Code == "ConditionalRequestConflict": // S3 wants it begun anew
		return refuse(transfer.Restart, fault.Exists, "does somebody else write there?", "the object is written by another request too")
	case done.Code == "InvalidPart" || done.Code == "InvalidPartOrder":
		return refuse(transfer.Restart, fault.Integrity, "", "the server has lost parts: %s", text.Printable(done.Message))
	case r.StatusCode == http.StatusOK:
		return refuse(transfer.Retry, fault.Protocol, "", "the server does not say that the object is complete: %s", text.Printable(cmp.Or(done.Message, "no answer that can be read")))
	}
	return said(r)
}

// whether tells whether an object whose upload is over is there: its ETag is made of its
// parts' by all servers that have digests for ETags.
func (s *s3) whether(ctx context.Context, d *transfer.Worker, f *file) error {
	r, err := s.call(ctx, d, http.MethodHead, f.url, nil)
	if err != nil {
		return err
	}
	etag := bare(r.Header.Get("ETag"))
	if r.StatusCode == http.StatusOK && r.ContentLength == int64(f.size) && etag == joined(f.parts.have) {
		f.parts.etag = etag
		return nil
	}
	return refuse(transfer.Restart, fault.Integrity, "", "the server has forgotten the parts")
}

func (s *s3) abandon(ctx context.Context, d *transfer.Worker, f *file) {
	if f.parts.id == "" || f.parts.etag != "" {
		return
	}
	if _, err := s.call(ctx, d, http.MethodDelete, with(f.url, url.Values{"uploadId": {f.parts.id}}), nil); err != nil {
		s.log.Warn("parts of an object may be left at the server", "url", f.url, "err", fmt.Errorf("%w", err))
	}
}
