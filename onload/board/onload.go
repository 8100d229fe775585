// Package board decides which device fetches which item: whole objects, video
// segments, or byte ranges of one. It stands beside the data path, for where no
// bonding server is: above it are fetch, which moves the bytes over a device each, and
// simulate, which moves them in virtual time; below it is nothing.
//
// A Board holds what is to be fetched and what is under way, and asks a Scheduler
// what an idle path does. Splitting, copies, failures and waste are the Board's, so
// that they are the same for each scheduler, live and in virtual time.
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

// Unknown is the end of an item whose size nobody has told yet.
const Unknown unit.Bytes = -1

// Item is something that a path fetches in one go: bytes From to To of an object.
type Item struct {
	// Index is its place among what was given to the Board. The rest of an item that
	// was split or begun has the index of the whole.
	Index    int
	Object   int // the user's number of the object; objects are wanted in this order
	From, To unit.Bytes
	// Splittable tells that any part of it can be had alone.
	Splittable bool
	// NoCopies tells that it must not be under way twice: what is sent, and may be kept
	// by the other end each time.
	NoCopies bool

	piece int // of this piece, on its board
}

// Size is how much it is, or Unknown.
func (i Item) Size() unit.Bytes {
	if i.To == Unknown {
		return Unknown
	}
	return i.To - i.From
}

// compareOrder tells which of two items is wanted first.
func compareOrder(a, b Item) int {
	return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.From, b.From))
}

// Path is a device as a scheduler sees it.
type Path struct {
	Up, Busy   bool
	Rate       unit.Rate     // as measured lately; 0: not known
	RecentRate unit.Rate     // as measured over recentMemory
	Latency    time.Duration // from asking to the first byte, the last time; 0: not known
	Silence    time.Duration // for how long the last jobs have brought no byte, if they were cancelled then
	Metered    bool          // its bytes cost money, or count against a bound
	Device     int           // it is a connection of; others have the same
	IsExtra    bool          // it is for items so small that answers take longer than their bytes
}

// JobID names a job on its board.
type JobID int

// Job is an item on a path.
type Job struct {
	ID           JobID
	Path         int
	Item         Item // To becomes less when another path takes the end
	Transferred  unit.Bytes
	StartTime    time.Time
	LastProgress time.Time // of its last bytes; zero: none yet
	IsCopy       bool      // another path had the item first
}

// Remaining is what it still has to bring, or Unknown.
func (j Job) Remaining() unit.Bytes {
	if j.Item.To == Unknown {
		return Unknown
	}
	return max(0, j.Item.Size()-j.Transferred)
}

// View is what a scheduler decides from. Waiting and Running are in the order in
// which they are wanted.
type View struct {
	Now            time.Time
	Paths          []Path
	Waiting        []Item
	Running        []Job
	WastedByCopies unit.Bytes // what copies have wasted since items were added, and those under way may waste
	LargestSize    unit.Bytes // size of the largest item there was
	MeanSize       unit.Bytes // mean size of those whose size was told
	HomePath       int        // the path that SetHome has named, or -1
	Unsplittable   bool       // the last object whose size was learned cannot be split

	Lead unit.Bytes // what the home line need not bring of what is wanted first, less what it brought in vain

	wanted   map[int]bool    // objects that are waited for
	excluded map[[2]int]bool // path and object
}

// CopyCount tells how many jobs bring the same item.
func (v *View) CopyCount(j Job) (n int) {
	for _, other := range v.Running {
		if other.Item.piece == j.Item.piece {
			n++
		}
	}
	return n
}

// countDevices counts the lines.
func (v *View) countDevices() (n int) {
	for _, p := range v.Paths {
		if !p.IsExtra {
			n++
		}
	}
	return n
}

// countUp counts the paths that work.
func (v *View) countUp() (n int) {
	for _, p := range v.Paths {
		if p.Up {
			n++
		}
	}
	return n
}

// Action is what an idle path does.
type Action uint8

// Actions.
const (
	Wait  Action = iota // nothing, for now
	Take                // fetches a waiting item
	Split               // fetches the end of what another path has under way
	Copy                // fetches what another path has under way as well
	Move                // begins what another path has under way, which gives it up
)

// Decision is an action and why it was taken.
type Decision struct {
	Action Action
	Item   int        // Take: which of View.Waiting
	Job    JobID      // Share, Copy, Move: whose
	Size   unit.Bytes // Take: only so much from its beginning, if not 0; Share: so much from its end
	Reason Reason
}

// Reason says why. String explains it to people.
type Reason uint8

// Reasons.
const (
	NothingLeft Reason = iota // nothing waits, and nothing under way can be helped
	NextItem                  // the oldest that waits, or that falls to this path
	InTime                    // the largest that it would have sooner than others
	ItsTurn                   // round robin: the item is this path's
	NotItsItem                // waits: what is left is another path's
	LeastTime                 // the item was queued here as the soonest place
	NextChunk                 // work queue: the next chunk
	Oldest                    // re-fetches the oldest that is unfinished
	SplitsLast                // takes of what would end last
	SplitsOlder               // takes of an older item, which would come late beside the next one
	EndsSooner                // a copy is reckoned to come sooner
	NoAnswer                  // a copy, since the other one has not been answered for long
	NoSize                    // a copy, since nobody knows how long the other one will take
	NoGain                    // waits: what is under way ends sooner without it
	CannotWin                 // ends a copy, or what is copied: another path will have it much sooner
	Overlaps                  // small: its answer comes while the line brings another one
	HomeSooner                // the home line takes what another path would bring late
	HomeWanted                // the home line drops a later item for one that is waited for
	HomeFirst                 // the home line brings what is wanted first, whoever else does
	reasonCount
)

var reasonTexts = [reasonCount]string{
	NothingLeft: "waits: nothing is left to begin",
	NextItem:    "the oldest item that waits",
	InTime:      "the largest that comes soonest by it",
	ItsTurn:     "its turn",
	NotItsItem:  "waits: what is left is for others",
	LeastTime:   "queued where it is reckoned to come soonest",
	NextChunk:   "the next chunk",
	Oldest:      "copies the oldest unfinished item",
	SplitsLast:  "takes the end of what would be ready last",
	SplitsOlder: "takes the end of an older item, which would be late",
	EndsSooner:  "a copy is reckoned to come sooner",
	NoAnswer:    "a copy: the other one has no answer",
	NoSize:      "a copy: nobody knows the size, and the other one takes long",
	NoGain:      "waits: would not make anything sooner",
	Overlaps:    "a small one, asked for while the line brings another",
	CannotWin:   "ends: another device will have it much sooner",
	HomeSooner:  "the home line takes what would come late",
	HomeWanted:  "the home line drops a later item for what is waited for",
	HomeFirst:   "the home line brings what is wanted first",
}

func (r Reason) String() string {
	if int(r) < len(reasonTexts) {
		return reasonTexts[r]
	}
	return fmt.Sprintf("reason %d", uint8(r))
}

// Scheduler decides what an idle path does. Implementations may keep state between
// calls, but no reference to a view; a Board of its own calls each.
type Scheduler interface {
	// Name is what users choose it by.
	Name() string
	// Pick decides for a path that is up and idle.
	Pick(v *View, path int) Decision
	// NoteDelivery tells that a path has brought n bytes in so much time since it asked.
	NoteDelivery(path int, n unit.Bytes, took time.Duration)
}

// pruner is a Scheduler that ends copies.
type pruner interface {
	// FindLoser returns a job whose item another path will have so much sooner that it is
	// not worth its bytes.
	FindLoser(v *View) (loser JobID, ok bool)
}

var constructors = map[string]func() Scheduler{
	"auto":  func() Scheduler { return autoScheduler{} },
	"grd":   func() Scheduler { return greedyScheduler{} },
	"rr":    func() Scheduler { return roundRobin{} },
	"min":   func() Scheduler { return &leastTime{} },
	"queue": func() Scheduler { return workQueue{DefaultChunk} },
}

// Default is the scheduler used when none is named.
const Default = "auto"

// Names lists the schedulers.
func Names() []string {
	names := make([]string, 0, len(constructors))
	for name := range constructors {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// New makes a scheduler by name. Errors are faults.
func New(name string) (Scheduler, error) {
	if m := constructors[name]; m != nil {
		return m(), nil
	}
	return nil, fault.New(fault.Usage, fmt.Errorf("no item scheduler is called %q", name), "take one of "+strings.Join(Names(), ", "))
}
