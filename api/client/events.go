// SPDX-License-Identifier: Apache-2.0

package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strconv"

	"mpbond/api"
	"mpbond/base/fault"
)

// maxEvent bounds a line of events.
const maxEvent = 64 << 10

// Now starts Events at the next event.
const Now = ^uint64(0)

// Update is one item of Events: an event, or the position of the reader. One of the fields is nil.
type Update struct {
	Change   *api.Event
	Position *api.Position // first; later after missed events, and now and then
}

// Events returns the events after the event with number after, as they happen: 0 for all that are
// kept, or Now. The sequence ends with an error when mpbond or ctx ends. A reader that is too slow
// gets a Position with the number of missed events.
func (c *Client) Events(ctx context.Context, after uint64) iter.Seq2[Update, error] {
	return func(yield func(Update, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		path := "/v2/events"
		if after != Now {
			path += "?after=" + strconv.FormatUint(after, 10)
		}
		answer, err := c.sendAPIRequest(ctx, http.MethodGet, path, nil)
		if err != nil {
			yield(Update{}, err)
			return
		}
		defer answer.Body.Close()
		err = readEventStream(answer.Body, func(n Update) bool { return yield(n, nil) })
		if err != nil {
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			yield(Update{}, err)
		}
	}
}

// readEventStream passes the events of a text/event-stream to take until that returns false. It
// skips unknown kinds.
func readEventStream(r io.Reader, take func(Update) bool) error {
	in := bufio.NewScanner(r)
	in.Buffer(make([]byte, 4096), maxEvent)
	var kind string
	var data []byte
	for in.Scan() {
		name, value, _ := bytes.Cut(in.Bytes(), []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "event":
			kind = string(value)
		case "data":
			data = append(data[:0], value...)
		case "":
			if len(in.Bytes()) > 0 {
				continue // a comment
			}
			n, known, err := parseUpdate(kind, data)
			if err != nil {
				return err
			}
			if known && !take(n) {
				return nil
			}
			kind, data = "", data[:0]
		}
	}
	if err := in.Err(); err != nil {
		return fault.New(fault.Protocol, fmt.Errorf("events: %w", err), "")
	}
	return fault.New(
		fault.NotRunning,
		fmt.Errorf("events: mpbond has ended"),
		"when it runs, ask for events after the last seq",
	)
}

// parseUpdate decodes one event.
func parseUpdate(kind string, data []byte) (n Update, known bool, err error) {
	switch kind {
	case "change":
		n.Change = new(api.Event)
		err = json.Unmarshal(data, n.Change)
	case "position":
		n.Position = new(api.Position)
		err = json.Unmarshal(data, n.Position)
	default:
		return n, false, nil
	}
	if err != nil {
		err = fault.New(fault.Protocol, fmt.Errorf("events: %w", err), "is the running mpbond of the same version?")
	}
	return n, true, err
}
