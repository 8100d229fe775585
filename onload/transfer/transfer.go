// Package transfer runs the items of a board over several devices. It stands between
// onload/board, which decides which device carries which item, and those who know how one
// item is carried: fetch, upload and playlist, each a Task.
//
//	board ─ orders ─▶ Loop ─ Start ─▶ Task ─▶ Carrier: one item over one device
//	  ▲                │ ▲                        │
//	  └─── progress ───┘ └─────── bytes, end ─────┘
//
//	transfer.go  what a loop is given, and what carries an item
//	loop.go      orders of the board, ends of jobs, the clock
//	worker.go    a device: whether it works, and what it has carried
//	refusal.go   answers that cannot be used, and why no device can do something
//
// One lock guards the loop, its board and the state of its task. Carriers run without it.
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

// Tuning.
const (
	// defaultRecoveryBytes is that of a Config without one.
	defaultRecoveryBytes = 64 * unit.KB
	// maxFailures of each device, before any server has answered, end the transfer.
	maxFailures = 3
	// maxBackoff bounds the time for which a device is left alone, unless the server asks
	// for more.
	maxBackoff    = 20 * time.Second
	warmUpTimeout = 5 * time.Second
)

// ErrDropped is how a job ends that the board does not need any more.
var ErrDropped = errors.New("not needed any more")

// Device is a way to the Internet.
type Device struct {
	Name      string
	Transport http.RoundTripper
	// Helper is that it is the line of another device, which sees what is not encrypted.
	Helper bool
	// Metered reports whether the bytes of its line cost money or count against a bound;
	// nil: they do not. Safe for concurrent use.
	Metered func() bool
}

// IsMetered reports whether bytes of the device's line are to be spared.
func (d Device) IsMetered() bool { return d.Metered != nil && d.Metered() }

// DeviceUsage is what a device has carried.
type DeviceUsage struct {
	Device string     `json:"device"`
	Bytes  unit.Bytes `json:"bytes"`  // of bodies, with those that were wasted
	Wasted unit.Bytes `json:"wasted"` // carried twice, of an object that changed, or not confirmed
	Rate   unit.Rate  `json:"-"`      // lately
	Down   error      `json:"-"`      // why it is not used, or nil
}

// Progress is how far a task is.
type Progress struct {
	Bytes, Size unit.Bytes // of all objects; Size is board.Unknown until all are known
	Done        int        // objects
	Devices     []DeviceUsage
}

// Times bound how long things may take.
type Times struct {
	StallTimeout    time.Duration // without a byte, before a job is given up
	ResponseTimeout time.Duration // without an answer
	FirstBackoff    time.Duration // of a device that failed, the first time; twice that the next time
	IdleTimeout     time.Duration // without a byte over any device, before all is given up; 0: for ever
	TickInterval    time.Duration
}

// BackoffAfter returns how long to wait after so many failures: twice as long each time.
func (t Times) BackoffAfter(failures int) time.Duration {
	return backoff.After(failures, t.FirstBackoff, maxBackoff)
}

// Config is what a Loop needs.
type Config struct {
	Devices []Device // at least one, this device's own line first
	// NewDevices, if not nil, brings devices that are found later, and is closed when no more
	// will be.
	NewDevices <-chan Device
	// NewClient makes the client of a device; nil: the device is not used.
	NewClient func(Device) *http.Client
	// WarmUp, if not nil, returns what has a new device meet the server before it is used; nil:
	// it is used at once. An error of that suspends the device. The lock is held.
	WarmUp      func(*Worker) func(ctx context.Context) error
	Scheduler   board.Scheduler // one that no other loop uses; nil is the default
	Concurrency int             // items that a device may carry at once; 0: one
	Upload      bool            // the items are sent, and count when they are confirmed
	// RecoveryBytes is how much a device must bring of an item for its earlier failures not to
	// count; 0: 64 KB.
	RecoveryBytes unit.Bytes
	Times         Times
	// ErrStalled and ErrNoResponse end jobs, and are what failed then.
	ErrStalled, ErrNoResponse error
	// OnSuspend, if not nil, is called each time that a device fails; it must be quick.
	OnSuspend func(device string, err error)
	Log       *slog.Logger // nil: none
}

// Task is what a loop works on. Its methods are called with the loop's lock held, and must
// not block.
type Task interface {
	// Schedule puts on the board what is due, and gives up what no device can have. It reports
	// whether anything is left to be done.
	Schedule() (more bool)
	// StartJob returns what carries a job; nil: its object was given up.
	StartJob(j *Job) Carrier
	// ReportProgress is called now and then.
	ReportProgress(now time.Time)
	// GiveUp fails all that is open: nothing moves, and no device will be used soon.
	GiveUp()
}

// Carrier carries the item of one job over its device, and takes in what comes of it.
type Carrier interface {
	// Carry moves the bytes, and reports them to the job. It runs in a goroutine of its own,
	// without the lock. Its error is the cause of ctx's end if that came first, but for a
	// LocalError.
	Carry(ctx context.Context) error
	// OnEnd is called once, when Carry has returned: nil tells that the item is complete and
	// the board had wanted it still, ErrDropped that nobody needs it. The lock is held.
	OnEnd(err error)
}

// progressCounter is a Carrier that takes in, now and then, that n more bytes have been carried. The
// lock is held.
type progressCounter interface{ CountMoved(n unit.Bytes) }

// dropObserver is a Carrier that is called at once when its job is dropped, with the lock held;
// Ended follows.
type dropObserver interface{ OnDrop() }

// Job is an item on its way over a device. The board's fields and Worker are guarded by the
// loop's lock; the methods may be called by any goroutine.
type Job struct {
	board.Job
	Worker *Worker

	carrier Carrier
	cancel  context.CancelCauseFunc
	dropped bool
	counted unit.Bytes // of carried, by the loop

	carried          atomic.Int64 // bytes of the item
	end              atomic.Int64 // Item.To
	lastActivity     atomic.Int64 // when it last did something, Unix time in ns
	awaitingResponse atomic.Bool  // for an answer
}

// IsDropped reports whether the board does not need the job any more. The lock must be held.
func (j *Job) IsDropped() bool { return j.dropped }

// Counted returns how many bytes of it the loop has taken in. The lock must be held.
func (j *Job) Counted() unit.Bytes { return j.counted }

// End returns where the item ends now, or board.Unknown.
func (j *Job) End() unit.Bytes { return unit.Bytes(j.end.Load()) }

// SetEnd sets where the item ends.
func (j *Job) SetEnd(to unit.Bytes) { j.end.Store(int64(to)) }

// SetCarried sets how many bytes of the item have been carried.
func (j *Job) SetCarried(n unit.Bytes) { j.carried.Store(int64(n)) }

// Carried returns how many bytes of the item have been carried.
func (j *Job) Carried() unit.Bytes { return unit.Bytes(j.carried.Load()) }

// Touch notes that the job has done something.
func (j *Job) Touch() { j.lastActivity.Store(time.Now().UnixNano()) }

// SetAwaitingResponse notes whether the job waits for an answer now, for which Times.Answer holds instead
// of Times.Stall. A job that begins does, unless the loop sends.
func (j *Job) SetAwaitingResponse(yes bool) {
	j.awaitingResponse.Store(yes)
	j.Touch()
}

// AwaitsResponse reports whether the job waits for an answer.
func (j *Job) AwaitsResponse() bool { return j.awaitingResponse.Load() }

// LocalError is one of this device's own files, which no other device can do better.
type LocalError struct{ error }

// NewLocalError makes a LocalError.
func NewLocalError(err error) error { return LocalError{err} }

// Unwrap returns the error itself.
func (e LocalError) Unwrap() error { return e.error }

// New makes a loop, whose devices are not used before Run. Errors are of a Config that
// cannot be meant.
func New(cfg Config) (*Loop, error) {
	if len(cfg.Devices) == 0 {
		return nil, fault.New(fault.Usage, errors.New("no device to carry anything"), "")
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
	l := &Loop{Config: cfg, Board: board.NewBoard(cfg.Scheduler, 0), jobs: map[board.JobID]*Job{}, done: make(chan struct{}), lastProgress: time.Now()}
	l.ctx, l.cancel = context.WithCancelCause(context.Background())
	l.Board.SetConcurrency(max(1, cfg.Concurrency))
	if cfg.Upload {
		l.Board.SetUpload()
	}
	for _, d := range cfg.Devices {
		l.addWorker(d)
	}
	return l, nil
}
