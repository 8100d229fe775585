// Package playlist is a proxy for video players on the same device. It stands between a
// player, which asks for one segment after the other, and a http.RoundTripper for each
// device, as package onload/fetch does: the segments that come next in a playlist are
// fetched ahead over all of them, in the order in which they are wanted, which package
// onload decides.
//
//	playlist.go  what it is told, and what came of it
//	proxy.go     requests of players: forwarded, or served from the shelf
//	library.go   playlists that players have loaded, and where the players are
//	shelf.go     what is being fetched ahead, and what not any more
//	queue.go     segments on the board
//	engine.go    the task of package transfer, and ends of jobs
//	job.go       one request for a segment, and what its answer is worth
//	moved.go     segments that are redirected
//	list.go      what any playlist says
//	hls.go       playlists of HTTP Live Streaming
//	dash.go      those of MPEG-DASH
//
// Whatever is not as it should be is left to the player: its own request goes on by this
// device's line, and it sees what the server answers. What is encrypted (CONNECT) is
// carried by that line unseen.
package playlist

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"time"

	"mpbond/base/fault"
	"mpbond/base/unit"
	"mpbond/link/splice"
	"mpbond/onload/board"
	"mpbond/onload/fetch"
	"mpbond/onload/transfer"
)

// Config is what a Proxy needs.
type Config struct {
	Devices []fetch.Device // at least one, this device's own line first
	// NewDevices, if not nil, brings devices that are found later.
	NewDevices <-chan fetch.Device
	// Dial connects by the own line, for what is encrypted.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Scheduler is one that nobody else uses; nil is the default.
	Scheduler board.Scheduler
	// OnSuspend, if not nil, is told each time that a device fails; it must be quick.
	OnSuspend func(device string, err error)
	Log       *slog.Logger

	memory unit.Bytes // for tests
}

// Tuning.
const (
	prefetchWindow    = 60 * time.Second // of media that is fetched ahead: what players keep themselves
	defaultMemory     = 64 * unit.MB     // of segments that are held
	playerIdleTimeout = 2 * time.Minute  // after which a player is taken to be gone
	stallTimeout      = 10 * time.Second // without an answer, or minProgress
	minProgress       = 4 * unit.KB      // 3 kbit/s: less is nothing
	firstBackoff      = 500 * time.Millisecond
	maxMismatches     = 3                // answers that are of no use, after which none is fetched ahead
	maxBackoff        = 20 * time.Second // that a device is left alone
	tickInterval      = 100 * time.Millisecond
	minSplitSize      = 64 * unit.KB // less is not worth to be split
)

// Result is what a proxy has done.
type Result struct {
	Segments int                 `json:"segments"` // served of what was fetched over all devices
	Bytes    unit.Bytes          `json:"bytes"`    // of these
	Passed   int                 `json:"passed"`   // segments that were left to the player and its own line
	Unused   unit.Bytes          `json:"unused"`   // fetched ahead, and not asked for
	Tunnels  int                 `json:"tunnels"`  // encrypted connections, by the own line alone
	Devices  []fetch.DeviceUsage `json:"devices"`
}

// Proxy is one.
type Proxy struct {
	Config
	forward    *httputil.ReverseProxy
	prefetcher *prefetcher
}

// New makes a proxy.
func New(cfg Config) (*Proxy, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.memory == 0 {
		cfg.memory = defaultMemory
	}
	loop, err := transfer.New(transfer.Config{
		Devices: cfg.Devices, NewDevices: cfg.NewDevices, Scheduler: cfg.Scheduler, OnSuspend: cfg.OnSuspend, Log: cfg.Log,
		NewClient: func(d fetch.Device) *http.Client {
			return &http.Client{Transport: d.Transport, CheckRedirect: keepRedirect}
		},
		Times:      transfer.Times{StallTimeout: stallTimeout, ResponseTimeout: stallTimeout, FirstBackoff: firstBackoff, TickInterval: tickInterval},
		ErrStalled: errStalled, ErrNoResponse: errStalled, RecoveryBytes: minProgress})
	if err != nil {
		return nil, err
	}
	loop.Board.SetHome(0)
	p := &Proxy{Config: cfg, prefetcher: &prefetcher{loop: loop, log: cfg.Log, memoryLimit: cfg.memory, library: newLibrary(), segments: map[segmentKey]*segment{},
		queue: queue{loop, time.Now(), map[int]*segment{}}}}
	p.forward = &httputil.ReverseProxy{Rewrite: rewriteRequest, Transport: cfg.Devices[0].Transport, FlushInterval: -1, ModifyResponse: p.inspectResponse,
		ErrorLog: slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug), ErrorHandler: p.replyUnreachable}
	return p, nil
}

// keepRedirect follows no redirect.
func keepRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Serve serves players until ctx ends. The listener must be of this device alone:
// whoever reaches a proxy uses its lines.
func (p *Proxy) Serve(ctx context.Context, l net.Listener) (Result, error) {
	if a, ok := l.Addr().(*net.TCPAddr); ok && !a.IP.IsLoopback() {
		l.Close()
		return Result{}, fault.New(fault.Usage, errors.New("a proxy that others reach would lend them this device's lines"), "listen at 127.0.0.1")
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s := &http.Server{Handler: p.newHandler(l.Addr().String()), ReadHeaderTimeout: stallTimeout, IdleTimeout: playerIdleTimeout, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return ctx }, ConnContext: splice.WithWebConn,
		ErrorLog: slog.NewLogLogger(p.Log.Handler(), slog.LevelDebug)}
	defer context.AfterFunc(ctx, func() { s.Close() })()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = p.prefetcher.loop.Run(ctx, p.prefetcher) // until ctx ends
	}()
	err := s.Serve(splice.WebListener(l))
	stop()
	<-ended
	p.prefetcher.activeReplies.Wait()
	p.prefetcher.loop.CloseIdleConnections()
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	p.prefetcher.loop.Lock()
	defer p.prefetcher.loop.Unlock()
	res := p.prefetcher.result
	for _, s := range p.prefetcher.segments {
		res.Unused += s.unusedBytes()
	}
	res.Devices = p.prefetcher.loop.Usage(time.Now())
	return res, err
}
