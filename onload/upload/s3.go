// SPDX-License-Identifier: Apache-2.0

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

// Limits of S3 ("Multipart upload limits" in its documentation).
const (
	minPartSize = 5 << 20 // except for the last part
	maxParts    = 10000
)

// amzDigest is the header field with the digest of the body.
const amzDigest = "X-Amz-Content-Sha256"

// part is a confirmed part of an object.
type part struct {
	ETag string     `json:"etag"`
	Size unit.Bytes `json:"size"`
}

// multipartUpload is the state of an object that is uploaded in parts.
type multipartUpload struct {
	uploadID  string // "": one request, no parts
	partSize  unit.Bytes
	confirmed map[int]part
	listed    bool   // the server was asked for its parts
	etag      string // of the completed object
}

// partNumber returns the number of the part that begins at a byte.
func (p multipartUpload) partNumber(at unit.Bytes) int { return int(at/p.partSize) + 1 }

// trimQuotes returns an ETag without quotes, which some servers omit.
func trimQuotes(etag string) string { return strings.Trim(etag, `"`) }

// unconfirmedBytes returns how many bytes of the file are not confirmed.
func (f *file) unconfirmedBytes() unit.Bytes {
	n := f.size
	for _, p := range f.multipart.confirmed {
		n -= p.Size
	}
	return n
}

// isCompleting reports whether the next step is to complete a multipart upload.
func (f *file) isCompleting() bool { return f.state == confirming && f.multipart.uploadID != "" }

// s3Protocol uploads objects by the S3 protocol with Signature Version 4, so that the server checks
// all digests. Large objects are sent in parts; each part is an item.
type s3Protocol struct {
	*requester
	signer      func(r *http.Request, digest string) error
	minPartSize unit.Bytes
	log         *slog.Logger
}

// newS3Protocol returns the protocol for the target of cfg.
func newS3Protocol(a *requester, cfg Config) *s3Protocol {
	return &s3Protocol{a, newS3Signer(a.target), cfg.times.minPartSize, cfg.Log}
}

// newDigestSigner returns a function that signs a request. digest is that of the body.
func (s *s3Protocol) newDigestSigner(digest []byte) func(*http.Request) error {
	return func(r *http.Request) error {
		sum := hex.EncodeToString(digest)
		r.Header.Set(amzDigest, sum)
		return s.signer(r, sum)
	}
}

// sendS3Request sends a small request.
func (s *s3Protocol) sendS3Request(
	ctx context.Context,
	d *transfer.Worker,
	method, where string,
	body []byte,
) (*response, error) {
	digest := sha256.Sum256(body)
	q := request{method: method, url: where, sign: s.newDigestSigner(digest[:]),
		readBody: method != http.MethodHead, header: http.Header{}}
	if body != nil {
		q.header.Set("Content-Type", "application/xml")
		if s.target.KeepExisting {
			q.header.Set("If-None-Match", "*")
		}
		q.length, q.body = int64(len(body)),
			func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	}
	return s.sendUploadRequest(ctx, d, q)
}

// addQueryToURL adds a query to a URL.
func addQueryToURL(where string, query url.Values) string { return where + "?" + query.Encode() }

// prepareFile starts a multipart upload, or lists the parts that the server has.
func (s *s3Protocol) prepareFile(ctx context.Context, d *transfer.Worker, f *file) error {
	empty := sha256.Sum256(nil)
	if err := s.checkAbsent(ctx, d, f, s.newDigestSigner(empty[:])); err != nil {
		return err
	}
	if f.multipart.uploadID != "" {
		return s.listUploadedParts(ctx, d, f)
	}
	if f.size <= 2*s.minPartSize { // parts cost two additional requests
		return nil
	}
	r, err := s.sendS3Request(ctx, d, http.MethodPost, addQueryToURL(f.url, url.Values{"uploads": {""}}), nil)
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
		return newUploadRefusal(transfer.Final, fault.Protocol, "check that the server supports S3",
			"the server started no multipart upload: %.100q", text.Printable(string(r.body)))
	}
	f.multipart = multipartUpload{uploadID: begun.ID,
		partSize: max(s.minPartSize, (f.size+maxParts-1)/maxParts), listed: true}
	return nil
}

// listUploadedParts asks the server which of the known parts it has. The others are sent again.
func (s *s3Protocol) listUploadedParts(ctx context.Context, d *transfer.Worker, f *file) error {
	if f.multipart.listed {
		return nil
	}
	listed := map[int]part{}
	for after := 0; ; {
		r, err := s.sendS3Request(ctx, d, http.MethodGet, addQueryToURL(f.url, url.Values{"uploadId": {f.multipart.uploadID},
			"part-number-marker": {strconv.Itoa(after)}}), nil)
		if err != nil {
			return err
		}
		if r.StatusCode == http.StatusNotFound { // completed or aborted
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
			return newUploadRefusal(transfer.Final, fault.Protocol, "", "the server sent an invalid list of parts: %w", err)
		}
		for _, p := range page.Parts {
			listed[p.Number] = part{p.ETag, unit.Bytes(p.Size)}
		}
		if !page.More || page.Next <= after || len(listed) > maxParts {
			break
		}
		after = page.Next
	}
	for n, p := range f.multipart.confirmed {
		if trimQuotes(listed[n].ETag) != trimQuotes(p.ETag) || listed[n].Size != p.Size {
			delete(f.multipart.confirmed, n)
		}
	}
	f.multipart.listed = true
	return nil
}

// remainingItems implements protocol.
func (s *s3Protocol) remainingItems(f *file) (list []board.Item) {
	if f.multipart.uploadID == "" {
		// with If-None-Match a copy would find the object of the other one
		return []board.Item{{Object: f.index, To: f.size, NoCopies: s.target.KeepExisting}}
	}
	for at := unit.Bytes(0); at < f.size; at += f.multipart.partSize {
		if _, ok := f.multipart.confirmed[f.multipart.partNumber(at)]; !ok {
			list = append(list, board.Item{Object: f.index, From: at, To: min(at+f.multipart.partSize, f.size)})
		}
	}
	return list
}

// sendJobItem implements protocol.
func (s *s3Protocol) sendJobItem(ctx context.Context, j *job) error {
	digest, err := j.readDigest(sha256.New())
	if err != nil {
		return err
	}
	q := request{method: http.MethodPut, url: j.snapshot.url, header: http.Header{}, length: int64(j.Item.Size()),
		body: j.newBodyOpener(nil, nil), job: j, expectContinue: j.expectContinue, sign: s.newDigestSigner(digest),
		readBody: true}
	if j.snapshot.multipart.uploadID == "" {
		q.header.Set("Content-Type", mediaTypeByName(j.snapshot.Name))
		if s.target.KeepExisting {
			q.header.Set("If-None-Match", "*")
		}
	} else {
		q.url = addQueryToURL(q.url, url.Values{"partNumber": {strconv.Itoa(j.snapshot.multipart.partNumber(j.Item.From))},
			"uploadId": {j.snapshot.multipart.uploadID}})
	}
	r, err := s.sendUploadRequest(ctx, j.Worker, q)
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
		return newUploadRefusal(transfer.Final, fault.Protocol, "check that the server supports S3",
			"the server accepted a part or object without an ETag")
	}
	return nil
}

// checkSameObject returns nil if the existing object is the one that j sent before a response was
// lost.
func (s *s3Protocol) checkSameObject(ctx context.Context, j *job) error {
	r, err := s.sendS3Request(ctx, j.Worker, http.MethodHead, j.snapshot.url, nil)
	if err != nil {
		return err
	}
	if r.StatusCode != http.StatusOK {
		return refusalFromXML(r)
	}
	digest, err := j.readDigest(md5.New())
	if err == nil && (r.ContentLength != int64(j.snapshot.size) ||
		trimQuotes(r.Header.Get("ETag")) != hex.EncodeToString(digest)) {
		err = existsError(j.snapshot.url)
	}
	return err
}

// readDigest returns the digest of the bytes that a job will send.
func (j *job) readDigest(sum hash.Hash) ([]byte, error) {
	s, err := j.snapshot.openSourceFile()
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

// confirmFile completes a multipart upload and compares size and ETag of the object.
func (s *s3Protocol) confirmFile(ctx context.Context, d *transfer.Worker, f *file) error {
	if f.multipart.uploadID != "" && f.multipart.etag == "" {
		if err := s.completeUpload(ctx, d, f); err != nil {
			return err
		}
	}
	r, err := s.sendS3Request(ctx, d, http.MethodHead, f.url, nil)
	switch {
	case err != nil:
		return err
	case r.StatusCode == http.StatusForbidden: // the credentials allow writing only
		f.proof = ByDigest
		return nil
	case r.StatusCode == http.StatusNotFound:
		return newUploadRefusal(transfer.Restart, fault.Integrity, "", "the server accepted the object but does not have it")
	case r.StatusCode != http.StatusOK:
		return refusalFromXML(r)
	case r.ContentLength != int64(f.size):
		return newUploadRefusal(transfer.Restart, fault.Integrity, "check that no other client writes there",
			"the server has %d bytes of it instead of %d", r.ContentLength, int64(f.size))
	case f.multipart.etag != "" && trimQuotes(r.Header.Get("ETag")) != f.multipart.etag:
		return newUploadRefusal(transfer.Restart, fault.Integrity, "check that no other client writes there",
			"the server has another object: ETag %q instead of %q",
			text.Printable(r.Header.Get("ETag")), text.Printable(f.multipart.etag))
	}
	f.proof = ByDigest
	return nil
}

// completedPart is a part in a request to complete an upload.
type completedPart struct {
	Number int    `xml:"PartNumber"`
	ETag   string `xml:"ETag"`
}

// completeUpload asks the server to complete a multipart upload.
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
	r, err := s.sendS3Request(ctx, d, http.MethodPost, addQueryToURL(f.url,
		url.Values{"uploadId": {f.multipart.uploadID}}), body)
	if err != nil {
		return err
	}
	var done struct { // an error may have status 200, since completing takes long
		XMLName xml.Name
		ETag    string `xml:"ETag"`
		errorXML
	}
	bad := xml.Unmarshal(r.body, &done)
	switch {
	case r.StatusCode == http.StatusOK && bad == nil &&
		done.XMLName.Local == "CompleteMultipartUploadResult" && done.ETag != "":
		f.multipart.etag = trimQuotes(done.ETag)
		return nil
	case r.StatusCode == http.StatusPreconditionFailed && s.checkCompleted(ctx, d, f) != nil:
		return existsError(f.url)
	case r.StatusCode == http.StatusPreconditionFailed:
		return nil // it was completed before
	case done.Code == "NoSuchUpload": // a response may have been lost: then the object exists
		f.multipart.etag = ""
		return s.checkCompleted(ctx, d, f)
	case r.StatusCode == http.StatusOK && done.Code == "InternalError":
		return newUploadRefusal(transfer.Retry, fault.Protocol, "", "the server could not complete the object: %s",
			text.Printable(done.Message))
	case done.Code == "ConditionalRequestConflict": // S3 demands a new upload
		return newUploadRefusal(transfer.Restart, fault.Exists, "check that no other client writes there",
			"another request writes the same object")
	case done.Code == "InvalidPart" || done.Code == "InvalidPartOrder":
		return newUploadRefusal(transfer.Restart, fault.Integrity, "", "the server lost parts: %s",
			text.Printable(done.Message))
	case r.StatusCode == http.StatusOK:
		return newUploadRefusal(transfer.Retry, fault.Protocol, "",
			"the server did not confirm that the object is complete: %s",
			text.Printable(cmp.Or(done.Message, "invalid response")))
	}
	return refusalFromXML(r)
}

// checkCompleted returns nil if a finished multipart upload has produced the object. Servers that
// use digests as ETags derive the ETag of the object from those of its parts.
func (s *s3Protocol) checkCompleted(ctx context.Context, d *transfer.Worker, f *file) error {
	r, err := s.sendS3Request(ctx, d, http.MethodHead, f.url, nil)
	if err != nil {
		return err
	}
	etag := trimQuotes(r.Header.Get("ETag"))
	if r.StatusCode == http.StatusOK && r.ContentLength == int64(f.size) &&
		etag == multipartETag(f.multipart.confirmed) {
		f.multipart.etag = etag
		return nil
	}
	return newUploadRefusal(transfer.Restart, fault.Integrity, "", "the server no longer has the parts")
}

// abortUpload implements protocol.
func (s *s3Protocol) abortUpload(ctx context.Context, d *transfer.Worker, f *file) {
	if f.multipart.uploadID == "" || f.multipart.etag != "" {
		return
	}
	if _, err := s.sendS3Request(ctx, d, http.MethodDelete,
		addQueryToURL(f.url, url.Values{"uploadId": {f.multipart.uploadID}}), nil); err != nil {
		s.log.Warn("parts of an object may remain on the server", "url", f.url, "err", fmt.Errorf("%w", err))
	}
}
