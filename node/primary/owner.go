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

// Whose streams and flows are is looked for when they are open already, by one
// goroutine. It rests after each look, so that it takes a tenth of a processor at
// most, however many begin; what finds no room to wait stays unknown.
const (
	maxQueries = 256
	// settleDelay is how long one is left alone first: what it has to do at its
	// beginning is done, and many are over.
	settleDelay  = 20 * time.Millisecond
	pauseFactor  = 9  // times as long as the look took
	maxUserNames = 64 // remembered
)

// appCarrier is a stream or flow.
type appCarrier interface {
	SetApp(endpoint.AppInfo)
	IsDone() bool
}

// ownApp is whose streams are that are no app's.
var ownApp = endpoint.AppInfo{App: "mpbond"}

// appQuery is whose one is.
type appQuery struct {
	conn         appCarrier
	queuedAt     time.Time // when it was asked
	app          intercept.App
	process      *policy.Process // that a rule's look has found
	processKnown bool            // a rule has had it looked for
}

// appFinder answers questions.
type appFinder struct {
	queries     chan appQuery
	findProcess func(intercept.App) *policy.Process
	isLocal     func(netip.Addr) bool // it is an address of this machine
	userNames   map[uint32]string     // names by number; for answer only
}

func newAppFinder(find func(intercept.App) *policy.Process) *appFinder {
	return &appFinder{queries: make(chan appQuery, maxQueries), findProcess: find, isLocal: isLocalAddress, userNames: map[uint32]string{}}
}

// queueQuery has a question answered at some time. It does not block.
func (o *appFinder) queueQuery(q appQuery) {
	q.queuedAt = time.Now()
	select {
	case o.queries <- q:
	default:
		q.conn.SetApp(endpoint.AppInfo{App: api.AppUnknown})
	}
}

// runQueries answers until ctx ends.
func (o *appFinder) runQueries(ctx context.Context) {
	var nextLookup time.Time
	wait := time.NewTimer(0)
	defer wait.Stop()
	for {
		var q appQuery // an old one would keep a stream's memory
		select {
		case <-ctx.Done():
			return
		case q = <-o.queries:
		}
		wait.Reset(max(time.Until(nextLookup), time.Until(q.queuedAt.Add(settleDelay))))
		select {
		case <-ctx.Done():
			return
		case <-wait.C:
		}
		began := time.Now()
		if !q.conn.IsDone() {
			q.conn.SetApp(o.identifyApp(q))
		}
		nextLookup = time.Now().Add(pauseFactor * time.Since(began))
	}
}

// identifyApp is whose something is.
func (o *appFinder) identifyApp(q appQuery) (a endpoint.AppInfo) {
	if !q.processKnown {
		q.process = o.findProcess(q.app)
	}
	if p := q.process; p != nil {
		a = endpoint.AppInfo{Program: p.Exe, Label: p.Label, User: o.userName(p.UID)}
	}
	addr := q.app.Addr.Addr()
	switch {
	case a.Label != "":
		a.App = a.Label
	case a.Program != "":
		a.App = path.Base(a.Program)
	case q.process != nil:
		a.App = "user " + a.User
	case addr.IsValid() && !o.isLocal(addr):
		a.App = "from " + addr.String()
	default:
		a.App = api.AppUnknown
	}
	for _, s := range []*string{&a.App, &a.Program} { // names of files are any bytes
		*s = strings.ToValidUTF8(*s, "\uFFFD")
	}
	return a
}

// userName is the name of a user.
func (o *appFinder) userName(uid uint32) string {
	name, known := o.userNames[uid]
	if known {
		return name
	}
	if len(o.userNames) >= maxUserNames {
		clear(o.userNames)
	}
	name = strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(name); err == nil && u.Username != "" {
		name = u.Username
	}
	o.userNames[uid] = name
	return name
}

// isLocalAddress reports whether an app with that address runs here.
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
	return err != nil // then nobody knows
}
