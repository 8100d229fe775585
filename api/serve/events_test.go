// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/danielgtaylor/huma/v2/sse"

	"mpbond/api"
	"mpbond/api/client"
	"mpbond/base/fault"
)

func openEvents(n uint64) api.Event {
	return api.Event{T: time.Unix(int64(n), 0).UTC(), Kind: "stream_open", Stream: n, Text: "example.org:443"}
}

// runClient serves a role on a socket until end is called, or the test ends.
func runClient(t *testing.T, r Role) (c *client.Client, end func()) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.sock")
	l, err := api.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := Run(ctx, l, r); err != nil {
			t.Error(err)
		}
	}()
	c = client.New(path)
	end = func() { cancel(); <-done }
	t.Cleanup(func() { end(); c.Close() })
	return c, end
}

// TestEvents: a reader gets later events, in order and with numbers. A returning reader gets what
// it missed. A reader notices when mpbond ends.
func TestEvents(t *testing.T) {
	feed := new(Feed)
	feed.Add(openEvents(1))
	c, end := runClient(t, Role{Status: exampleStatus, Feed: feed})
	var got []api.Event
	var last error
	for n, err := range c.Events(t.Context(), client.Now) {
		if last = err; err != nil {
			break
		}
		switch {
		case n.Position != nil:
			if *n.Position != (api.Position{Seq: 1}) {
				t.Errorf("it begins at %+v", *n.Position)
			}
			feed.Add(openEvents(2))
			feed.Add(openEvents(3))
		case n.Change.Seq == 3:
			got = append(got, *n.Change)
			go end()
		default:
			got = append(got, *n.Change)
		}
	}
	if !fault.Is(last, fault.NotRunning) {
		t.Errorf("the end of mpbond: %v", last)
	}
	want := []api.Event{openEvents(2), openEvents(3)}
	want[0].Seq, want[1].Seq = 2, 3
	if asJSON(t, got) != asJSON(t, want) {
		t.Errorf("got %s, want %s", asJSON(t, got), asJSON(t, want))
	}
}

func TestEventsAfter(t *testing.T) {
	feed := new(Feed)
	for n := range uint64(maxKeptEvents + 10) {
		feed.Add(openEvents(n + 1))
	}
	c, _ := runClient(t, Role{Status: exampleStatus, Feed: feed})
	for _, x := range []struct {
		after uint64
		begin api.Position
		next  uint64
	}{
		{0, api.Position{Seq: 10, MissedEvents: 10}, 11},
		{maxKeptEvents, api.Position{Seq: maxKeptEvents}, maxKeptEvents + 1},
		{maxKeptEvents + 500, api.Position{Seq: 10, MissedEvents: 10, Restarted: true}, 11},
	} {
		began := false
		for n, err := range c.Events(t.Context(), x.after) {
			if err != nil {
				t.Fatal(err)
			}
			if n.Change != nil {
				if !began || n.Change.Seq != x.next {
					t.Errorf("after %d: the first is %d, want %d", x.after, n.Change.Seq, x.next)
				}
				break
			}
			if began = true; *n.Position != x.begin {
				t.Errorf("after %d: it begins at %+v, want %+v", x.after, *n.Position, x.begin)
			}
		}
	}
}

// TestSlowReader: a reader that takes nothing blocks nobody, learns how many events it missed, and
// goes on with those that are kept.
func TestSlowReader(t *testing.T) {
	feed := new(Feed)
	r := Role{Feed: feed}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got []string
	err := r.sendRoleEvents(ctx, &eventsInput{}, func(m sse.Message) error {
		switch d := m.Data.(type) {
		case api.Position:
			got = append(got, fmt.Sprintf("at %d, %d missed", d.Seq, d.MissedEvents))
			if d.MissedEvents == 0 {
				feed.Add(openEvents(1)) // wakes it
			}
		case api.Event:
			switch d.Seq {
			case 1: // while it is busy with that one
				for n := range uint64(maxKeptEvents + 5) {
					feed.Add(openEvents(n + 2))
				}
			case 7:
				got = append(got, "then 7")
			case maxKeptEvents + 6:
				cancel()
			}
		}
		return nil
	})
	if err != context.Canceled || fmt.Sprint(got) != "[at 0, 0 missed at 6, 5 missed then 7]" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestTooManyReaders(t *testing.T) {
	c, end := runClient(t, Role{Status: exampleStatus, Feed: new(Feed)})
	full := make(chan struct{}, maxEventReaders)
	done := make(chan struct{}, maxEventReaders)
	for range maxEventReaders {
		go func() {
			for n := range c.Events(t.Context(), client.Now) {
				if n.Position != nil {
					full <- struct{}{}
				}
			}
			done <- struct{}{}
		}()
	}
	for range maxEventReaders {
		<-full
	}
	for _, err := range c.Events(t.Context(), client.Now) {
		if !fault.Is(err, fault.Limit) {
			t.Errorf("one reader more: %v", err)
		}
	}
	if _, err := c.Status(t.Context(), false); err != nil {
		t.Error(err)
	}
	end()
	for range maxEventReaders {
		<-done
	}
}

func TestEventsBadInput(t *testing.T) {
	for _, target := range []string{"/v2/events?after=-1", "/v2/events?after=x", "/v2/events?after=99999999999999999999",
		"/v2/events?before=1"} {
		if w := request(Role{Status: exampleStatus, Feed: new(Feed)}, "GET", target, ""); w.Code != 400 {
			t.Errorf("%s: %d %s", target, w.Code, w.Body)
		}
	}
}
