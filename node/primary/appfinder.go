// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"context"
	"net"
	"net/netip"
	"os/user"
	"path"
	"strconv"
	"strings"
	"time"

	"mpbond/api"
	"mpbond/control/policy"
	"mpbond/node/endpoint"
	"mpbond/node/intercept"
)

// One goroutine identifies the apps of streams and flows after these have opened. It pauses after
// each lookup, so that lookups use a tenth of a processor at most. Streams that find the queue full
// keep an unknown app.
const (
	maxQueries = 256
	// settleDelay is how long a new stream waits first: its setup is then done, and many streams
	// have ended already.
	settleDelay  = 20 * time.Millisecond
	pauseFactor  = 9  // pause after a lookup, as a multiple of its time
	maxUserNames = 64 // cached
)

// appTraffic is a stream or flow of an app.
type appTraffic interface {
	SetApp(endpoint.AppInfo)
	IsDone() bool
}

// ownApp is the app of streams that this program opens itself.
var ownApp = endpoint.AppInfo{App: "mpbond"}

// appQuery asks for the app of a stream or flow.
type appQuery struct {
	conn         appTraffic
	queuedAt     time.Time // set by queueQuery
	app          intercept.App
	process      *policy.Process // the process that a rule found
	processKnown bool            // a rule looked for the process
}

// appFinder identifies the apps of streams and flows.
type appFinder struct {
	queries     chan appQuery
	findProcess func(intercept.App) *policy.Process
	isLocal     func(netip.Addr) bool // reports whether an address is of this machine
	userNames   map[uint32]string     // by number; for identifyApp only
}

func newAppFinder(find func(intercept.App) *policy.Process) *appFinder {
	return &appFinder{
		queries:     make(chan appQuery, maxQueries),
		findProcess: find,
		isLocal:     isLocalAddress,
		userNames:   map[uint32]string{},
	}
}

// queueQuery queues a query. It does not block.
func (f *appFinder) queueQuery(q appQuery) {
	q.queuedAt = time.Now()
	select {
	case f.queries <- q:
	default:
		q.conn.SetApp(endpoint.AppInfo{App: api.AppUnknown})
	}
}

// runQueries answers queries until ctx ends.
func (f *appFinder) runQueries(ctx context.Context) {
	var nextLookup time.Time
	wait := time.NewTimer(0)
	defer wait.Stop()
	for {
		var q appQuery // declared here so that no old stream stays in memory
		select {
		case <-ctx.Done():
			return
		case q = <-f.queries:
		}
		wait.Reset(max(time.Until(nextLookup), time.Until(q.queuedAt.Add(settleDelay))))
		select {
		case <-ctx.Done():
			return
		case <-wait.C:
		}
		began := time.Now()
		if !q.conn.IsDone() {
			q.conn.SetApp(f.identifyApp(q))
		}
		nextLookup = time.Now().Add(pauseFactor * time.Since(began))
	}
}

// identifyApp returns the app of a stream or flow.
func (f *appFinder) identifyApp(q appQuery) (a endpoint.AppInfo) {
	if !q.processKnown {
		q.process = f.findProcess(q.app)
	}
	if p := q.process; p != nil {
		a = endpoint.AppInfo{Program: p.Exe, Label: p.Label, User: f.lookUpUserName(p.UID)}
	}
	addr := q.app.Addr.Addr()
	switch {
	case a.Label != "":
		a.App = a.Label
	case a.Program != "":
		a.App = path.Base(a.Program)
	case q.process != nil:
		a.App = "user " + a.User
	case addr.IsValid() && !f.isLocal(addr):
		a.App = "from " + addr.String()
	default:
		a.App = api.AppUnknown
	}
	for _, s := range []*string{&a.App, &a.Program} { // file names may be any bytes
		*s = strings.ToValidUTF8(*s, "\uFFFD")
	}
	return a
}

// lookUpUserName returns the name of a user.
func (f *appFinder) lookUpUserName(uid uint32) string {
	name, known := f.userNames[uid]
	if known {
		return name
	}
	if len(f.userNames) >= maxUserNames {
		clear(f.userNames)
	}
	name = strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(name); err == nil && u.Username != "" {
		name = u.Username
	}
	f.userNames[uid] = name
	return name
}

// isLocalAddress reports whether an app with that address runs on this machine.
func isLocalAddress(a netip.Addr) bool {
	if a.IsLoopback() {
		return true
	}
	list, err := net.InterfaceAddrs()
	for _, l := range list {
		if n, ok := l.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok && ip.Unmap() == a.Unmap().WithZone("") {
				return true
			}
		}
	}
	return err != nil // unknown counts as local
}
