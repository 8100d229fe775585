// SPDX-License-Identifier: Apache-2.0

// Package upload sends files over several devices at once, each with its own Internet
// connection. Package onload/board decides which device sends what. Each device is an
// http.RoundTripper: an interface of this device, or a helper (package
// onload/relay).
//
//	upload.go   configuration and results
//	task.go     the task of package transfer: schedules steps and items
//	events.go   handles ends of jobs and steps
//	file.go     one file and its state
//	body.go     request bodies; notices changes of the file
//	response.go meaning of responses
//	request.go  requests and redirects
//	journal.go  confirmed files and resumable uploads
//	post.go     forms, as browsers send them
//	put.go      HTTP PUT with the collections of WebDAV
//	s3.go       S3: large objects in parts
//	xml.go      XML errors and ETags of S3
//
// A file is done when the server has confirmed it as far as its protocol can; the
// result says how. A file is under way only once; after a failure it is sent again,
// preferably by another device. Only a form may then be stored twice, if a response
// was lost; the result says so.
package upload

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"mpbond/base/fault"
	"mpbond/base/store"
	"mpbond/base/unit"
	"mpbond/onload/board"
	"mpbond/onload/transfer"
)

// Device is a connection to the Internet.
type Device = transfer.Device

// File is a file to send.
type File struct {
	Path string // local path
	Name string // at the server, below the target, with slashes
}

// Upload methods.
const (
	Post = "post" // one multipart/form-data request per file
	Put  = "put"  // HTTP PUT, as in WebDAV
	S3   = "s3"   // S3, signed; large files in parts
)

// Methods lists the upload methods.
var Methods = []string{Post, Put, S3}

// Field is a further field of a form.
type Field struct{ Name, Value string }

// Target is where files are sent.
type Target struct {
	Method string
	// URL is that of a form; or of a collection, which ends with a slash, to which names are
	// appended; or of a single file.
	URL          string
	Header       http.Header // of each request to the host of the URL
	KeepExisting bool        // Put, S3: existing files must not be replaced

	Field  string  // Post: name of the file field
	Fields []Field // Post: fields before the file

	Region, Key, Secret, Session string // S3
}

// Config configures Send.
type Config struct {
	Devices []Device // at least one; the local device first
	// NewDevices, if not nil, delivers devices that are found later. It is closed when no more will
	// follow.
	NewDevices <-chan Device
	Target     Target
	Files      []File
	// MoreFiles, if not nil, is called now and then and returns further files. Send ends when all
	// files are done and MoreFiles returns none. Names must be unique.
	MoreFiles func() []File
	// Scheduler is not shared with another Send; nil is the default.
	Scheduler board.Scheduler
	// Journal stores what is confirmed. If it is nil, incomplete uploads are removed from the
	// server.
	Journal   *store.Journal
	Known     *KnownUploads // content of Journal
	UserAgent string
	// OnProgress, if not nil, is called now and then. OnConfirmed, if not nil, is called for each
	// file that is confirmed, except by an earlier run. MoreFiles, OnProgress and OnConfirmed do
	// not run concurrently.
	OnProgress  func(Progress)
	OnConfirmed func(Sent)
	Log         *slog.Logger

	times times // for tests
}

// times are the time limits of an upload.
type times struct {
	transfer.Times
	// without a response to a step, before another device tries; doubles each time
	stepTimeout     time.Duration
	completeTimeout time.Duration // to complete a multipart upload; S3 says "several minutes"
	minPartSize     unit.Bytes    // S3: except for the last part
}

// defaultTimes are used unless a test sets others.
var defaultTimes = times{stepTimeout: 5 * time.Second, completeTimeout: 10 * time.Minute,
	minPartSize: minPartSize, Times: transfer.Times{
		StallTimeout: 30 * time.Second, ResponseTimeout: time.Minute, FirstBackoff: 500 * time.Millisecond,
		IdleTimeout: 2 * time.Minute, TickInterval: 100 * time.Millisecond}}

// DeviceUsage counts the bytes that a device has sent, including unconfirmed ones.
type DeviceUsage = transfer.DeviceUsage

// Progress is the state of an upload. Bytes under way count when they have been sent.
type Progress = transfer.Progress

// Proof is how the server confirmed a file.
type Proof string

// Proofs.
const (
	ByResponse Proof = "answer" // by the status of the response only
	BySize     Proof = "size"   // by its size in a later response
	ByDigest   Proof = "sha256" // by comparing the digest of all bytes, as S3 does
)

// Sent is a confirmed file.
type Sent struct {
	File  string     `json:"file"`
	URL   string     `json:"url"`
	Bytes unit.Bytes `json:"bytes"`
	Proof Proof      `json:"proof"`
	// Earlier reports that an earlier run sent it, according to the journal.
	Earlier bool `json:"earlier,omitempty"`
	// MaybeDuplicate reports that the server may have it twice: a response was lost.
	MaybeDuplicate bool `json:"maybe_duplicate,omitempty"`
}

// Failed is a file that could not be sent.
type Failed struct {
	File  string `json:"file"`
	Error string `json:"error"`
	// MaybeStored reports that the server may have it anyway.
	MaybeStored bool `json:"maybe_stored,omitempty"`
	err         error
}

// Kind returns the fault kind of the error.
func (f Failed) Kind() fault.Kind { return fault.KindOf(f.err) }

// Result is the outcome of Send.
type Result struct {
	Files    []Sent
	Failed   []Failed
	Devices  []DeviceUsage
	Duration time.Duration
}

// Send sends the files of cfg. Errors that a user can act on are faults. If a file fails, the
// others are sent all the same.
func Send(ctx context.Context, cfg Config) (Result, error) {
	if cfg.times == (times{}) {
		cfg.times = defaultTimes
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Known == nil {
		cfg.Known = NewKnownUploads()
	}
	if err := cfg.checkFiles(); err != nil {
		return Result{}, err
	}
	t, err := newUploadTask(cfg)
	if err != nil {
		return Result{}, err
	}
	return t.runUploadTask(ctx)
}

// Check returns an error for an invalid target.
func (t Target) Check() error {
	u, err := url.Parse(t.URL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return fault.New(fault.Usage, errors.New("the target is not an HTTP URL"),
			"use a URL like https://example.org/photos/")
	case t.Method != Post && (u.RawQuery != "" || u.Fragment != ""):
		return fault.New(fault.Usage, errors.New("the target URL must not have a query or fragment"),
			"remove it from the URL")
	case t.Method == S3 && !hasS3:
		return fault.New(fault.Unsupported, errors.New("this build for routers has no S3"),
			"use another device, or --method put to a WebDAV server")
	case t.Method == S3 && (t.Key == "" || t.Secret == "" || t.Region == ""):
		return fault.New(fault.Usage, errors.New("S3 needs a key, its secret and a region"),
			"set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and AWS_REGION if it is not us-east-1")
	}
	return nil
}

// Exposed describes the secrets that unencrypted requests show to their carrier; "" if none. S3
// signatures do not count: each is valid for its own request only.
func (t Target) Exposed() string {
	u, err := url.Parse(t.URL)
	if err != nil || u.Scheme == "https" {
		return ""
	}
	var list []string
	if u.User != nil {
		list = append(list, "name and password")
	}
	if len(t.Header) > 0 {
		list = append(list, "headers")
	}
	if t.Method == Post && len(t.Fields) > 0 { // a token or password, as often as not
		list = append(list, "form fields")
	}
	return strings.Join(list, ", ")
}

// ID returns an identifier that differs between targets, accounts and form fields: a file confirmed
// at one is not confirmed at another. It reveals no secrets.
func (t Target) ID() string {
	if t.Method != Post {
		t.Field, t.Fields = "", nil
	}
	text, err := json.Marshal([]any{t.Method, t.URL, t.Header, t.Field, t.Fields})
	if err != nil {
		panic(err) // cannot fail for strings
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// IsCollection reports whether file names are appended to the URL.
func (t Target) IsCollection() bool {
	u, err := url.Parse(t.URL)
	return err == nil && t.Method != Post && (u.Path == "" || strings.HasSuffix(u.Path, "/"))
}

// checkFiles returns an error for an invalid target or conflicting file names.
func (c *Config) checkFiles() error {
	if err := c.Target.Check(); err != nil || c.Target.Method == Post {
		return err
	}
	if !c.Target.IsCollection() && len(c.Files) > 1 {
		return fault.New(fault.Usage, fmt.Errorf("%d files cannot all be stored as %s", len(c.Files),
			redactURLPassword(c.Target.URL)), "the URL of a collection for several files ends with a slash")
	}
	seen := map[string]string{}
	for _, f := range c.Files {
		if other, ok := seen[f.Name]; ok {
			return fault.New(fault.Usage, fmt.Errorf("%s and %s would both be stored as %s", other, f.Path, f.Name),
				"send them one after the other, or to different URLs")
		}
		seen[f.Name] = f.Path
	}
	return nil
}
