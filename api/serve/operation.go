// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
)

// jsonOperation is an operation that reads the types of its input and output at run time. The
// library's own Register is compiled for each pair of types, which adds 45 KB to the program each.
//
// An input is a struct whose fields are tagged as parameters, of type string or uint64, or named
// Body. An output is nil, or a struct whose fields are tagged as headers, of type string, or named
// Body: bytes, or a value to send as JSON.
type jsonOperation struct {
	api           huma.API
	op            *huma.Operation
	input         reflect.Type
	params        []param
	body          []int // index of the input's field; nil without one
	schema        *huma.Schema
	outputHeaders []param
	call          func(ctx context.Context, in any) (any, error)
}

// param is a field of an input or output.
type param struct {
	index                []int
	location, name       string
	schema               *huma.Schema
	defaultValue         string // used if the parameter is missing
	isRequired, isNumber bool
}

// registerTyped adds an operation to the API and its description.
func registerTyped[I, O any](a huma.API, op huma.Operation, f func(context.Context, *I) (*O, error)) {
	e := &jsonOperation{
		api:   a,
		op:    &op,
		input: reflect.TypeFor[I](),
		call: func(ctx context.Context, in any) (any, error) {
			out, err := f(ctx, in.(*I))
			if out == nil {
				return nil, err
			}
			return out, err
		},
	}
	e.describeTypes(reflect.TypeFor[O]())
	a.Adapter().Handle(e.op, a.Middlewares().Handler(op.Middlewares.Handler(e.serveAPIRequest)))
}

// describeTypes derives parameters, body and answer from the types, and adds the operation to the
// API's description.
func (e *jsonOperation) describeTypes(output reflect.Type) {
	schemas := e.api.OpenAPI().Components.Schemas
	for _, f := range reflect.VisibleFields(e.input) {
		switch p, ok := parameterOf(f); {
		case ok:
			p.schema = huma.SchemaFromField(schemas, f, "")
			e.params = append(e.params, p)
			documented := &huma.Param{
				Name:        p.name,
				In:          p.location,
				Description: p.schema.Description,
				Required:    p.isRequired,
				Schema:      p.schema,
			}
			if p.location == "query" {
				documented.Explode = new(bool)
			}
			e.op.Parameters = append(e.op.Parameters, documented)
		case f.Name == "Body":
			e.body = f.Index
			e.schema = huma.SchemaFromField(schemas, f, schemaName(e.input, e.op.OperationID+"Request"))
			e.schema.PrecomputeMessages()
			e.op.RequestBody = &huma.RequestBody{
				Required: true,
				Content:  map[string]*huma.MediaType{"application/json": {Schema: e.schema}},
			}
		}
	}
	if e.op.Responses == nil {
		e.op.Responses = map[string]*huma.Response{}
	}
	e.describeOutput(output, schemas)
	problems := schemas.Schema(reflect.TypeFor[problem](), true, "Error")
	e.op.Responses["default"] = &huma.Response{
		Description: "Error",
		Content:     map[string]*huma.MediaType{(*problem)(nil).ContentType(""): {Schema: problems}},
	}
	e.api.OpenAPI().AddOperation(e.op)
}

// describeOutput adds the answer to the description of the operation: its status, its body if the
// type has a field Body, and its headers.
func (e *jsonOperation) describeOutput(output reflect.Type, schemas huma.Registry) {
	body, ok := output.FieldByName("Body")
	status := http.StatusNoContent
	if ok {
		status = http.StatusOK
	}
	e.op.DefaultStatus = cmp.Or(e.op.DefaultStatus, status)
	code := strconv.Itoa(e.op.DefaultStatus)
	response := e.op.Responses[code]
	if response == nil {
		response = &huma.Response{Description: http.StatusText(e.op.DefaultStatus)}
		e.op.Responses[code] = response
	}
	if ok && response.Content == nil {
		response.Content = map[string]*huma.MediaType{
			"application/json": {
				Schema: huma.SchemaFromField(schemas, body, schemaName(output, e.op.OperationID+"Response")),
			},
		}
	}
	for _, f := range reflect.VisibleFields(output) {
		if name := f.Tag.Get("header"); name != "" {
			if response.Headers == nil {
				response.Headers = map[string]*huma.Param{}
			}
			response.Headers[name] = &huma.Header{Schema: huma.SchemaFromField(schemas, f, "")}
			e.outputHeaders = append(e.outputHeaders, param{index: f.Index, name: name})
		}
	}
}

// schemaName returns a name for the schema of an unnamed body type.
func schemaName(t reflect.Type, other string) string {
	if t.Name() != "" {
		return t.Name() + "Body"
	}
	return other
}

// parameterOf returns the parameter that the tags of a field name; ok is false if there is none.
func parameterOf(f reflect.StructField) (p param, ok bool) {
	for _, place := range []string{"path", "query", "header"} {
		if name := f.Tag.Get(place); name != "" && !f.Anonymous {
			return param{
				index:        f.Index,
				location:     place,
				name:         name,
				defaultValue: f.Tag.Get("default"),
				isRequired:   place == "path",
				isNumber:     f.Type.Kind() == reflect.Uint64,
			}, true
		}
	}
	return p, false
}

// serveAPIRequest answers one request.
func (e *jsonOperation) serveAPIRequest(ctx huma.Context) {
	in := reflect.New(e.input)
	status, msg, errs := e.readRequestInput(ctx, in.Elem())
	if status != 0 {
		_ = huma.WriteErr(e.api, ctx, status, msg, errs...) // an error means that the client has gone
		return
	}
	out, err := e.call(ctx.Context(), in.Interface())
	var known huma.StatusError
	switch {
	case errors.As(err, &known):
		e.sendJSON(ctx, known.GetStatus(), (*problem)(nil).ContentType(""), known)
	case err != nil:
		_ = huma.WriteErr(e.api, ctx, http.StatusInternalServerError, "unexpected error", err)
	case out == nil:
		ctx.SetStatus(e.op.DefaultStatus)
	default:
		e.sendOutput(ctx, reflect.ValueOf(out).Elem())
	}
}

// readRequestInput fills an input. It returns the status and the errors of an unusable request;
// status 0 if it is usable.
func (e *jsonOperation) readRequestInput(ctx huma.Context, in reflect.Value) (status int, msg string, errs []error) {
	found, path := new(huma.ValidateResult), huma.NewPathBuffer(nil, 0)
	u := ctx.URL()
	for key := range u.Query() {
		if !slices.ContainsFunc(e.params, func(p param) bool { return p.location == "query" && p.name == key }) {
			found.Add(buildErrorPath(path, "query", key), "", "unknown query parameter")
		}
	}
	if len(found.Errors) > 0 {
		return http.StatusUnprocessableEntity, "validation failed", found.Errors
	}
	for _, p := range e.params {
		e.readParameter(ctx, p, in.FieldByIndex(p.index), found, path)
	}
	status = http.StatusUnprocessableEntity
	if e.body != nil {
		body, code, msg, errs := readRequestBody(ctx, e.op.MaxBodyBytes, e.op.BodyReadTimeout)
		if code != 0 {
			return code, msg, errs
		}
		status = cmp.Or(e.readJSONBody(ctx, body, in.FieldByIndex(e.body), found, path), status)
	}
	if r, ok := in.Addr().Interface().(huma.Resolver); ok {
		found.Errors = append(found.Errors, r.Resolve(ctx)...)
	}
	if len(found.Errors) > 0 {
		return status, "validation failed", found.Errors
	}
	return 0, "", nil
}

func buildErrorPath(path *huma.PathBuffer, names ...string) *huma.PathBuffer {
	path.Reset()
	for _, n := range names {
		path.Push(n)
	}
	return path
}

// readParameter sets a field to the value of a parameter if that is valid.
func (e *jsonOperation) readParameter(
	ctx huma.Context,
	p param,
	field reflect.Value,
	found *huma.ValidateResult,
	path *huma.PathBuffer,
) {
	buildErrorPath(path, p.location, p.name)
	ask := map[string]func(string) string{"path": ctx.Param, "query": ctx.Query, "header": ctx.Header}[p.location]
	text := cmp.Or(ask(p.name), p.defaultValue)
	if text == "" {
		if p.isRequired {
			found.Add(path, "", "required "+p.location+" parameter is missing")
		}
		return
	}
	var value any = text
	if p.isNumber {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			found.Add(path, text, "invalid integer")
			return
		}
		field.SetUint(n)
		value = n
	} else {
		field.SetString(text)
	}
	huma.Validate(e.api.OpenAPI().Components.Schemas, p.schema, path, huma.ModeWriteToServer, value, found)
}

// readRequestBody reads a request's body, which must not be empty. On failure it returns a status
// and the errors.
func readRequestBody(
	ctx huma.Context,
	limit int64,
	timeout time.Duration,
) (body []byte, status int, msg string, errs []error) {
	_ = ctx.SetReadDeadline(time.Now().Add(timeout)) // has no effect without deadlines
	body, err := io.ReadAll(io.LimitReader(ctx.BodyReader(), limit))
	var slow net.Error
	switch {
	case int64(len(body)) == limit:
		return nil, http.StatusRequestEntityTooLarge, fmt.Sprintf(
			"request body is too large limit=%d bytes",
			limit,
		), nil
	case errors.As(err, &slow) && slow.Timeout():
		return nil, http.StatusRequestTimeout, "request body read timeout", nil
	case err != nil:
		return nil, http.StatusInternalServerError, unreadBodyText, []error{err}
	case len(body) == 0:
		return nil, http.StatusBadRequest, "request body is required", nil
	}
	return body, 0, "", nil
}

// readJSONBody validates a body by its schema and sets a field to it. It returns the status for an
// error, 0 for none.
func (e *jsonOperation) readJSONBody(
	ctx huma.Context,
	body []byte,
	field reflect.Value,
	found *huma.ValidateResult,
	path *huma.PathBuffer,
) (status int) {
	kind := cmp.Or(ctx.Header("Content-Type"), "application/json")
	wrong := func(err error) {
		found.Errors = append(found.Errors, &huma.ErrorDetail{Location: "body", Message: err.Error()})
	}
	var parsed any
	if err := e.api.Unmarshal(kind, body, &parsed); err != nil {
		wrong(err)
		if errors.Is(err, huma.ErrUnknownContentType) {
			return http.StatusUnsupportedMediaType
		}
		return http.StatusBadRequest
	}
	before := len(found.Errors)
	huma.Validate(
		e.api.OpenAPI().Components.Schemas,
		e.schema,
		buildErrorPath(path, "body"),
		huma.ModeWriteToServer,
		parsed,
		found,
	)
	if len(found.Errors) > before {
		return http.StatusUnprocessableEntity
	}
	if err := e.api.Unmarshal(kind, body, field.Addr().Interface()); err != nil {
		wrong(err)
	}
	return 0
}

// sendOutput sends an output.
func (e *jsonOperation) sendOutput(ctx huma.Context, out reflect.Value) {
	for _, h := range e.outputHeaders {
		if v := out.FieldByIndex(h.index).String(); v != "" {
			ctx.SetHeader(h.name, v)
		}
	}
	body := out.FieldByName("Body")
	if !body.IsValid() {
		ctx.SetStatus(e.op.DefaultStatus)
		return
	}
	if raw, ok := body.Interface().([]byte); ok {
		ctx.SetStatus(e.op.DefaultStatus)
		_, _ = ctx.BodyWriter().Write(raw) // an error means that the client has gone
		return
	}
	e.sendJSON(ctx, e.op.DefaultStatus, "application/json", body.Interface())
}

// sendJSON sends a value as JSON.
func (e *jsonOperation) sendJSON(ctx huma.Context, status int, kind string, v any) {
	ctx.SetHeader("Content-Type", kind)
	ctx.SetStatus(status)
	_ = e.api.Marshal(ctx.BodyWriter(), kind, v) // an error means that the client has gone
}
