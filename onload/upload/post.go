// SPDX-License-Identifier: Apache-2.0

package upload

import (
	"bytes"
	"context"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"path"
	"time"

	"mpbond/onload/board"
	"mpbond/onload/transfer"
)

// postProtocol uploads files as forms (RFC 7578), as browsers do. A response of 200, 201, 202 or
// 204 confirms a file; there is no other confirmation. A file that is sent again after a lost
// response has the same Idempotency-Key, by which servers that support it keep one copy.
type postProtocol struct{ *requester }

func (postProtocol) prepareFile(context.Context, *transfer.Worker, *file) error { return nil }
func (postProtocol) confirmFile(context.Context, *transfer.Worker, *file) error { return nil }
func (postProtocol) abortUpload(context.Context, *transfer.Worker, *file)       {}
func (postProtocol) remainingItems(f *file) []board.Item                        { return f.wholeFileItem() }

// wholeFileItem returns the file as one item.
func (f *file) wholeFileItem() []board.Item {
	return []board.Item{{Object: f.index, To: f.size, NoCopies: true}}
}

// sendJobItem implements protocol.
func (p postProtocol) sendJobItem(ctx context.Context, j *job) error {
	before, after, kind, err := p.buildUploadForm(j.snapshot)
	if err != nil {
		return err
	}
	r, err := p.sendUploadRequest(ctx, j.Worker, request{
		method: http.MethodPost, url: p.target.URL,
		header: http.Header{"Content-Type": {kind}, "Idempotency-Key": {`"` + j.snapshot.idempotencyKey + `"`}},
		length: int64(len(before)) + int64(j.snapshot.size) + int64(len(after)), body: j.newBodyOpener(before, after), job: j,
		expectContinue: j.expectContinue,
	})
	if err != nil {
		return err
	}
	if !isAccepted(r.StatusCode) {
		return refusalOfUpload(r.Response, time.Now())
	}
	j.proof = ByResponse
	return nil
}

// buildUploadForm returns the parts of the form before and after the file, and the media type.
func (p postProtocol) buildUploadForm(f *file) (before, after []byte, kind string, err error) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, field := range p.target.Fields {
		if err := w.WriteField(field.Name, field.Value); err != nil {
			return nil, nil, "", err
		}
	}
	h := textproto.MIMEHeader{"Content-Disposition": {multipart.FileContentDisposition(p.target.Field,
		path.Base(f.Name))}, "Content-Type": {mediaTypeByName(f.Name)}}
	if _, err := w.CreatePart(h); err != nil {
		return nil, nil, "", err
	}
	n := b.Len()
	if err := w.Close(); err != nil {
		return nil, nil, "", err
	}
	return b.Bytes()[:n:n], b.Bytes()[n:], w.FormDataContentType(), nil
}

// mediaTypeByName returns the media type of a file name.
func mediaTypeByName(name string) string {
	if t := mime.TypeByExtension(path.Ext(name)); t != "" {
		return t
	}
	return "application/octet-stream"
}
