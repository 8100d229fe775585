// SPDX-License-Identifier: Apache-2.0

package natsstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"mpbond/base/fault"
	"mpbond/control/fleet"
)

// maxPrefixes is how many prefixes a request names: with sixteen records each the engine still answers.
const maxPrefixes = 64

// maxLists is how many requests of one list are made at once: the engine may be far away.
const maxLists = 16

// ListUnder implements fleet.Store. The library has no request for the last messages of several subjects: ADR 31 of
// NATS describes it.
func (s *Store) ListUnder(ctx context.Context, b fleet.Bucket, prefixes []string) ([]fleet.Record, error) {
	parts := slices.Collect(slices.Chunk(prefixes, maxPrefixes))
	lists := make([][]fleet.Record, len(parts))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxLists)
	for i, part := range parts {
		g.Go(func() (err error) {
			lists[i], err = s.listPart(ctx, b, part)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return slices.Concat(lists...), nil
}

// listPart lists what is under some prefixes, in several requests if there are too many records for one.
func (s *Store) listPart(ctx context.Context, b fleet.Bucket, prefixes []string) ([]fleet.Record, error) {
	list, err := s.requestList(ctx, b, prefixes)
	if !errors.Is(err, errTooMany) || len(prefixes) == 1 {
		return list, s.explain(err)
	}
	half := len(prefixes) / 2
	first, err := s.listPart(ctx, b, prefixes[:half])
	if err != nil {
		return nil, err
	}
	second, err := s.listPart(ctx, b, prefixes[half:])
	return append(first, second...), err
}

// errTooMany means that the engine has too many records for one answer: more than 1024.
var errTooMany = fault.New(fault.Limit, errors.New("too many records under one prefix"), "")

// requestList asks for the newest records under some prefixes. The engine answers with a message for each, and one
// without a record at the end.
func (s *Store) requestList(ctx context.Context, b fleet.Bucket, prefixes []string) (list []fleet.Record, err error) {
	bucket := "$KV." + prefix + string(b) + "."
	var subjects []string
	for _, p := range prefixes {
		if err := fleet.CheckKey(p); err != nil {
			return nil, err
		}
		subjects = append(subjects, bucket+p+".*")
	}
	request, err := json.Marshal(map[string][]string{"multi_last": subjects})
	if err != nil {
		return nil, err
	}
	inbox := s.conn.NewInbox()
	answers, err := s.conn.SubscribeSync(inbox)
	if err != nil {
		return nil, err
	}
	defer func() { _ = answers.Unsubscribe() }()
	if err := s.conn.PublishRequest("$JS.API.DIRECT.GET.KV_"+prefix+string(b), inbox, request); err != nil {
		return nil, err
	}
	for {
		m, err := answers.NextMsgWithContext(ctx)
		if err != nil {
			return nil, err
		}
		switch status := m.Header.Get("Status"); status {
		case "":
		case "204", "404":
			return list, nil
		case "413":
			return nil, errTooMany
		default:
			return nil, fmt.Errorf("the engine refuses a list: %s %s", status, m.Header.Get("Description"))
		}
		if isGone(m.Header) {
			continue
		}
		revision, err := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
		key, ok := strings.CutPrefix(m.Header.Get("Nats-Subject"), bucket)
		if err != nil || !ok {
			return nil, errors.New("the engine answers with a message that is no record")
		}
		list = append(list, fleet.Record{Key: key, Value: m.Data, Revision: revision})
	}
}

// isGone reports whether a message says that a record has ended.
func isGone(h nats.Header) bool {
	return h.Get("KV-Operation") != "" || h.Get("Nats-Marker-Reason") != ""
}
