// SPDX-License-Identifier: Apache-2.0

// Package playlist is an HTTP proxy for video players on the same device. It prefetches the
// next segments of a playlist over several devices, in the order in which they are needed.
// Package onload/board decides which device fetches what. Each device is an
// http.RoundTripper: an interface of this device, or a helper (package onload/relay).
// onload decides.
//
//	playlist.go  configuration and results
//	proxy.go     requests of players: forwarded, or served from prefetched segments
//	library.go   loaded playlists and positions of players
//	prefetch.go  segments that are prefetched
//	queue.go     segments on the board
//	task.go      the task of package transfer, and ends of jobs
//	job.go       one request for a segment, and checks of its response
//	redirect.go  redirected segments
//	list.go      content of playlists
//	hls.go       playlists of HTTP Live Streaming
//	dash.go      playlists of MPEG-DASH
//
// In case of doubt a request is left to the player: it is forwarded over the local
// device, and the player sees the response of the server. Encrypted connections (CONNECT)
// are tunnelled over the local device.
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

// Config configures a Proxy.
type Config struct {
	Devices []fetch.Device // at least one; the local device first
	// NewDevices, if not nil, delivers devices that are found later.
	NewDevices <-chan fetch.Device
	// Dial connects over the local device, for encrypted connections. nil: there are none.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Scheduler is not shared with another user; nil is the default.
	Scheduler board.Scheduler
	// OnSuspend, if not nil, is called each time a device is suspended. It must not block.
	OnSuspend func(device string, err error)
	Log       *slog.Logger

	memory unit.Bytes // in tests
}

// Tuning.
const (
	prefetchWindow    = 60 * time.Second // of media that is prefetched: about what players buffer
	defaultMemory     = 64 * unit.MB     // for stored segments
	playerIdleTimeout = 2 * time.Minute  // after which a player counts as gone
	stallTimeout      = 10 * time.Second // without a response, or minProgress bytes
	minProgress       = 4 * unit.KB      // 3 kbit/s
	firstBackoff      = 500 * time.Millisecond
	maxMismatches     = 3                // useless responses after which a track is not prefetched
	maxBackoff        = 20 * time.Second // of a device
	tickInterval      = 100 * time.Millisecond
	minSplitSize      = 64 * unit.KB // smaller segments are not split
)

// Result is the outcome of a proxy.
type Result struct {
	Segments int                 `json:"segments"` // served from prefetched data
	Bytes    unit.Bytes          `json:"bytes"`    // of Segments
	Passed   int                 `json:"passed"`   // segments left to the player and the local device
	Unused   unit.Bytes          `json:"unused"`   // prefetched but not requested
	Tunnels  int                 `json:"tunnels"`  // encrypted connections, over the local device only
	Devices  []fetch.DeviceUsage `json:"devices"`
}

// Proxy is an HTTP proxy that prefetches segments. Its methods may be called by any goroutine.
type Proxy struct {
	Config
	forward    *httputil.ReverseProxy
	prefetcher *prefetcher
}

// New returns a proxy. Errors are those of an invalid Config.
func New(cfg Config) (*Proxy, error) {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.memory == 0 {
		cfg.memory = defaultMemory
	}
	loop, err := transfer.New(transfer.Config{
		Devices: cfg.Devices, NewDevices: cfg.NewDevices, Scheduler: cfg.Scheduler,
		OnSuspend: cfg.OnSuspend, Log: cfg.Log,
		NewClient: func(d fetch.Device) *http.Client {
			return &http.Client{Transport: d.Transport, CheckRedirect: keepRedirect}
		},
		Times: transfer.Times{StallTimeout: stallTimeout, ResponseTimeout: stallTimeout,
			FirstBackoff: firstBackoff, TickInterval: tickInterval},
		ErrStalled: errStalled, ErrNoResponse: errStalled, RecoveryBytes: minProgress})
	if err != nil {
		return nil, err
	}
	loop.Board.SetHome(0)
	p := &Proxy{Config: cfg, prefetcher: &prefetcher{loop: loop, log: cfg.Log, memoryLimit: cfg.memory,
		library: newLibrary(), segments: map[segmentKey]*segment{},
		queue: queue{loop, time.Now(), map[int]*segment{}}}}
	p.forward = &httputil.ReverseProxy{Rewrite: rewriteRequest, Transport: cfg.Devices[0].Transport, FlushInterval: -1,
		ModifyResponse: p.inspectResponse,
		ErrorLog:       slog.NewLogLogger(cfg.Log.Handler(), slog.LevelDebug), ErrorHandler: p.replyUnreachable}
	return p, nil
}

// keepRedirect makes a client return redirects instead of following them.
func keepRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Serve serves players until ctx ends and returns statistics. The listener must be on a loopback
// address: any client that reaches a proxy can use its connections.
func (p *Proxy) Serve(ctx context.Context, l net.Listener) (Result, error) {
	if a, ok := l.Addr().(*net.TCPAddr); ok && !a.IP.IsLoopback() {
		l.Close()
		return Result{}, fault.New(fault.Usage,
			errors.New("the proxy listens on an address that other devices can reach"), "listen on 127.0.0.1")
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	s := &http.Server{Handler: p.newHandler(l.Addr().String()), ReadHeaderTimeout: stallTimeout,
		IdleTimeout: playerIdleTimeout, MaxHeaderBytes: 64 << 10,
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
