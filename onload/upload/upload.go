// Package upload sends files over several devices at once, each with a line of its
// own. It stands between package onload, which decides who sends what, and a
// http.RoundTripper for each device: this one's own interfaces, and helpers (package
// onload/relay).
//
//	upload.go   what is to be sent where, and what came of it
//	engine.go   the task of package transfer: what is due, and what came of it
//	events.go   ends of jobs and of steps, and what follows
//	file.go     one file: what it was when it was given, and how far it is
//	body.go     a file's bytes on their way; who changes it is noticed
//	answer.go   what an answer means
//	request.go  one request, and where redirects lead it
//	journal.go  what is confirmed already, and what another run can go on with
//	post.go     forms, as browsers send them
//	put.go      HTTP PUT, and WebDAV's collections
//	s3.go       S3: objects in parts, of which each device sends some
//	xml.go      what S3 says
//
// A file is done when the server has confirmed it, as far as its protocol can: the
// result tells how. A file is under way once only; what was broken off is sent again,
// by another device if there is one. Only of a form can the server then have two,
// where an answer is lost: the result tells that too.
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

// Device is a way to the Internet.
type Device = transfer.Device

// File is something to be sent.
type File struct {
	Path string // here
	Name string // there: with slashes, and below the target
}

// Methods.
const (
	Post = "post" // a form: one multipart/form-data for each file
	Put  = "put"  // HTTP PUT, as WebDAV has it
	S3   = "s3"   // S3, signed; large files in parts
)

// Methods lists them.
var Methods = []string{Post, Put, S3}

// Field is one of a form besides the file.
type Field struct{ Name, Value string }

// Target is where files go.
type Target struct {
	Method string
	// URL is that of a form; or of a place, which ends with a slash, to which names are
	// added; or, for one file, its own.
	URL          string
	Header       http.Header // of each request to the URL's host
	KeepExisting bool        // Put, S3: what is there already must not be replaced

	Field  string  // Post: of the file
	Fields []Field // Post: others, before it

	Region, Key, Secret, Session string // S3
}

// Config is what Send needs.
type Config struct {
	Devices []Device // at least one, this device's own line first
	// NewDevices, if not nil, brings devices that are found later, and is closed when no more
	// will be.
	NewDevices <-chan Device
	Target     Target
	Files      []File
	// MoreFiles, if not nil, is called now and then, and returns what else is to be sent:
	// Send ends when all is there and nothing comes. Names must differ.
	MoreFiles func() []File
	// Scheduler is one of its own; nil is the default.
	Scheduler board.Scheduler
	// Journal keeps what is confirmed, or is nil: then nothing is left at the server of
	// what was not finished.
	Journal   *store.Journal
	Known     *KnownUploads // what it had
	UserAgent string
	// OnProgress, if not nil, is called now and then; and Confirmed of each file when it is
	// there, but for those of former runs. Of all three one runs at a time.
	OnProgress  func(Progress)
	OnConfirmed func(Sent)
	Log         *slog.Logger

	times times // for tests
}

// times are how long things may take.
type times struct {
	transfer.Times
	stepTimeout     time.Duration // without an answer to what brings nothing, before another device asks; twice that the next time
	completeTimeout time.Duration // of S3, to make an object of its parts: "several minutes"
	minPartSize     unit.Bytes    // the least that S3 takes, but for the last
}

var defaultTimes = times{stepTimeout: 5 * time.Second, completeTimeout: 10 * time.Minute, minPartSize: minPartSize, Times: transfer.Times{
	StallTimeout: 30 * time.Second, ResponseTimeout: time.Minute, FirstBackoff: 500 * time.Millisecond, IdleTimeout: 2 * time.Minute, TickInterval: 100 * time.Millisecond}}

// DeviceUsage is what a device did: the bytes of files that it sent, and of these what was not
// confirmed.
type DeviceUsage = transfer.DeviceUsage

// Progress is how far it is. Bytes of what is under way are those that have left.
type Progress = transfer.Progress

// Proof is how the server confirmed a file.
type Proof string

// Proofs.
const (
	ByResponse Proof = "answer" // it said so, and cannot be asked
	BySize     Proof = "size"   // and told its size when it was asked
	ByDigest   Proof = "sha256" // and compared each byte's digest, as S3 does
)

// Sent is a file that is there.
type Sent struct {
	File  string     `json:"file"`
	URL   string     `json:"url"`
	Bytes unit.Bytes `json:"bytes"`
	Proof Proof      `json:"proof"`
	// Earlier tells that a former run sent it, whose journal says so.
	Earlier bool `json:"earlier,omitempty"`
	// MaybeDuplicate tells that the server may have it twice: an answer was lost.
	MaybeDuplicate bool `json:"maybe_duplicate,omitempty"`
}

// Failed is a file that is not.
type Failed struct {
	File  string `json:"file"`
	Error string `json:"error"`
	// MaybeStored tells that the server may have it all the same.
	MaybeStored bool `json:"maybe_stored,omitempty"`
	err         error
}

// Kind is what sort of error it is.
func (f Failed) Kind() fault.Kind { return fault.KindOf(f.err) }

// Result is what came of it.
type Result struct {
	Files    []Sent
	Failed   []Failed
	Devices  []DeviceUsage
	Duration time.Duration
}

// Send sends files. Errors are faults as far as somebody can do something about them;
// with several files, the others are sent all the same.
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
	e, err := newTask(cfg)
	if err != nil {
		return Result{}, err
	}
	return e.run(ctx)
}

// Check refuses what cannot be meant, whatever is sent there.
func (t Target) Check() error {
	u, err := url.Parse(t.URL)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return fault.New(fault.Usage, errors.New("the target is no web address"), "write the URL like https://example.org/photos/")
	case t.Method != Post && (u.RawQuery != "" || u.Fragment != ""):
		return fault.New(fault.Usage, errors.New("a place that files are put to has no query"), "")
	case t.Method == S3 && !hasS3:
		return fault.New(fault.Unsupported, errors.New("S3 is left out of the build for routers: the one without the build tag router has it"), "use another device, or --method put to a WebDAV server")
	case t.Method == S3 && (t.Key == "" || t.Secret == "" || t.Region == ""):
		return fault.New(fault.Usage, errors.New("S3 needs a key, its secret and a region"), "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and AWS_REGION if it is not us-east-1")
	}
	return nil
}

// Exposed returns what requests show to whoever carries them, besides what is sent; "" if
// nothing. A signature of S3 is none of it: it is good for its own request alone.
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
	return strings.Join(list, ", ")
}

// ID is another one for other targets: what is confirmed at one, of one account or with
// some fields of a form, is not at the other. It tells no secrets.
func (t Target) ID() string {
	if t.Method != Post {
		t.Field, t.Fields = "", nil
	}
	text, err := json.Marshal([]any{t.Method, t.URL, t.Header, t.Field, t.Fields})
	if err != nil {
		panic(err) // of strings
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}

// IsCollection tells whether files go below the target, each with its name.
func (t Target) IsCollection() bool {
	u, err := url.Parse(t.URL)
	return err == nil && t.Method != Post && (u.Path == "" || strings.HasSuffix(u.Path, "/"))
}

// checkFiles refuses what cannot be meant.
func (c *Config) checkFiles() error {
	if err := c.Target.Check(); err != nil || c.Target.Method == Post {
		return err
	}
	if !c.Target.IsCollection() && len(c.Files) > 1 {
		return fault.New(fault.Usage, fmt.Errorf("%d files cannot all become %s", len(c.Files), redactURL(c.Target.URL)), "a place for several files ends with a slash")
	}
	seen := map[string]string{}
	for _, f := range c.Files {
		if other, ok := seen[f.Name]; ok {
			return fault.New(fault.Usage, fmt.Errorf("%s and %s would both become %s", other, f.Path, f.Name), "send them one after the other, or to two places")
		}
		seen[f.Name] = f.Path
	}
	return nil
}
