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

// posting sends forms, as browsers do: RFC 7578. A server that answers 200, 201, 202 or
// 204 has the file; nothing else can be asked of it. What is sent again after an answer
// was lost has the same Idempotency-Key, by which servers that know it keep one copy.
type posting struct{ *asker }

func (posting) first(context.Context, *transfer.Worker, *file) error { return nil }
func (posting) last(context.Context, *transfer.Worker, *file) error  { return nil }
func (posting) abandon(context.Context, *transfer.Worker, *file)     {}
func (posting) items(f *file) []board.Item                           { return f.whole() }

// whole is a file as one item.
func (f *file) whole() []board.Item {
	return []board.Item{{Object: f.index, To: f.size, Once: true}}
}

func (p posting) send(ctx context.Context, j *job) error {
	before, after, kind, err := p.form(j.of)
	if err != nil {
		return err
	}
	r, err := p.ask(ctx, j.Worker, request{
		method: http.MethodPost, url: p.target.URL, header: http.Header{"Content-Type": {kind}, "Idempotency-Key": {`"` + j.of.key + `"`}},
		length: int64(len(before)) + int64(j.of.size) + int64(len(after)), body: j.body(before, after), sent: j, expect: j.expect,
	})
	if err != nil {
		return err
	}
	if !taken(r.StatusCode) {
		return judge(r.Response, time.Now())
	}
	j.proof = ByAnswer
	return nil
}

// form is what comes before and after a file, and the type of it all.
func (p posting) form(f *file) (before, after []byte, kind string, err error) {
	var b bytes.Buffer
	w := multipart.NewWriter(&b)
	for _, field := range p.target.Fields {
		if err := w.WriteField(field.Name, field.Value); err != nil {
			return nil, nil, "", err
		}
	}
	h := textproto.MIMEHeader{"Content-Disposition": {multipart.FileContentDisposition(p.target.Field, path.Base(f.Name))}, "Content-Type": {typeOf(f.Name)}}
	if _, err := w.CreatePart(h); err != nil {
		return nil, nil, "", err
	}
	n := b.Len()
	if err := w.Close(); err != nil {
		return nil, nil, "", err
	}
	return b.Bytes()[:n:n], b.Bytes()[n:], w.FormDataContentType(), nil
}

// typeOf is the media type of a name.
func typeOf(name string) string {
	if t := mime.TypeByExtension(path.Ext(name)); t != "" {
		return t
	}
	return "application/octet-stream"
}
