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
	minPartSize = 5 << 20 // but for the last
	maxParts    = 10000
)

// amzDigest is what S3 compares what it received with.
const amzDigest = "X-Amz-Content-Sha256"

// part is a part of an object, as the server confirmed it.
type part struct {
	ETag string     `json:"etag"`
	Size unit.Bytes `json:"size"`
}

// multipartUpload is how a large object goes up.
type multipartUpload struct {
	uploadID  string // its upload's, "": in one request
	partSize  unit.Bytes
	confirmed map[int]part
	listed    bool   // the server has been asked what it has
	etag      string // of the object when it was confirmed
}

// partNumber of the part that begins at a byte.
func (p multipartUpload) partNumber(at unit.Bytes) int { return int(at/p.partSize) + 1 }

// trimQuotes is an ETag as servers that forget the quotes write it.
func trimQuotes(etag string) string { return strings.Trim(etag, `"`) }

// unconfirmedBytes is what of a file is not confirmed.
func (f *file) unconfirmedBytes() unit.Bytes {
	n := f.size
	for _, p := range f.multipart.confirmed {
		n -= p.Size
	}
	return n
}

// isCompleting tells whether a file's next step is that the server makes an object of parts.
func (f *file) isCompleting() bool { return f.state == confirming && f.multipart.uploadID != "" }

// s3Protocol sends objects by the S3 protocol: with Signature Version 4, so that the server
// checks each byte's digest; large ones in parts of which each is an item.
type s3Protocol struct {
	*requester
	signer      func(r *http.Request, digest string) error
	minPartSize unit.Bytes
	log         *slog.Logger
}

func newS3(a *requester, cfg Config) *s3Protocol {
	return &s3Protocol{a, newSigner(a.target), cfg.times.minPartSize, cfg.Log}
}

// signWith signs a request whose body has the digest.
func (s *s3Protocol) signWith(digest []byte) func(*http.Request) error {
	return func(r *http.Request) error {
		sum := hex.EncodeToString(digest)
		r.Header.Set(amzDigest, sum)
		return s.signer(r, sum)
	}
}

// callAPI asks for something small.
func (s *s3Protocol) callAPI(ctx context.Context, d *transfer.Worker, method, where string, body []byte) (*response, error) {
	digest := sha256.Sum256(body)
	q := request{method: method, url: where, sign: s.signWith(digest[:]), readBody: method != http.MethodHead, header: http.Header{}}
	if body != nil {
		q.header.Set("Content-Type", "application/xml")
		if s.target.KeepExisting {
			q.header.Set("If-None-Match", "*")
		}
		q.length, q.body = int64(len(body)), func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	}
	return s.sendRequest(ctx, d, q)
}

func withQuery(where string, query url.Values) string { return where + "?" + query.Encode() }

// prepareFile begins an object in parts, or asks which parts the server has of it.
func (s *s3Protocol) prepareFile(ctx context.Context, d *transfer.Worker, f *file) error {
	empty := sha256.Sum256(nil)
	if err := s.checkAbsent(ctx, d, f, s.signWith(empty[:])); err != nil {
		return err
	}
	if f.multipart.uploadID != "" {
		return s.listParts(ctx, d, f)
	}
	if f.size <= 2*s.minPartSize { // parts cost two requests more
		return nil
	}
	r, err := s.callAPI(ctx, d, http.MethodPost, withQuery(f.url, url.Values{"uploads": {""}}), nil)
	if err != nil {
		return err
	}
	var begun struct {
		XMLName xml.Name `xml:"InitiateMultipartUploadResult"`
		ID      string   `xml:"UploadId"`
	}
	if r.StatusCode != http.StatusOK {
		return refusalFromXML(r)
	}
	if err := xml.Unmarshal(r.body, &begun); err != nil || begun.ID == "" {
		return newRefusal(transfer.Final, fault.Protocol, "does it speak S3?", "the server begins no upload: %.100q", text.Printable(string(r.body)))
	}
	f.multipart = multipartUpload{uploadID: begun.ID, partSize: max(s.minPartSize, (f.size+maxParts-1)/maxParts), listed: true}
	return nil
}

// listParts asks which parts the server has: of those that a journal knows, others are sent
// again.
func (s *s3Protocol) listParts(ctx context.Context, d *transfer.Worker, f *file) error {
	if f.multipart.listed {
		return nil
	}
	there := map[int]part{}
	for after := 0; ; {
		r, err := s.callAPI(ctx, d, http.MethodGet, withQuery(f.url, url.Values{"uploadId": {f.multipart.uploadID}, "part-number-marker": {strconv.Itoa(after)}}), nil)
		if err != nil {
			return err
		}
		if r.StatusCode == http.StatusNotFound { // it is over: complete, or begun anew
			if f.unconfirmedBytes() == 0 && s.checkCompleted(ctx, d, f) == nil {
				f.multipart.listed = true
				return nil
			}
			f.multipart = multipartUpload{}
			return s.prepareFile(ctx, d, f)
		}
		if r.StatusCode != http.StatusOK {
			return refusalFromXML(r)
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
		if err := xml.Unmarshal(r.body, &page); err != nil {
			return newRefusal(transfer.Final, fault.Protocol, "", "the server lists no parts: %w", err)
		}
		for _, p := range page.Parts {
			there[p.Number] = part{p.ETag, unit.Bytes(p.Size)}
		}
		if !page.More || page.Next <= after || len(there) > maxParts {
			break
		}
		after = page.Next
	}
	for n, p := range f.multipart.confirmed {
		if trimQuotes(there[n].ETag) != trimQuotes(p.ETag) || there[n].Size != p.Size {
			delete(f.multipart.confirmed, n)
		}
	}
	f.multipart.listed = true
	return nil
}

func (s *s3Protocol) remainingItems(f *file) (list []board.Item) {
	if f.multipart.uploadID == "" {
		return []board.Item{{Object: f.index, To: f.size, NoCopies: s.target.KeepExisting}} // or a copy meets what the other one made
	}
	for at := unit.Bytes(0); at < f.size; at += f.multipart.partSize {
		if _, ok := f.multipart.confirmed[f.multipart.partNumber(at)]; !ok {
			list = append(list, board.Item{Object: f.index, From: at, To: min(at+f.multipart.partSize, f.size)})
		}
	}
	return list
}

func (s *s3Protocol) sendItem(ctx context.Context, j *job) error {
	digest, err := j.readDigest(sha256.New())
	if err != nil {
		return err
	}
	q := request{method: http.MethodPut, url: j.snapshot.url, header: http.Header{}, length: int64(j.Item.Size()),
		body: j.newBody(nil, nil), job: j, expectContinue: j.expectContinue, sign: s.signWith(digest), readBody: true}
	if j.snapshot.multipart.uploadID == "" {
		q.header.Set("Content-Type", mediaType(j.snapshot.Name))
		if s.target.KeepExisting {
			q.header.Set("If-None-Match", "*")
		}
	} else {
		q.url = withQuery(q.url, url.Values{"partNumber": {strconv.Itoa(j.snapshot.multipart.partNumber(j.Item.From))}, "uploadId": {j.snapshot.multipart.uploadID}})
	}
	r, err := s.sendRequest(ctx, j.Worker, q)
	if err != nil {
		return err
	}
	j.part = part{r.Header.Get("ETag"), j.Item.Size()}
	switch {
	case r.StatusCode == http.StatusPreconditionFailed && j.snapshot.maybeStored:
		return s.checkSameObject(ctx, j)
	case r.StatusCode != http.StatusOK:
		return refusalFromXML(r)
	case j.part.ETag == "":
		return newRefusal(transfer.Final, fault.Protocol, "does it speak S3?", "the server took something, and gives it no ETag")
	}
	return nil
}

// checkSameObject tells whether the object that is there is the one that was sent without an answer.
func (s *s3Protocol) checkSameObject(ctx context.Context, j *job) error {
	r, err := s.callAPI(ctx, j.Worker, http.MethodHead, j.snapshot.url, nil)
	if err != nil {
		return err
	}
	if r.StatusCode != http.StatusOK {
		return refusalFromXML(r)
	}
	digest, err := j.readDigest(md5.New())
	if err == nil && (r.ContentLength != int64(j.snapshot.size) || trimQuotes(r.Header.Get("ETag")) != hex.EncodeToString(digest)) {
		err = existsError(j.snapshot.url)
	}
	return err
}

// readDigest reads what a job will send.
func (j *job) readDigest(sum hash.Hash) ([]byte, error) {
	s, err := j.snapshot.openSource()
	if err != nil {
		return nil, err
	}
	defer s.file.Close()
	if _, err := io.Copy(sum, io.NewSectionReader(s.file, int64(j.Item.From), int64(j.Item.Size()))); err != nil {
		return nil, transfer.NewLocalError(err)
	}
	j.Touch()
	return sum.Sum(nil), nil
}

// confirmFile has the server make the object of its parts, and asks what it has then.
func (s *s3Protocol) confirmFile(ctx context.Context, d *transfer.Worker, f *file) error {
	if f.multipart.uploadID != "" && f.multipart.etag == "" {
		if err := s.completeUpload(ctx, d, f); err != nil {
			return err
		}
	}
	r, err := s.callAPI(ctx, d, http.MethodHead, f.url, nil)
	switch {
	case err != nil:
		return err
	case r.StatusCode == http.StatusForbidden: // to write only
		f.proof = ByDigest
		return nil
	case r.StatusCode == http.StatusNotFound:
		return newRefusal(transfer.Restart, fault.Integrity, "", "the server took the object, and does not have it")
	case r.StatusCode != http.StatusOK:
		return refusalFromXML(r)
	case r.ContentLength != int64(f.size):
		return newRefusal(transfer.Restart, fault.Integrity, "does somebody else write there?", "the server has %d bytes of it instead of %d", r.ContentLength, int64(f.size))
	case f.multipart.etag != "" && trimQuotes(r.Header.Get("ETag")) != f.multipart.etag:
		return newRefusal(transfer.Restart, fault.Integrity, "does somebody else write there?", "the server has another object than was sent: ETag %q instead of %q",
			text.Printable(r.Header.Get("ETag")), text.Printable(f.multipart.etag))
	}
	f.proof = ByDigest
	return nil
}

type completedPart struct {
	Number int    `xml:"PartNumber"`
	ETag   string `xml:"ETag"`
}

func (s *s3Protocol) completeUpload(ctx context.Context, d *transfer.Worker, f *file) error {
	var list struct {
		XMLName xml.Name        `xml:"CompleteMultipartUpload"`
		Parts   []completedPart `xml:"Part"`
	}
	for n, p := range f.multipart.confirmed {
		list.Parts = append(list.Parts, completedPart{n, p.ETag})
	}
	slices.SortFunc(list.Parts, func(a, b completedPart) int { return cmp.Compare(a.Number, b.Number) })
	body, err := xml.Marshal(list)
	if err != nil {
		return err
	}
	r, err := s.callAPI(ctx, d, http.MethodPost, withQuery(f.url, url.Values{"uploadId": {f.multipart.uploadID}}), body)
	if err != nil {
		return err
	}
	var done struct { // an error may come with 200, since it takes long
		XMLName xml.Name
		ETag    string `xml:"ETag"`
		errorXML
	}
	bad := xml.Unmarshal(r.body, &done)
	switch {
	case r.StatusCode == http.StatusOK && bad == nil && done.XMLName.Local == "CompleteMultipartUploadResult" && done.ETag != "":
		f.multipart.etag = trimQuotes(done.ETag)
		return nil
	case r.StatusCode == http.StatusPreconditionFailed && s.checkCompleted(ctx, d, f) != nil:
		return existsError(f.url)
	case r.StatusCode == http.StatusPreconditionFailed:
		return nil // it was this one
	case done.Code == "NoSuchUpload": // perhaps an answer was lost: then the object is there
		f.multipart.etag = ""
		return s.checkCompleted(ctx, d, f)
	case r.StatusCode == http.StatusOK && done.Code == "InternalError":
		return newRefusal(transfer.Retry, fault.Protocol, "", "the server cannot complete the object: %s", text.Printable(done.Message))
	case done.Code == "ConditionalRequestConflict": // S3 wants it begun anew
		return newRefusal(transfer.Restart, fault.Exists, "does somebody else write there?", "the object is written by another request too")
	case done.Code == "InvalidPart" || done.Code == "InvalidPartOrder":
		return newRefusal(transfer.Restart, fault.Integrity, "", "the server has lost parts: %s", text.Printable(done.Message))
	case r.StatusCode == http.StatusOK:
		return newRefusal(transfer.Retry, fault.Protocol, "", "the server does not say that the object is complete: %s", text.Printable(cmp.Or(done.Message, "no answer that can be read")))
	}
	return refusalFromXML(r)
}

// checkCompleted tells whether an object whose upload is over is there: its ETag is made of its
// parts' by all servers that have digests for ETags.
func (s *s3Protocol) checkCompleted(ctx context.Context, d *transfer.Worker, f *file) error {
	r, err := s.callAPI(ctx, d, http.MethodHead, f.url, nil)
	if err != nil {
		return err
	}
	etag := trimQuotes(r.Header.Get("ETag"))
	if r.StatusCode == http.StatusOK && r.ContentLength == int64(f.size) && etag == multipartETag(f.multipart.confirmed) {
		f.multipart.etag = etag
		return nil
	}
	return newRefusal(transfer.Restart, fault.Integrity, "", "the server has forgotten the parts")
}

func (s *s3Protocol) abandonFile(ctx context.Context, d *transfer.Worker, f *file) {
	if f.multipart.uploadID == "" || f.multipart.etag != "" {
		return
	}
	if _, err := s.callAPI(ctx, d, http.MethodDelete, withQuery(f.url, url.Values{"uploadId": {f.multipart.uploadID}}), nil); err != nil {
		s.log.Warn("parts of an object may be left at the server", "url", f.url, "err", fmt.Errorf("%w", err))
	}
}
