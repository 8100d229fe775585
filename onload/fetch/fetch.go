// SPDX-License-Identifier: Apache-2.0

// Package fetch downloads objects over several devices at once, each with its own
// Internet connection. Package onload/board decides which device fetches what. Each
// device is an http.RoundTripper: an interface of this device, or a helper (package
// onload/relay).
//
//	fetch.go    configuration and results
//	task.go     the task of package transfer: schedules items, reports progress
//	events.go   handles responses and ends of jobs
//	object.go   one object: its version, received ranges and verification
//	job.go      one request
//	response.go parses and checks responses
//	second.go   asks a second device about objects that a single helper has brought
//	secrets.go  headers, cookies and passwords, and the hosts that get them
//	digest.go   Content-Digest and Repr-Digest
//	part.go     the incomplete file and its journal
//
// Where a server supports ranges and identifies versions, the devices fetch ranges of
// an object, and an interrupted download can be resumed. Otherwise one device fetches
// the whole object. All ranges are of one version, or the download restarts. The
// result has the promised size, version and digest, or there is an error.
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

// Types of package transfer.
type (
	Device      = transfer.Device
	DeviceUsage = transfer.DeviceUsage
	Progress    = transfer.Progress
)

// Object is a file to download.
type Object struct {
	URL  string
	File string // where it is written when complete and verified
	// KeepExisting forbids to replace an existing file.
	KeepExisting bool
	SHA256       []byte // expected digest, or nil
}

// Config configures Get.
type Config struct {
	Devices []Device // at least one; the local device first
	// NewDevices, if not nil, delivers devices that are found later. It is closed when no more will
	// follow; until then no object fails because no device can get it.
	NewDevices <-chan Device
	Objects    []Object
	Secrets    *Secrets // nil: none
	// Scheduler is not shared with another Get; nil is the default.
	Scheduler board.Scheduler
	UserAgent string
	Mode      fs.FileMode // of the files
	// OnProgress, if not nil, is called now and then by one goroutine.
	OnProgress func(Progress)
	// OnVerified, if not nil, is called for each verified object just before it gets its name.
	// Several goroutines may call it.
	OnVerified func(Fetched)
	Log        *slog.Logger

	times times // for tests
}

// times are the time limits of a download.
type times struct {
	transfer.Times
	saveInterval time.Duration // between writes of the journal
}

// defaultTimes are used unless a test sets others.
var defaultTimes = times{saveInterval: 2 * time.Second, Times: transfer.Times{
	StallTimeout: 15 * time.Second, ResponseTimeout: 30 * time.Second, FirstBackoff: 500 * time.Millisecond,
	IdleTimeout: time.Minute, TickInterval: 100 * time.Millisecond}}

// Fetched is an object that was downloaded.
type Fetched struct {
	URL     string     `json:"url"`
	File    string     `json:"file"`
	Bytes   unit.Bytes `json:"bytes"`
	Resumed unit.Bytes `json:"resumed"` // part of Bytes that was there from an earlier run
	SHA256  string     `json:"sha256"`
	// Unchecked is the only helper that has seen the object, if no other device could be asked to
	// confirm it; "" otherwise.
	Unchecked string `json:"unchecked,omitempty"`
}

// Failed is an object that could not be downloaded.
type Failed struct {
	URL   string     `json:"url"`
	File  string     `json:"file"`
	Error string     `json:"error"`
	Kind  fault.Kind `json:"kind"`
}

// Result is the outcome of Get.
type Result struct {
	Objects  []Fetched
	Failed   []Failed
	Devices  []DeviceUsage
	Duration time.Duration
}

// Get downloads the objects of cfg. Incomplete downloads stay beside their files if they can be
// resumed, and the next Get resumes them. Errors that a user can act on are faults. If an object
// fails, the others are fetched all the same.
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
			return Result{}, fault.New(fault.Usage, fmt.Errorf("%q is not an HTTP URL", o.URL),
				"use a URL like https://example.org/file")
		}
	}
	t, err := newFetchTask(cfg)
	if err != nil {
		return Result{}, err
	}
	return t.runFetchTask(ctx)
}
