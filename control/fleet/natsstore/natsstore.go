// SPDX-License-Identifier: Apache-2.0

// Package natsstore keeps the records of a fleet in NATS JetStream: each bucket of package fleet is a key-value
// bucket, events are a stream. It alone knows NATS.
package natsstore

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"mpbond/base/fault"
	"mpbond/base/natsconn"
	"mpbond/control/fleet"
)

const (
	// prefix begins the names of all buckets and streams, so that an account can hold other things too.
	prefix = "mpbond-"
	// eventStream and eventSubject are the names of the stream of events and of its subject.
	eventStream, eventSubject = "mpbond-events", "mpbond.events"
	// reconnectWait is the wait between two tries to reach a node.
	reconnectWait = 500 * time.Millisecond
	// markerLife is how long the engine remembers that a record has ended, for those that watch.
	markerLife = time.Hour
	// maxEvents bounds the stream of events.
	maxEvents = 1_000_000
	// setupTimeout bounds the making of buckets.
	setupTimeout = 10 * time.Second
	// silenceLimit is how long writes may stay without an answer before another node is asked.
	silenceLimit = 3 * time.Second
	// minServer is the oldest NATS server with all that this package uses: lives of single records.
	minServer = "2.12"
)

// Config says how to reach the engine.
type Config struct {
	// URLs are the addresses of nodes: "nats://HOST:PORT" or "tls://HOST:PORT", separated by commas.
	URLs string
	// Creds is a file with the credentials of a user: that of an account's JWT, or a seed of an NKey. "": none.
	Creds string
	// CA is a file with the certificate of the authority that signs for the nodes; "": those of the system.
	CA string
	// Name is the name of this client, for the engine's operator.
	Name string
	// User is the server or permit service whose credentials these are; "": the fleet's operator, whose writes make room
	// in a full bucket. Answers to a user go to a subject of its own, so that no other one may read them. Its consumers
	// have its name.
	User string
	Log  *slog.Logger
	// inOrder tries the nodes in their order; in tests.
	inOrder bool
	// room bounds each bucket, in bytes. Tests set it; 0 leaves the bounds of roomOf.
	room int64
}

// Store is a fleet.Store in NATS.
type Store struct {
	conn    *nats.Conn
	js      jetstream.JetStream
	buckets map[fleet.Bucket]jetstream.KeyValue
	urls    string
	room    int64 // Config.room
	log     *slog.Logger
	denied  atomic.Pointer[denial]
	user    string // Config.User

	mu          sync.Mutex
	silentSince time.Time // when a write first had no answer, of those after the last answer; zero: none
}

// denial is the engine's word that a request is not allowed.
type denial struct {
	at  time.Time
	err error
}

// publishTimeout is how long an event waits for its confirmation, after which nobody waits for it any more.
const publishTimeout = 10 * time.Second

// Open connects to the engine, and makes the buckets that are missing, with three replicas where there are
// three nodes. Errors are faults: Unreachable if no node answers, Permission if it refuses the credentials, Unsupported
// if it has no JetStream or is too old.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	s := &Store{buckets: map[fleet.Bucket]jetstream.KeyValue{}, urls: natsconn.HideSecrets(cfg.URLs), room: cfg.room,
		log: cfg.Log, user: cfg.User}
	opts, err := natsconn.Options(cfg.Name, cfg.Creds, cfg.CA)
	if err != nil {
		return nil, err
	}
	opts = append(opts, nats.ReconnectWait(reconnectWait), nats.IgnoreAuthErrorAbort(),
		nats.ReconnectBufSize(-1), // what cannot be sent fails at once, and its caller tries again
		nats.PingInterval(2*time.Second), nats.MaxPingsOutstanding(2), nats.Timeout(3*time.Second),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
			cfg.Log.Debug("the fleet's engine reports an error", "err", err)
			if errors.Is(err, nats.ErrPermissionViolation) {
				s.denied.Store(&denial{time.Now(), err})
			}
		}))
	if cfg.User != "" {
		opts = append(opts, nats.CustomInboxPrefix("_INBOX_"+cfg.User))
	}
	if cfg.inOrder {
		opts = append(opts, nats.DontRandomize())
	}
	conn, err := nats.Connect(cfg.URLs, opts...)
	if err != nil {
		return nil, explainConnectError(err, s.urls)
	}
	s.conn = conn
	if s.js, err = jetstream.New(conn, jetstream.WithPublishAsyncTimeout(publishTimeout)); err == nil {
		err = s.makeBuckets(ctx)
	}
	if err != nil {
		conn.Close()
		return nil, s.explain(err)
	}
	return s, nil
}

// explainConnectError makes a failure to connect a fault.
func explainConnectError(err error, urls string) error {
	var invalid x509.CertificateInvalidError
	switch {
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrAuthExpired), errors.Is(err,
		nats.ErrAuthRevoked),
		errors.Is(err, nats.ErrNkeysNotSupported):
		return fault.New(fault.Permission, fmt.Errorf("the engine %s refuses these credentials: %w", urls, err),
			"name a file with valid ones by --creds")
	case errors.Is(err, nats.ErrSecureConnRequired):
		return fault.New(fault.Config, fmt.Errorf("the engine %s requires TLS", urls),
			"write tls:// instead of nats://")
	case errors.Is(err, nats.ErrSecureConnWanted):
		return fault.New(fault.Config, fmt.Errorf("the engine %s has no TLS", urls),
			"write nats:// instead of tls://, or give its nodes certificates")
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired: // or not valid yet
		return fault.New(fault.WrongKey, fmt.Errorf("the certificate of the engine %s is not valid now: %w", urls, err),
			"check the clock of this machine; if it is right, the engine's operator renews the certificate")
	case strings.Contains(err.Error(), "x509:"), strings.Contains(err.Error(), "tls:"):
		return fault.New(fault.WrongKey, fmt.Errorf("the certificate of the engine %s is not valid: %w", urls, err),
			"--fleet-ca names the certificate of the authority that signs for its nodes")
	}
	return fault.New(fault.Unreachable, fmt.Errorf("the engine %s does not answer: %w", urls, err),
		"check the addresses, the firewall, and that nats-server runs there")
}

// explain makes an error of the engine a fault. A request without the right to make it is not answered: the engine says
// so apart.
func (s *Store) explain(err error) error {
	var done *fault.Error
	switch {
	case err == nil || errors.As(err, &done):
		return err
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount),
		errors.Is(err, nats.ErrNoResponders):
		return fault.New(fault.Unsupported,
			fmt.Errorf("the engine has no JetStream for this user, or no leader now: %w", err),
			"its operator puts `jetstream {}` into the configuration, and enables it for the account; a node whose "+
				"disk was full needs room and a restart, one of another region its connection to the others")
	case errors.Is(err, jetstream.ErrLimitMarkerTTLNotSupported):
		return fault.New(fault.Unsupported, fmt.Errorf("the engine is too old: %w", err),
			"install nats-server "+minServer+
				" or later on all its nodes")
	case s.recentDenial() != nil:
		return fault.New(fault.Permission, s.recentDenial(),
			"these credentials may not do that: docs/howto/fleet.md lists what each needs")
	case isFull(err):
		return fault.New(fault.Limit, fmt.Errorf("the engine has no room: %w", err), "`mpbond fleet status` names a bucket "+
			"that is full; else free disk space on its nodes, or raise max_file_store there: a fleet reserves 2.1 GB of it")
	}
	return fault.New(fault.Unreachable, fmt.Errorf("the engine does not answer: %w", err),
		"check that nats-server runs")
}

// recentDenial returns the newest denial of the last seconds, nil if there is none.
func (s *Store) recentDenial() error {
	if d := s.denied.Load(); d != nil && time.Since(d.at) < setupTimeout {
		return d.err
	}
	return nil
}

// makeBuckets opens all buckets and the stream of events, and makes those that are missing.
func (s *Store) makeBuckets(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, setupTimeout)
	defer cancel()
	err := s.ask(ctx, func(ctx context.Context) error {
		_, err := s.js.AccountInfo(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if err := s.openBuckets(ctx); err != nil {
		return err
	}
	for _, b := range fleet.Buckets() {
		if s.buckets[b] != nil {
			continue
		}
		err := s.ask(ctx, func(ctx context.Context) (err error) {
			s.buckets[b], err = s.makeBucket(ctx, b)
			return err
		})
		if isOptional := b == fleet.Permits || b == fleet.Loads; isOptional && fault.Is(err, fault.NotFound) {
			s.denied.Store(nil) // the fleet is older than the bucket, which servers do not need
			continue
		}
		if err != nil {
			return fmt.Errorf("bucket %s: %w", b, err)
		}
	}
	return s.ask(ctx, func(ctx context.Context) error {
		_, err := s.js.Stream(ctx, eventStream)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			err = s.replicate(func(replicas int) (err error) {
				_, err = s.js.CreateStream(ctx, jetstream.StreamConfig{Name: eventStream,
					Subjects: []string{eventSubject}, Replicas: replicas, MaxAge: fleet.EventLife, MaxMsgs: maxEvents,
					MaxMsgSize: fleet.MaxValue, MaxBytes: eventsRoom, Discard: jetstream.DiscardOld})
				return err
			})
			if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
				err = nil
			}
		}
		return err
	})
}

// openBuckets opens the buckets that are there, all at once: the engine may be far away.
func (s *Store) openBuckets(ctx context.Context) error {
	list := fleet.Buckets()
	opened := make([]jetstream.KeyValue, len(list))
	var g errgroup.Group
	for i, b := range list {
		g.Go(func() error {
			err := s.ask(ctx, func(ctx context.Context) (err error) {
				opened[i], err = s.js.KeyValue(ctx, prefix+string(b))
				return err
			})
			if err != nil && !errors.Is(err, jetstream.ErrBucketNotFound) {
				return fmt.Errorf("bucket %s: %w", b, err)
			}
			return nil
		})
	}
	err := g.Wait()
	for i, b := range list {
		if opened[i] != nil {
			s.buckets[b] = opened[i]
		}
	}
	return err
}

// makeBucket makes a bucket, or opens it if another process was faster.
func (s *Store) makeBucket(ctx context.Context, b fleet.Bucket) (kv jetstream.KeyValue, err error) {
	err = s.replicate(func(replicas int) (err error) {
		kv, err = s.js.CreateKeyValue(ctx, jetstream.KeyValueConfig{Bucket: prefix + string(b), History: 1,
			MaxValueSize: fleet.MaxValue, MaxBytes: s.roomOf(b), TTL: fleet.RecordLife(b), Replicas: replicas,
			LimitMarkerTTL: markerLife})
		return err
	})
	switch {
	case err != nil && s.recentDenial() != nil:
		return nil, fault.New(fault.NotFound, errors.New("there is no fleet on this engine"),
			"the fleet's operator makes one: mpbond fleet init NAME; servers may make no buckets")
	case errors.Is(err, jetstream.ErrBucketExists):
		return s.js.KeyValue(ctx, prefix+string(b))
	}
	return kv, err
}

// maxReplicas is how many replicas a bucket has where there are so many nodes.
const maxReplicas = 3

// replicate calls create with maxReplicas, and with one if there are fewer nodes: two have no majority without either.
// The engine decides, since a node of another region knows only its neighbours. But where this client knows of enough
// nodes, some of them do not run now, and the error stays, as where they have no room.
func (s *Store) replicate(create func(replicas int) error) error {
	err := create(maxReplicas)
	known := max(len(s.conn.DiscoveredServers()), len(s.conn.Servers()))
	var api *jetstream.APIError
	if errors.As(err, &api) && (api.ErrorCode == errNotClustered ||
		api.ErrorCode == errNoPeers && known < maxReplicas && !isFull(err)) {
		err = create(1)
	}
	return err
}

// Codes of the engine's errors: it is one node, or has too few nodes for the replicas.
const errNotClustered, errNoPeers = 10074, 10005

// isFull reports whether the engine, or too many of its nodes, have no room for what it should keep.
func isFull(err error) bool {
	var api *jetstream.APIError
	if !errors.As(err, &api) {
		return false
	}
	switch api.ErrorCode {
	case 10023, 10047, 10077:
		return true
	case errNoPeers:
		return strings.Contains(api.Description, "insufficient storage")
	}
	return false
}

// ask calls f until it is answered or ctx ends. Nodes that have no leader yet, of all or of one bucket, leave a request
// without an answer: so it is repeated, with more time each time, later at another node.
func (s *Store) ask(ctx context.Context, f func(context.Context) error) error {
	for wait := reconnectWait; ; wait *= 2 {
		asking, cancel := context.WithTimeout(ctx, wait)
		err := f(asking)
		isReconnecting := errors.Is(err, nats.ErrReconnectBufExceeded) || errors.Is(err, nats.ErrConnectionReconnecting)
		canRepeat := isReconnecting || natsconn.IsUnanswered(err)
		if canRepeat && s.recentDenial() == nil {
			<-asking.Done()
		}
		cancel()
		if !canRepeat || ctx.Err() != nil || s.recentDenial() != nil {
			return err
		}
		if wait >= silenceLimit/2 && !isReconnecting {
			s.changeNode()
		}
	}
}

// changeNode connects to another node, if there is one. This one may be cut off from the others, which serve on.
func (s *Store) changeNode() {
	if s.conn.IsConnected() {
		s.log.Debug("asking another node of the fleet's engine", "instead_of", s.conn.ConnectedUrlRedacted())
		_ = s.conn.ForceReconnect() // else it is closed
	}
}

// explainWrite does what explain does for a write, and changes the node if writes have had no answer for silenceLimit.
// Reads do not count: a node that is cut off answers them by what it knows.
func (s *Store) explainWrite(err error) error {
	isSilent := natsconn.IsUnanswered(err) || errors.Is(err, nats.ErrNoResponders) || errors.Is(err,
		jetstream.ErrNoStreamResponse)
	s.mu.Lock()
	isLong := isSilent && !s.silentSince.IsZero() && time.Since(s.silentSince) >= silenceLimit
	switch {
	case isSilent && (s.silentSince.IsZero() || isLong):
		s.silentSince = time.Now()
	case err == nil:
		s.silentSince = time.Time{}
	}
	s.mu.Unlock()
	if isLong && s.recentDenial() == nil {
		s.changeNode()
	}
	return s.explain(err)
}

// Describe implements fleet.Store.
func (s *Store) Describe() string { return s.urls }

// Close implements fleet.Store.
func (s *Store) Close() { s.conn.Close() }

// bucket returns a bucket, or an error unless a request with that key and value can be made now.
func (s *Store) bucket(b fleet.Bucket, key string, value []byte) (jetstream.KeyValue, error) {
	if err := fleet.CheckKey(key); err != nil {
		return nil, err
	}
	if len(value) > fleet.MaxValue {
		return nil, fault.New(fault.Limit, fmt.Errorf("record %q of %d bytes", key, len(value)), "")
	}
	kv := s.buckets[b]
	if kv == nil {
		return nil, fault.New(fault.NotFound, fmt.Errorf("the engine has no bucket %s", prefix+string(b)),
			"an older mpbond made the fleet: its operator runs `mpbond fleet status` with this one; then start this again")
	}
	return kv, nil
}

// Get implements fleet.Store.
func (s *Store) Get(ctx context.Context, b fleet.Bucket, key string) (fleet.Record, error) {
	kv, err := s.bucket(b, key, nil)
	if err != nil {
		return fleet.Record{}, err
	}
	e, err := kv.Get(ctx, key)
	if errors.Is(err, jetstream.ErrKeyNotFound) || errors.Is(err, jetstream.ErrKeyDeleted) {
		return fleet.Record{}, fleet.ErrNoRecord
	}
	if err != nil {
		return fleet.Record{}, s.explain(err)
	}
	return fleet.Record{Key: key, Value: e.Value(), Revision: e.Revision()}, nil
}

// Create implements fleet.Store.
func (s *Store) Create(ctx context.Context, b fleet.Bucket, key string, value []byte, life time.Duration) (uint64,
	error) {
	kv, err := s.bucket(b, key, value)
	if err != nil {
		return 0, err
	}
	var opts []jetstream.KVCreateOpt
	if life > 0 {
		opts = append(opts, jetstream.KeyTTL(wholeSeconds(life)))
	}
	var revision uint64
	err = s.writeInRoom(ctx, b, func() (err error) {
		revision, err = kv.Create(ctx, key, value, opts...)
		return err
	})
	if errors.Is(err, jetstream.ErrKeyExists) {
		return 0, fleet.ErrConflict
	}
	return revision, s.explainWrite(err)
}

// Update implements fleet.Store.
func (s *Store) Update(ctx context.Context, b fleet.Bucket, r fleet.Record) (uint64, error) {
	kv, err := s.bucket(b, r.Key, r.Value)
	if err != nil {
		return 0, err
	}
	if r.Revision == 0 {
		return 0, fleet.ErrConflict
	}
	var revision uint64
	err = s.writeInRoom(ctx, b, func() (err error) {
		revision, err = s.update(ctx, kv, b, r)
		return err
	})
	var api *jetstream.APIError
	if errors.Is(err, jetstream.ErrKeyRevisionMismatch) ||
		errors.As(err, &api) && (api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence ||
			api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant) {
		return 0, fleet.ErrConflict
	}
	return revision, s.explainWrite(err)
}

// update replaces a record. The library has no update with a life, so that is a message to the stream behind the
// bucket.
func (s *Store) update(ctx context.Context, kv jetstream.KeyValue, b fleet.Bucket, r fleet.Record) (uint64, error) {
	if r.Life == 0 {
		return kv.Update(ctx, r.Key, r.Value, r.Revision)
	}
	ack, err := s.js.Publish(ctx, "$KV."+prefix+string(b)+"."+r.Key, r.Value,
		jetstream.WithExpectLastSequencePerSubject(r.Revision), jetstream.WithMsgTTL(wholeSeconds(r.Life)))
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// wholeSeconds returns a life that the engine accepts.
func wholeSeconds(life time.Duration) time.Duration {
	return max(life.Round(time.Second), time.Second)
}

// Put implements fleet.Store.
func (s *Store) Put(ctx context.Context, b fleet.Bucket, key string, value []byte) (uint64, error) {
	kv, err := s.bucket(b, key, value)
	if err != nil {
		return 0, err
	}
	var revision uint64
	err = s.writeInRoom(ctx, b, func() (err error) {
		revision, err = kv.Put(ctx, key, value)
		return err
	})
	return revision, s.explainWrite(err)
}

// Delete implements fleet.Store.
func (s *Store) Delete(ctx context.Context, b fleet.Bucket, key string, revision uint64) error {
	kv, err := s.bucket(b, key, nil)
	if err != nil {
		return err
	}
	if revision == 0 {
		return fleet.ErrConflict
	}
	err = kv.Delete(ctx, key, jetstream.LastRevision(revision))
	if errors.Is(err, jetstream.ErrKeyRevisionMismatch) || errors.Is(err, jetstream.ErrKeyExists) {
		return fleet.ErrConflict
	}
	return s.explainWrite(err)
}

// AddEvents implements fleet.Store. All are on their way before the first is confirmed.
func (s *Store) AddEvents(ctx context.Context, events ...fleet.Event) error {
	var confirmations []jetstream.PubAckFuture
	for _, e := range events {
		body, err := json.Marshal(e)
		if err != nil {
			return err
		}
		c, err := s.js.PublishAsync(eventSubject, body, jetstream.WithMsgID(fmt.Sprintf("%x", sha256.Sum256(body))))
		if err != nil {
			return s.explainWrite(err)
		}
		confirmations = append(confirmations, c)
	}
	for _, c := range confirmations {
		select {
		case <-c.Ok():
		case err := <-c.Err():
			return s.explainWrite(err)
		case <-ctx.Done():
			return s.explainWrite(ctx.Err())
		}
	}
	return nil
}

// Events implements fleet.Store.
func (s *Store) Events(ctx context.Context, from time.Time, follow bool, take func(fleet.Event)) error {
	cfg := jetstream.OrderedConsumerConfig{DeliverPolicy: jetstream.DeliverAllPolicy}
	if !from.IsZero() {
		cfg.DeliverPolicy, cfg.OptStartTime = jetstream.DeliverByStartTimePolicy, &from
	}
	stream, err := s.js.Stream(ctx, eventStream)
	if err != nil {
		return s.explain(err)
	}
	last := stream.CachedInfo().State.LastSeq
	if last == 0 && !follow {
		return nil
	}
	c, err := stream.OrderedConsumer(ctx, cfg)
	if err != nil {
		return s.explain(err)
	}
	if !follow && c.CachedInfo().NumPending == 0 {
		return nil
	}
	messages, err := c.Messages()
	if err != nil {
		return s.explain(err)
	}
	defer messages.Stop()
	stop := context.AfterFunc(ctx, messages.Stop)
	defer stop()
	for {
		m, err := messages.Next()
		if ctx.Err() != nil || errors.Is(err, jetstream.ErrMsgIteratorClosed) {
			return nil
		}
		if err != nil {
			return s.explain(err)
		}
		meta, err := m.Metadata()
		if err != nil {
			continue // not from the stream
		}
		var e fleet.Event
		if json.Unmarshal(m.Data(), &e) == nil {
			e.Number = meta.Sequence.Stream
			take(e)
		}
		if !follow && meta.Sequence.Stream >= last {
			return nil
		}
	}
}
