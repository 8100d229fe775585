// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"mpbond/base/fault"
)

// Bucket is a set of records in a Store.
type Bucket string

// Buckets. The names are part of the format of the stores.
const (
	// Devices holds what is known of each device, by its key (Device). Servers also write their beats
	// there: see Member.
	Devices Bucket = "devices"
	// Codes holds invitations until they expire, by the ID of their code (openCode).
	Codes Bucket = "codes"
	// Servers holds the state of each running server, by its name (ServerState). A record lives for
	// ServerLife after each write.
	Servers Bucket = "servers"
	// Orders holds what the operator orders: the signed list of servers, and which of them drain. It also names
	// the fleet, without a signature: servers pin its key.
	Orders Bucket = "orders"
	// UsageCounts holds what each server has carried for each device, by both (usageRecord). A record lives for UsageLife
	// after each write.
	UsageCounts Bucket = "usage"
	// Permits holds the permits for onloading of each mobile cell, by its name (Cells).
	Permits Bucket = "permits"
	// Loads holds the load of each cell that each permit service knows, by both (Cells). A record lives for LoadLife
	// after each write.
	Loads Bucket = "loads"
)

// Buckets returns all buckets.
func Buckets() []Bucket {
	return []Bucket{Devices, Codes, Servers, Orders, UsageCounts, Permits, Loads}
}

// ServerLife is how long a record in Servers lives after each write, LoadLife how long one in Loads.
const ServerLife, LoadLife = 10 * time.Second, 30 * time.Second

// UsageLife is how long a record in UsageCounts lives after each write. So the counts of a month last until the end of
// the next one, whatever the clocks of servers say: the engine's clock counts.
const UsageLife = 70 * 24 * time.Hour

// RecordLife returns how long the records of a bucket live after each write; 0: as long as Create says.
func RecordLife(b Bucket) time.Duration {
	switch b {
	case Servers:
		return ServerLife
	case Loads:
		return LoadLife
	case UsageCounts:
		return UsageLife
	}
	return 0
}

// Limits of a Store.
const (
	// MaxKey bounds the length of a key: letters, digits, '-', '_' and '.', none of which begins or ends
	// with a dot.
	MaxKey = 200
	// MaxValue bounds the bytes of a value and of an event.
	MaxValue = 64 << 10
	// EventLife is how long events are kept.
	EventLife = 30 * 24 * time.Hour
)

// Errors of a Store.
var (
	// ErrNoRecord means that there is no record with that key.
	ErrNoRecord = errors.New("no such record")
	// ErrConflict means that the record has another revision.
	ErrConflict = errors.New("the record has changed meanwhile")
	// ErrReplaced ends a Watch: the bucket is gone, and there is another one.
	ErrReplaced = fault.New(fault.Integrity, errors.New("the engine has lost this bucket, and has a new one"), "")
)

// Record is a value with its key. Its revision differs from those of all earlier records with that key,
// and is greater.
type Record struct {
	Key      string
	Value    []byte
	Revision uint64
	// Life is for Update: the record ends after it, at 0 never. It is 0 in what a Store returns.
	Life time.Duration
}

// Change is a change that a watch reports: a new value, or the end of a record.
type Change struct {
	Record
	IsGone bool // deleted, or its life is over; Value is nil
	// IsCurrent says that all records that existed when the watch began were reported. The rest is zero.
	IsCurrent bool
}

// Event is a fact worth keeping: a device was paired or revoked, or has used up its quota. Nothing in it is secret.
type Event struct {
	At     time.Time `json:"at"`
	Kind   string    `json:"kind"`
	Server string    `json:"server,omitempty"` // that reported it; empty: the operator
	Device string    `json:"device,omitempty"` // ID
	Name   string    `json:"name,omitempty"`   // of the device or server
	Text   string    `json:"text,omitempty"`
	// Number is the event's place in the stream. A Store sets it.
	Number uint64 `json:"number"`
}

// Store is an engine that the servers of a fleet share. Its implementations are filestore, for servers on
// one machine, and natsstore. The suite storetest says what both do.
//
// When Create, Update, Put or Delete has returned, the next change of that record sees what it did. But Get and
// ListUnder may return the former record for some milliseconds: another node of the engine may answer them. All errors
// but ErrNoRecord and ErrConflict are faults. Safe for concurrent use.
type Store interface {
	// Get returns a record, or ErrNoRecord.
	Get(ctx context.Context, b Bucket, key string) (Record, error)
	// ListUnder returns the records whose keys are one of the prefixes, a dot and a word without a dot. It takes few
	// requests for many prefixes.
	ListUnder(ctx context.Context, b Bucket, prefixes []string) ([]Record, error)
	// Create adds a record that ends after life (0: never). ErrConflict: there is one.
	Create(ctx context.Context, b Bucket, key string, value []byte, life time.Duration) (revision uint64, err error)
	// Update replaces a record if it has that revision. The new one ends after its Life. ErrConflict: it has
	// another revision, or there is none.
	Update(ctx context.Context, b Bucket, r Record) (revision uint64, err error)
	// Put adds or replaces a record. It is for keys with one writer.
	Put(ctx context.Context, b Bucket, key string, value []byte) (revision uint64, err error)
	// Delete ends a record if it has that revision. ErrConflict: it has not, or there is none.
	Delete(ctx context.Context, b Bucket, key string, revision uint64) error
	// Watch calls take with all records, then with IsCurrent, then with each change, in order, until ctx
	// ends, which is no error. It outlives losses of the engine: afterwards it goes on with what has
	// changed meanwhile. Of several changes of one record it may report the last one only. If it cannot find out what has
	// changed, it returns an error, and the caller must call Watch again. ErrReplaced says that the engine has lost its
	// records.
	Watch(ctx context.Context, b Bucket, take func(Change)) error
	// AddEvents adds events in their order. After an error some may have been added, and the caller may add all again.
	// An engine of several nodes keeps each once if that is soon.
	AddEvents(ctx context.Context, events ...Event) error
	// Events calls take with the events from a time on, oldest first, and with follow also with new ones until
	// ctx ends, which is no error.
	Events(ctx context.Context, from time.Time, follow bool, take func(Event)) error
	// CheckRoom returns a fault of kind Limit if the engine can hardly take more records of a bucket: it names that.
	CheckRoom(ctx context.Context) error
	// MakeRoom prepares the engine for what the operator writes next: it makes room where that was used up. It is for the
	// operator only. What it cannot do it logs: a write that finds no room fails.
	MakeRoom(ctx context.Context)
	// Describe describes the engine in a few words, for people.
	Describe() string
	// Close ends the use of the engine.
	Close()
}

// List returns all records of a bucket.
func List(ctx context.Context, s Store, b Bucket) (list []Record, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	isComplete := false
	err = s.Watch(ctx, b, func(c Change) {
		switch {
		case c.IsCurrent:
			isComplete = true
			cancel()
		case !c.IsGone && !isComplete:
			list = append(list, c.Record)
		}
	})
	if err == nil && !isComplete {
		err = context.Cause(ctx)
	}
	return list, err
}

// CheckKey returns an error unless key is valid: see MaxKey.
func CheckKey(key string) error {
	isOther := func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.'
	}
	if key == "" || len(key) > MaxKey || strings.ContainsFunc(key, isOther) || key[0] == '.' || key[len(key)-1] == '.' {
		return fault.New(fault.Usage, fmt.Errorf("key %.80q of a record is invalid", key), "")
	}
	return nil
}
