// SPDX-License-Identifier: Apache-2.0

// Package transfer runs the items of a board over several devices. It stands between
// onload/board, which decides which device carries which item, and the packages that know
// how to carry one item: fetch, upload and playlist. Each of them implements Task.
//
//	board ─ orders ─▶ Loop ─ StartJob ─▶ Task ─▶ JobRunner: one item over one device
//	  ▲                │ ▲                           │
//	  └─── progress ───┘ └───────── bytes, end ──────┘
//
//	transfer.go  configuration, Task, JobRunner and Job
//	loop.go      executes orders, records ends of jobs, checks timeouts
//	worker.go    a device: its availability, failures and bytes
//	refusal.go   unusable responses and errors of several devices
//
// One lock guards the loop, its board and the state of its task. Runners run without it.
package transfer

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"mpbond/base/backoff"
	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/onload/board"
)

// Limits.
const (
	// defaultRecoveryBytes is used if Config.RecoveryBytes is 0.
	defaultRecoveryBytes = 64 * unit.KB
	// maxFailures is how often each device may fail before any server has responded; then the
	// transfer is given up.
	maxFailures = 3
	// maxBackoff bounds the back-off of a device, unless the server asks for a longer one.
	maxBackoff    = 20 * time.Second
	warmUpTimeout = 5 * time.Second
)

// ErrDropped is the end of a job that the board does not need any more.
var ErrDropped = errors.New("not needed any more")

// Device is a connection to the Internet: an interface of this device, or a helper.
type Device struct {
	Name      string
	Transport http.RoundTripper
	// Helper marks another device, which can see unencrypted bytes.
	Helper bool
	// Metered reports whether bytes over the device cost money or count against a limit. It is safe
	// for concurrent use; nil means no.
	Metered func() bool
}

// IsMetered reports whether the bytes of the device should be saved.
func (d Device) IsMetered() bool { return d.Metered != nil && d.Metered() }

// DeviceUsage counts the bytes of one device.
type DeviceUsage struct {
	Device string     `json:"device"`
	Bytes  unit.Bytes `json:"bytes"`  // of bodies, including wasted bytes
	Wasted unit.Bytes `json:"wasted"` // duplicate, outdated or not confirmed
	Rate   unit.Rate  `json:"-"`      // recent rate; 0 while the device is idle
	Down   error      `json:"-"`      // why the device is suspended, or nil
}

// Progress is the state of a task.
type Progress struct {
	Bytes, Size unit.Bytes // of all objects; Size is board.Unknown until all sizes are known
	Done        int        // finished objects
	Devices     []DeviceUsage
}

// Times are the time limits of a loop.
type Times struct {
	StallTimeout    time.Duration // without a byte, after which a job is cancelled
	ResponseTimeout time.Duration // without a response, after which a job is cancelled
	FirstBackoff    time.Duration // back-off after the first failure; it doubles with each further one
	// without a byte over any device, after which the task is given up; 0: never
	IdleTimeout  time.Duration
	TickInterval time.Duration // between checks of time limits
}

// BackoffAfter returns the back-off after a number of failures in a row.
func (t Times) BackoffAfter(failures int) time.Duration {
	return backoff.After(failures, t.FirstBackoff, maxBackoff)
}

// Config configures a Loop.
type Config struct {
	Devices []Device // at least one; the local device first
	// NewDevices, if not nil, delivers devices that are found later. It is closed when no more will
	// follow.
	NewDevices <-chan Device
	// NewClient returns the HTTP client of a device, or nil to leave the device out.
	NewClient func(Device) *http.Client
	// WarmUp, if not nil, returns a function that contacts the server over a new device before the
	// device is used, or nil to use it at once. An error of that function suspends the device.
	// WarmUp is called with the lock held, its result without.
	WarmUp      func(*Worker) func(ctx context.Context) error
	Scheduler   board.Scheduler // not shared with another loop; nil is the default
	Concurrency int             // items that a device may carry at once; 0: one
	Upload      bool            // items are sent, and count when they are confirmed
	// RecoveryBytes is how much of an item a device must bring to clear its earlier failures; 0: 64
	// KB.
	RecoveryBytes unit.Bytes
	Times         Times
	// ErrStalled and ErrNoResponse are the causes with which stalled jobs are cancelled.
	ErrStalled, ErrNoResponse error
	// OnSuspend, if not nil, is called each time a device is suspended. It must not block.
	OnSuspend func(device string, err error)
	Log       *slog.Logger // nil: none
}

// Task is the work of a loop. Its methods are called with the loop's lock held and must not block.
type Task interface {
	// Schedule adds due items to the board and gives up objects that no device can carry. It
	// reports whether any work is left.
	Schedule() (more bool)
	// StartJob returns the runner of a job, or nil if its object was given up.
	StartJob(j *Job) JobRunner
	// ReportProgress is called now and then.
	ReportProgress(now time.Time)
	// GiveUp fails all open objects: nothing moves, and no device will be usable soon.
	GiveUp()
}

// JobRunner carries the item of one job over its device and handles the result.
type JobRunner interface {
	// Run moves the bytes and reports them to the job. It runs in its own goroutine without the
	// lock. If ctx ends first, the loop replaces the returned error by the cause of ctx, except for
	// a LocalError.
	Run(ctx context.Context) error
	// OnEnd is called once, after Run has returned. err is nil if the item is complete and was
	// still wanted, and ErrDropped if it is not needed. The lock is held.
	OnEnd(err error)
}

// progressCounter is a JobRunner that wants to know how many more bytes were carried since the last
// call. The lock is held.
type progressCounter interface{ CountMoved(n unit.Bytes) }

// dropObserver is a JobRunner that is called at once when its job is dropped, with the lock held.
// OnEnd follows.
type dropObserver interface{ OnDrop() }

// Job is an item under way over a device. The embedded fields and Worker are guarded by the loop's
// lock; the methods may be called by any goroutine unless they say otherwise.
type Job struct {
	board.Job
	Worker *Worker

	runner  JobRunner
	cancel  context.CancelCauseFunc
	dropped bool
	counted unit.Bytes // part of carried that the loop has recorded

	carried          atomic.Int64 // bytes of the item
	end              atomic.Int64 // Item.To
	lastActivity     atomic.Int64 // Unix time in ns
	awaitingResponse atomic.Bool  // ResponseTimeout applies instead of StallTimeout
}

// IsDropped reports whether the board does not need the job any more. The lock must be held.
func (j *Job) IsDropped() bool { return j.dropped }

// Counted returns how many bytes of the item the loop has recorded. The lock must be held.
func (j *Job) Counted() unit.Bytes { return j.counted }

// End returns where the item ends now, or board.Unknown.
func (j *Job) End() unit.Bytes { return unit.Bytes(j.end.Load()) }

// SetEnd sets where the item ends.
func (j *Job) SetEnd(to unit.Bytes) { j.end.Store(int64(to)) }

// SetCarried sets how many bytes of the item have been carried.
func (j *Job) SetCarried(n unit.Bytes) { j.carried.Store(int64(n)) }

// Carried returns how many bytes of the item have been carried.
func (j *Job) Carried() unit.Bytes { return unit.Bytes(j.carried.Load()) }

// Touch records activity now, which restarts the stall timeout.
func (j *Job) Touch() { j.lastActivity.Store(time.Now().UnixNano()) }

// SetAwaitingResponse sets whether the job waits for a response. While it does,
// Times.ResponseTimeout applies instead of Times.StallTimeout. A new job waits for one, unless the
// loop uploads.
func (j *Job) SetAwaitingResponse(yes bool) {
	j.awaitingResponse.Store(yes)
	j.Touch()
}

// AwaitsResponse reports whether the job waits for a response.
func (j *Job) AwaitsResponse() bool { return j.awaitingResponse.Load() }

// LocalError is an error of this device's own files. Another device cannot help.
type LocalError struct{ error }

// NewLocalError wraps err in a LocalError.
func NewLocalError(err error) error { return LocalError{err} }

// Unwrap returns the wrapped error.
func (e LocalError) Unwrap() error { return e.error }

// New returns a loop; its devices are not used before Run. It returns an error for an invalid
// Config.
func New(cfg Config) (*Loop, error) {
	if len(cfg.Devices) == 0 {
		return nil, fault.New(fault.Usage, errors.New("no device given"), "")
	}
	if cfg.Scheduler == nil {
		s, err := board.New(board.Default)
		if err != nil {
			return nil, err
		}
		cfg.Scheduler = s
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.RecoveryBytes == 0 {
		cfg.RecoveryBytes = defaultRecoveryBytes
	}
	l := &Loop{Config: cfg, Board: board.NewBoard(cfg.Scheduler, 0), jobs: map[board.JobID]*Job{},
		done: make(chan struct{}), lastProgress: time.Now()}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	l.Board.SetConcurrency(max(1, cfg.Concurrency))
	if cfg.Upload {
		l.Board.SetUpload()
	}
	for _, d := range cfg.Devices {
		l.addDeviceWorker(d)
	}
	return l, nil
}
