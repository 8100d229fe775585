// SPDX-License-Identifier: Apache-2.0

// Package board decides which device carries which item: whole objects, video
// segments or byte ranges. It is used where there is no bonding server: the packages
// fetch, upload and playlist move the bytes over each device, and package simulate
// moves them in virtual time.
//
// A Board holds the waiting items and the jobs under way, and asks a Scheduler what
// an idle path does. The Board handles splitting, copies, failures and waste, so that
// they are the same for each scheduler, live and in virtual time.
package board

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
)

// Unknown marks the end of an item of unknown size.
const Unknown unit.Bytes = -1

// Item is the part of an object that a path carries with one request: bytes From to To.
type Item struct {
	// Index is the position among the items that were added to the board. Parts of an item have the
	// index of the whole.
	Index    int
	Object   int // number of the object, chosen by the caller; lower numbers are wanted first
	From, To unit.Bytes
	// Splittable reports that any range of the item can be requested alone.
	Splittable bool
	// NoCopies forbids a second job for the item: each upload may be stored.
	NoCopies bool

	piece int // number of this part on its board; jobs with the same number carry copies of it
}

// Size returns the number of bytes, or Unknown.
func (i Item) Size() unit.Bytes {
	if i.To == Unknown {
		return Unknown
	}
	return i.To - i.From
}

// compareOrder orders items by when they are wanted.
func compareOrder(a, b Item) int {
	return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.From, b.From))
}

// Path is the state of one of a device's parallel connections, as a scheduler sees it.
type Path struct {
	Up, Busy   bool
	Rate       unit.Rate     // recent measured rate; 0: unknown
	RecentRate unit.Rate     // measured over recentMemory
	Latency    time.Duration // from the request to the first byte, the last time; 0: unknown
	Silence    time.Duration // how long the last cancelled jobs waited without a byte
	Metered    bool          // bytes cost money or count against a limit
	Device     int           // shared by all paths of a device
	IsExtra    bool          // only for items so small that the latency exceeds their transfer time
}

// JobID identifies a job on its board.
type JobID int

// Job is an item that a path carries.
type Job struct {
	ID           JobID
	Path         int
	Item         Item // To decreases when another path takes the end
	Transferred  unit.Bytes
	StartTime    time.Time
	LastProgress time.Time // of its last bytes; zero: none yet
	IsCopy       bool      // another path had the item first
}

// Remaining returns how many bytes are left, or Unknown.
func (j Job) Remaining() unit.Bytes {
	if j.Item.To == Unknown {
		return Unknown
	}
	return max(0, j.Item.Size()-j.Transferred)
}

// View is the state from which a scheduler decides. Waiting and Running are in the order in which
// the items are wanted.
type View struct {
	Now            time.Time
	Paths          []Path
	Waiting        []Item
	Running        []Job
	WastedByCopies unit.Bytes // since items were last added, including what running copies may waste
	LargestSize    unit.Bytes // of all items so far
	MeanSize       unit.Bytes // of all items of known size
	HomePath       int        // set by SetHome, or -1
	Unsplittable   bool       // the last object of known size has no ranges

	// Lead is how many bytes of the first wanted items the home line need not carry, minus what it
	// carried in vain.
	Lead unit.Bytes

	wanted   map[int]bool    // objects that a reader waits for
	excluded map[[2]int]bool // device and object
}

// CopyCount returns how many jobs carry the item of j.
func (v *View) CopyCount(j Job) (n int) {
	for _, other := range v.Running {
		if other.Item.piece == j.Item.piece {
			n++
		}
	}
	return n
}

// countDevices returns the number of devices.
func (v *View) countDevices() (n int) {
	for _, p := range v.Paths {
		if !p.IsExtra {
			n++
		}
	}
	return n
}

// countUsablePaths returns the number of usable paths.
func (v *View) countUsablePaths() (n int) {
	for _, p := range v.Paths {
		if p.Up {
			n++
		}
	}
	return n
}

// Action is the next step of an idle path.
type Action uint8

// Actions.
const (
	Wait  Action = iota // nothing for now
	Take                // carry a waiting item
	Split               // take the end of a running job
	Copy                // carry the rest of a running job too
	Move                // restart the item of a running job, which is cancelled
)

// Decision is an action with its reason.
type Decision struct {
	Action       Action
	WaitingIndex int        // Take: index of the item in View.Waiting
	Job          JobID      // Split, Copy, Move: the other job
	Size         unit.Bytes // Take: only the first Size bytes, if not 0; Split: the last Size bytes
	Reason       Reason
}

// Reason says why a decision was made. String explains it to users.
type Reason uint8

// Reasons.
const (
	NothingLeft Reason = iota // no item waits, and no job can be helped
	NextItem                  // the oldest waiting item, or the oldest one of this path
	InTime                    // the largest item that this path finishes first
	ItsTurn                   // round robin: the item of this path
	NotItsItem                // the waiting items belong to other paths
	LeastTime                 // the item was queued at the path that finishes first
	NextChunk                 // work queue: the next chunk
	Oldest                    // copies the oldest unfinished item
	SplitsLast                // splits the job that would end last
	SplitsOlder               // splits an older job that would end after the next item
	EndsSooner                // a copy is estimated to finish earlier
	NoAnswer                  // a copy, since the other job has no response for long
	NoSize                    // a copy, since the size and so the end of the other job are unknown
	NoGain                    // waits, since the running jobs end earlier without help
	CannotWin                 // cancels a copy, since another path will finish much earlier
	Overlaps                  // small: its latency overlaps with another transfer of the device
	HomeSooner                // the home line takes over a late item
	HomeWanted                // the home line drops a later item for one that a reader waits for
	HomeFirst                 // the home line carries the first wanted item even if others do too
	reasonCount
)

var reasonTexts = [reasonCount]string{
	NothingLeft: "waits: no item is left to start",
	NextItem:    "the oldest waiting item",
	InTime:      "the largest item that it finishes first",
	ItsTurn:     "its turn in round robin",
	NotItsItem:  "waits: the remaining items belong to other devices",
	LeastTime:   "queued at the device estimated to finish first",
	NextChunk:   "the next chunk",
	Oldest:      "copies the oldest unfinished item",
	SplitsLast:  "takes the end of the item that would finish last",
	SplitsOlder: "takes the end of an older item that would be late",
	EndsSooner:  "a copy is estimated to finish earlier",
	NoAnswer:    "a copy: the other request has no response",
	NoSize:      "a copy: the size is unknown, and the other request takes long",
	NoGain:      "waits: it would not make anything faster",
	Overlaps:    "a small item, requested while the device carries another",
	CannotWin:   "cancelled: another device will finish much earlier",
	HomeSooner:  "the home line takes over a late item",
	HomeWanted:  "the home line drops a later item for one that is waited for",
	HomeFirst:   "the home line carries the first wanted item",
}

// String returns the reason as text for users.
func (r Reason) String() string {
	if int(r) < len(reasonTexts) {
		return reasonTexts[r]
	}
	return fmt.Sprintf("reason %d", uint8(r))
}

// Scheduler decides what an idle path does. Implementations may keep state between calls, but no
// reference to a view. Each Board needs its own Scheduler.
type Scheduler interface {
	// Name returns the name by which users choose the scheduler.
	Name() string
	// Pick decides for a path that is up and idle.
	Pick(v *View, path int) Decision
	// NoteDelivery records that a path has carried n bytes in the time took since its request.
	NoteDelivery(path int, n unit.Bytes, took time.Duration)
}

// pruner is a Scheduler that cancels copies.
type pruner interface {
	// FindLoser returns a job that is not worth its bytes, because another path will finish its
	// item much earlier.
	FindLoser(v *View) (loser JobID, ok bool)
}

// constructors maps the names of schedulers to their constructors.
var constructors = map[string]func() Scheduler{
	"auto":  func() Scheduler { return autoScheduler{} },
	"grd":   func() Scheduler { return greedyScheduler{} },
	"rr":    func() Scheduler { return roundRobin{} },
	"min":   func() Scheduler { return &leastTime{} },
	"queue": func() Scheduler { return workQueue{DefaultChunk} },
}

// Default is the scheduler that is used if none is named.
const Default = "auto"

// Names returns the sorted names of the schedulers.
func Names() []string {
	names := make([]string, 0, len(constructors))
	for name := range constructors {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// New returns a new scheduler of the given name. Errors are faults.
func New(name string) (Scheduler, error) {
	if m := constructors[name]; m != nil {
		return m(), nil
	}
	return nil, fault.New(fault.Usage, fmt.Errorf("unknown item scheduler %q", name),
		"choose one of "+strings.Join(Names(), ", "))
}
