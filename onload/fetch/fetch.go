// Package fetch downloads objects over several devices at once, each with a line of its
// own. It stands between package onload, which decides who fetches what, and a
// http.RoundTripper for each device: this one's own interfaces, and helpers (package
// onload/relay).
//
//	fetch.go    what is wanted, and what came of it
//	engine.go   the task of package transfer: what is due, and what came of it
//	events.go   answers, ends of jobs, and what follows
//	object.go   one object: what it is known to be, and what is to be done with an answer
//	job.go      one request
//	answer.go   what an answer says, and whether it may be believed
//	second.go   what another device is told of what a helper alone has brought
//	secrets.go  headers, cookies and passwords, and who gets them
//	digest.go   Content-Digest and Repr-Digest
//	part.go     the file that is not whole yet, and its journal
//
// Where a server has ranges and names each version of an object, the devices fetch
// parts of it, and a download that was interrupted goes on; else one device fetches the
// whole. Parts are of one version or the download begins anew; what a server says of
// size, range, version and digest holds, or there is an error: never a wrong file.
package fetch

import (
	"context"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/onload/board"
	"mpbond/onload/transfer"
)

// What all that moves items over devices has.
type (
	Device      = transfer.Device
	DeviceUsage = transfer.DeviceUsage
	Progress    = transfer.Progress
)

// Object is something to be fetched.
type Object struct {
	URL  string
	File string // where it goes, when it is whole and right
	// KeepExisting tells that a file that is there must not be replaced.
	KeepExisting bool
	SHA256       []byte // what it must have, or nil
}

// Config is what Get needs.
type Config struct {
	Devices []Device // at least one, this device's own line first
	// NewDevices, if not nil, brings devices that are found later, and is closed when no more
	// will be: until then nothing is given up because no device can have it.
	NewDevices <-chan Device
	Objects    []Object
	Secrets    *Secrets // nil: none
	// Scheduler is one that no other Get uses; nil is the default.
	Scheduler board.Scheduler
	UserAgent string
	Mode      fs.FileMode // of the files
	// OnProgress, if not nil, is called now and then, by one goroutine.
	OnProgress func(Progress)
	// OnVerified, if not nil, is called of each object that is whole and right, just before it
	// gets its name, by several goroutines.
	OnVerified func(Fetched)
	Log        *slog.Logger

	times times // for tests
}

// times are how long things may take.
type times struct {
	transfer.Times
	saveInterval time.Duration // between entries of the journal
}

var defaultTimes = times{saveInterval: 2 * time.Second, Times: transfer.Times{
	StallTimeout: 15 * time.Second, ResponseTimeout: 30 * time.Second, FirstBackoff: 500 * time.Millisecond, IdleTimeout: time.Minute, TickInterval: 100 * time.Millisecond}}

// Fetched is an object that is there.
type Fetched struct {
	URL     string     `json:"url"`
	File    string     `json:"file"`
	Bytes   unit.Bytes `json:"bytes"`
	Resumed unit.Bytes `json:"resumed"` // of these, there from an earlier try
	SHA256  string     `json:"sha256"`
	// Unchecked is the device over which alone it came, and which nobody could be asked
	// about; "" is that all is well.
	Unchecked string `json:"unchecked,omitempty"`
}

// Failed is an object that is not there.
type Failed struct {
	URL   string     `json:"url"`
	File  string     `json:"file"`
	Error string     `json:"error"`
	Kind  fault.Kind `json:"kind"`
}

// Result is what came of it.
type Result struct {
	Objects  []Fetched
	Failed   []Failed
	Devices  []DeviceUsage
	Duration time.Duration
}

// Get downloads. What is not finished stays beside its file, if it can be gone on with,
// and the next Get does. Errors are faults as far as somebody can do something about
// them; with several objects, the others are fetched all the same.
func Get(ctx context.Context, cfg Config) (Result, error) {
	if cfg.times == (times{}) {
		cfg.times = defaultTimes
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Mode == 0 {
		cfg.Mode = 0o644
	}
	for _, o := range cfg.Objects {
		u, err := url.Parse(o.URL)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return Result{}, fault.New(fault.Usage, fmt.Errorf("%q is no web address", o.URL), "write the URL like https://example.org/file")
		}
	}
	e, err := newTask(cfg)
	if err != nil {
		return Result{}, err
	}
	return e.run(ctx)
}
