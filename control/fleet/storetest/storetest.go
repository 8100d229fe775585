// SPDX-License-Identifier: Apache-2.0

// Package storetest tests what every fleet.Store promises. It has no part in the data path.
package storetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"mpbond/base/fault"
	"mpbond/base/waittest"
	"mpbond/control/fleet"
)

// Run runs the suite. open returns two users of one new, empty engine, which stay open until the test ends.
func Run(t *testing.T, open func(t *testing.T) (a, b fleet.Store)) {
	for name, test := range map[string]func(t *testing.T, a, b fleet.Store){
		"revisions": testRevisions, "one winner": testOneWinner, "no lost update": testNoLostUpdate,
		"lives": testLives, "watch": testWatch, "watch many": testWatchMany, "limits": testLimits,
		"events": testEvents, "list": testList, "buckets": testBuckets,
		"cells": testCells, "list under": testListUnder,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // lives last seconds
			a, b := open(t)
			test(t, a, b)
		})
	}
}

// must returns v, and fails the test if there is an error.
func must[V any](v V, err error) func(t *testing.T) V {
	return func(t *testing.T) V {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// testRevisions checks that changes apply to the revision they name only, at both users.
func testRevisions(t *testing.T, a, b fleet.Store) {
	ctx := t.Context()
	if _, err := a.Get(ctx, fleet.Devices, "x"); err != fleet.ErrNoRecord {
		t.Fatalf("a record that nobody made: %v", err)
	}
	first := must(a.Create(ctx, fleet.Devices, "x", []byte("1"), 0))(t)
	if _, err := b.Create(ctx, fleet.Devices, "x", []byte("2"), 0); err != fleet.ErrConflict {
		t.Errorf("created twice: %v", err)
	}
	r := must(b.Get(ctx, fleet.Devices, "x"))(t)
	if r.Key != "x" || string(r.Value) != "1" || r.Revision != first {
		t.Errorf("got %+v, want revision %d", r, first)
	}
	r.Value = []byte{0, 255, '\n'}
	second := must(b.Update(ctx, fleet.Devices, r))(t)
	if second <= first {
		t.Errorf("revision %d follows %d", second, first)
	}
	if _, err := a.Update(ctx, fleet.Devices, r); err != fleet.ErrConflict {
		t.Errorf("updated an old revision: %v", err)
	}
	if _, err := a.Update(ctx, fleet.Devices, fleet.Record{Key: "y", Value: []byte("1"),
		Revision: 1}); err != fleet.ErrConflict {
		t.Errorf("updated a record that is not there: %v", err)
	}
	if _, err := a.Update(ctx, fleet.Devices, fleet.Record{Key: "z", Value: []byte("1")}); err != fleet.ErrConflict {
		t.Errorf("updated without a revision: %v", err)
	}
	if got := must(a.Get(ctx, fleet.Devices, "x"))(t); !bytes.Equal(got.Value, r.Value) || got.Revision != second {
		t.Errorf("got %+v, want revision %d", got, second)
	}
	if err := a.Delete(ctx, fleet.Devices, "x", first); err != fleet.ErrConflict {
		t.Errorf("deleted an old revision: %v", err)
	}
	if err := a.Delete(ctx, fleet.Devices, "x", 0); err != fleet.ErrConflict {
		t.Errorf("deleted without a revision: %v", err)
	}
	if err := a.Delete(ctx, fleet.Devices, "x", second); err != nil {
		t.Fatal(err)
	}
	if err := b.Delete(ctx, fleet.Devices, "x", second); err != fleet.ErrConflict {
		t.Errorf("deleted twice: %v", err)
	}
	if _, err := b.Get(ctx, fleet.Devices, "x"); err != fleet.ErrNoRecord {
		t.Errorf("a deleted record: %v", err)
	}
	third := must(b.Create(ctx, fleet.Devices, "x", []byte("3"), 0))(t)
	if third <= second {
		t.Errorf("revision %d follows %d", third, second)
	}
	fourth := must(a.Put(ctx, fleet.Devices, "x", []byte("4")))(t)
	if got := must(b.Get(ctx, fleet.Devices, "x"))(t); fourth <= third || string(got.Value) != "4" ||
		got.Revision != fourth {
		t.Errorf("after Put: %+v", got)
	}
}

// testOneWinner checks that one of many concurrent users makes, and one ends, a record.
func testOneWinner(t *testing.T, a, b fleet.Store) {
	for round := range 20 {
		key := fmt.Sprintf("code-%d", round)
		expectOneWinner(t, a, b, func(s fleet.Store, i int) error {
			_, err := s.Create(t.Context(), fleet.Codes, key, fmt.Appendf(nil, "%d", i), time.Hour)
			return err
		})
		r := must(a.Get(t.Context(), fleet.Codes, key))(t)
		expectOneWinner(t, a, b, func(s fleet.Store, i int) error { // as two devices use one code
			used := r
			used.Value, used.Life = fmt.Appendf(nil, "used by %d", i), time.Hour
			_, err := s.Update(t.Context(), fleet.Codes, used)
			return err
		})
		r = must(a.Get(t.Context(), fleet.Codes, key))(t)
		expectOneWinner(t, a, b, func(s fleet.Store, _ int) error {
			return s.Delete(t.Context(), fleet.Codes, key, r.Revision)
		})
	}
}

// expectOneWinner calls f ten times concurrently, and fails unless exactly one call succeeds.
func expectOneWinner(t *testing.T, a, b fleet.Store, f func(s fleet.Store, i int) error) {
	t.Helper()
	var g sync.WaitGroup
	var won atomic.Int64
	for i := range 10 {
		g.Go(func() {
			s := a
			if i%2 == 1 {
				s = b
			}
			switch err := f(s, i); err {
			case nil:
				won.Add(1)
			case fleet.ErrConflict:
			default:
				t.Error(err)
			}
		})
	}
	g.Wait()
	if won.Load() != 1 {
		t.Errorf("%d calls succeeded", won.Load())
	}
}

// testNoLostUpdate checks that concurrent users who read, change and update lose no change.
func testNoLostUpdate(t *testing.T, a, b fleet.Store) {
	ctx := t.Context()
	must(a.Create(ctx, fleet.UsageCounts, "sum", make([]byte, 8), 0))(t)
	const users, each = 6, 20
	var g sync.WaitGroup
	for i := range users {
		g.Go(func() {
			s := a
			if i%2 == 1 {
				s = b
			}
			for done := 0; done < each; {
				r, err := s.Get(ctx, fleet.UsageCounts, "sum")
				if err != nil {
					t.Error(err)
					return
				}
				r.Value = binary.BigEndian.AppendUint64(nil, binary.BigEndian.Uint64(r.Value)+1)
				switch _, err := s.Update(ctx, fleet.UsageCounts, r); {
				case err == nil:
					done++
				case !errors.Is(err, fleet.ErrConflict):
					t.Error(err)
					return
				}
			}
		})
	}
	g.Wait()
	if n := binary.BigEndian.Uint64(must(b.Get(ctx, fleet.UsageCounts, "sum"))(t).Value); n != users*each {
		t.Errorf("the sum is %d instead of %d", n, users*each)
	}
}

// testListUnder checks that records are listed by the beginnings of their keys.
func testListUnder(t *testing.T, a, b fleet.Store) {
	ctx := t.Context()
	list := func(prefixes ...string) string {
		t.Helper()
		var text []string
		for _, r := range must(b.ListUnder(ctx, fleet.UsageCounts, prefixes))(t) {
			if now, err := b.Get(ctx, fleet.UsageCounts, r.Key); err != nil || now.Revision != r.Revision {
				t.Errorf("%s has revision %d in the list, and else %d: %v", r.Key, r.Revision, now.Revision, err)
			}
			text = append(text, r.Key+"="+string(r.Value))
		}
		slices.Sort(text)
		return strings.Join(text, " ")
	}
	if got := list("d1", "d2"); got != "" {
		t.Errorf("an empty bucket has %s", got)
	}
	revisions := map[string]uint64{}
	for _, key := range []string{"d1.eu1", "d1.eu2", "d1", "d1.eu1.x", "d10.eu1", "d2.eu1", "d2.eu2", "d3.eu1"} {
		revisions[key] = must(a.Put(ctx, fleet.UsageCounts, key, []byte("1")))(t)
	}
	must(a.Put(ctx, fleet.UsageCounts, "d1.eu2", []byte("2")))(t)
	if err := a.Delete(ctx, fleet.UsageCounts, "d2.eu1", revisions["d2.eu1"]); err != nil {
		t.Fatal(err)
	}
	if got, want := list("d1", "d2", "d4"), "d1.eu1=1 d1.eu2=2 d2.eu2=1"; got != want {
		t.Errorf("%q instead of %q", got, want)
	}
	if _, err := a.ListUnder(ctx, fleet.UsageCounts, []string{"d1", "*"}); !fault.Is(err, fault.Usage) {
		t.Errorf("a pattern: %v", err)
	}
}

// testLimits checks keys and sizes.
func testLimits(t *testing.T, a, b fleet.Store) {
	ctx := t.Context()
	for _, key := range []string{"", ".", "a/b", "../x", "a b", "a*", "a>", "ä", ".a", "a.", string(make([]byte,
		fleet.MaxKey+1))} {
		_, create := a.Create(ctx, fleet.Devices, key, []byte("1"), 0)
		_, put := a.Put(ctx, fleet.Devices, key, []byte("1"))
		_, get := a.Get(ctx, fleet.Devices, key)
		for _, err := range []error{create, put, get, a.Delete(ctx, fleet.Devices, key, 1)} {
			if !fault.Is(err, fault.Usage) {
				t.Errorf("key %q: %v", key, err)
			}
		}
	}
	big := bytes.Repeat([]byte{7}, fleet.MaxValue)
	must(a.Put(ctx, fleet.Devices, "big", big))(t)
	if got := must(b.Get(ctx, fleet.Devices, "big"))(t); !bytes.Equal(got.Value, big) {
		t.Error("a value of the largest size has changed")
	}
	if _, err := a.Put(ctx, fleet.Devices, "bigger", append(big, 7)); !fault.Is(err, fault.Limit) {
		t.Errorf("a value that is too large: %v", err)
	}
	for _, key := range []string{"mpb1abcxyz", "A-B_c.d", "beat.eu-west-1", "K7QF-3M2A-XT5B-Y2JD.eu1"} {
		must(a.Put(ctx, fleet.Devices, key, nil))(t)
	}
}

// testBuckets checks that a key in one bucket is another one in the next.
func testBuckets(t *testing.T, a, b fleet.Store) {
	for _, bucket := range fleet.Buckets() {
		must(a.Create(t.Context(), bucket, "same", []byte(bucket), 0))(t)
	}
	for _, bucket := range fleet.Buckets() {
		if r := must(b.Get(t.Context(), bucket, "same"))(t); string(r.Value) != string(bucket) {
			t.Errorf("%s has %q", bucket, r.Value)
		}
	}
}

// testCells checks what permit services share.
func testCells(t *testing.T, a, b fleet.Store) {
	ctx := t.Context()
	first, second := must(fleet.NewCells(a, "p1"))(t), must(fleet.NewCells(b, "p2"))(t)
	if _, revision, err := first.ReadPermits(ctx, "north"); revision != 0 || err != nil {
		t.Errorf("permits that nobody wrote: %d, %v", revision, err)
	}
	replace := func(c *fleet.Cells, text string, revision uint64, want bool) {
		t.Helper()
		if done, err := c.ReplacePermits(ctx, "north", []byte(text), revision); done != want || err != nil {
			t.Errorf("%s: replaced: %v, %v", text, done, err)
		}
	}
	read := func(c *fleet.Cells, want string) (revision uint64) {
		t.Helper()
		text, revision, err := c.ReadPermits(ctx, "north")
		if string(text) != want || revision == 0 || err != nil {
			t.Errorf("permits %q, %d, %v", text, revision, err)
		}
		return revision
	}
	replace(first, "1", 0, true)
	replace(second, "2", 0, false)
	revision := read(second, "1")
	replace(second, "3", revision, true)
	replace(first, "4", revision, false)
	read(first, "3")

	var mu sync.Mutex
	var loads []string
	if err := first.WriteLoad(ctx, "north", []byte("10")); err != nil {
		t.Fatal(err)
	}
	if err := second.WriteLoad(ctx, "north", []byte("20")); err != nil {
		t.Fatal(err)
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	done := make(chan error, 1)
	go func() {
		done <- second.WatchLoads(watching, func(service, cell string, load []byte) {
			mu.Lock()
			defer mu.Unlock()
			loads = append(loads, service+" "+cell+" "+string(load))
		})
	}()
	awaitChanges := func(want ...string) {
		t.Helper()
		waittest.UntilSuccess(t, func() error {
			mu.Lock()
			defer mu.Unlock()
			if !slices.Equal(loads, want) {
				return fmt.Errorf("loads %q instead of %q", loads, want)
			}
			return nil
		})
	}
	awaitChanges("p1 north 10")
	for _, load := range []string{"11", "12"} {
		if err := first.WriteLoad(ctx, "south", []byte(load)); err != nil {
			t.Fatal(err)
		}
		if load == "11" {
			awaitChanges("p1 north 10", "p1 south 11")
		}
	}
	awaitChanges("p1 north 10", "p1 south 11", "p1 south 12")
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for name, valid := range map[string]bool{"north": true, "a-b_C9": true, "": false, "a.b": false, "a/b": false,
		"a*": false, strings.Repeat("c", 65): false} {
		if err := fleet.CheckCell(name); (err == nil) != valid {
			t.Errorf("cell %q: %v", name, err)
		}
	}
	if _, err := fleet.NewCells(a, "a b"); !fault.Is(err, fault.Config) {
		t.Errorf("a service with a bad name: %v", err)
	}
}

// testList checks List.
func testList(t *testing.T, a, b fleet.Store) {
	ctx := t.Context()
	if list := must(fleet.List(ctx, a, fleet.Orders))(t); len(list) != 0 {
		t.Errorf("an empty bucket has %v", list)
	}
	for i := range 50 {
		must(a.Put(ctx, fleet.Orders, fmt.Sprint(i), []byte("1")))(t)
	}
	r := must(a.Get(ctx, fleet.Orders, "7"))(t)
	if err := a.Delete(ctx, fleet.Orders, "7", r.Revision); err != nil {
		t.Fatal(err)
	}
	list := must(fleet.List(ctx, b, fleet.Orders))(t)
	if len(list) != 49 || slices.ContainsFunc(list, func(r fleet.Record) bool { return r.Key == "7" }) {
		t.Errorf("%d records", len(list))
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := fleet.List(ended, b, fleet.Orders); !errors.Is(err, context.Canceled) {
		t.Errorf("a list that was not read is no error: %v", err)
	}
}

// testEvents checks that events come in order, from a time on, and while they are added.
func testEvents(t *testing.T, a, b fleet.Store) {
	ctx := t.Context()
	read := func(from time.Time) (names []string) {
		if err := b.Events(ctx, from, false, func(e fleet.Event) { names = append(names, e.Name) }); err != nil {
			t.Error(err)
		}
		return names
	}
	if got := read(time.Time{}); len(got) != 0 {
		t.Errorf("no event was added, and there are %q", got)
	}
	add := func(s fleet.Store, names ...string) {
		var events []fleet.Event
		for _, name := range names {
			events = append(events, fleet.Event{At: time.Now().UTC(), Kind: "paired", Name: name, Text: "a \"b\"\nc"})
		}
		if err := s.AddEvents(ctx, events...); err != nil {
			t.Error(err)
		}
	}
	add(a, "1")
	add(b, "2")
	if got := read(time.Time{}); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("events are %q", got)
	}
	following, stop := context.WithCancel(ctx)
	defer stop()
	seen := make(chan fleet.Event, 10)
	ended := make(chan error, 1)
	go func() { ended <- b.Events(following, time.Time{}, true, func(e fleet.Event) { seen <- e }) }()
	last := uint64(0)
	expect := func(name string) {
		t.Helper()
		e := <-seen
		if e.Name != name || e.Number <= last || e.Text != "a \"b\"\nc" || e.Kind != "paired" ||
			time.Since(e.At) > time.Hour {
			t.Errorf("event %+v after %d, want %s", e, last, name)
		}
		last = e.Number
	}
	expect("1")
	expect("2")
	many := []string{"3"}
	for i := range 100 {
		many = append(many, fmt.Sprint("3.", i))
	}
	add(a, many...)
	for _, name := range many {
		expect(name)
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("the end of the context is an error: %v", err)
	}
	if got := read(time.Now().Add(time.Hour)); len(got) != 0 {
		t.Errorf("events of the future: %q", got)
	}
}
