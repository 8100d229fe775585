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
	maxQuestions = 256
	// settled is how long one is left alone first: what it has to do at its
	// beginning is done, and many are over.
	settled      = 20 * time.Millisecond
	restPerLook  = 9  // times as long as the look took
	maxUserNames = 64 // remembered
)

// owned is a stream or flow.
type owned interface {
	SetOwner(endpoint.Owner)
	Done() bool
}

// ownOwner is whose streams are that are no app's.
var ownOwner = endpoint.Owner{App: "mpbond"}

// question is whose one is.
type question struct {
	of      owned
	at      time.Time // when it was asked
	app     intercept.App
	process *policy.Process // that a rule's look has found
	looked  bool            // a rule has had it looked for
}

// owners answers questions.
type owners struct {
	questions chan question
	find      func(intercept.App) *policy.Process
	here      func(netip.Addr) bool // it is an address of this machine
	users     map[uint32]string     // names by number; for answer only
}

func newOwners(find func(intercept.App) *policy.Process) *owners {
	return &owners{questions: make(chan question, maxQuestions), find: find, here: ofThisMachine, users: map[uint32]string{}}
}

// ask has a question answered at some time. It does not block.
func (o *owners) ask(q question) {
	q.at = time.Now()
	select {
	case o.questions <- q:
	default:
		q.of.SetOwner(endpoint.Owner{App: api.AppUnknown})
	}
}

// run answers until ctx ends.
func (o *owners) run(ctx context.Context) {
	var rested time.Time
	wait := time.NewTimer(0)
	defer wait.Stop()
	for {
		var q question // an old one would keep a stream's memory
		select {
		case <-ctx.Done():
			return
		case q = <-o.questions:
		}
		wait.Reset(max(time.Until(rested), time.Until(q.at.Add(settled))))
		select {
		case <-ctx.Done():
			return
		case <-wait.C:
		}
		began := time.Now()
		if !q.of.Done() {
			q.of.SetOwner(o.answer(q))
		}
		rested = time.Now().Add(restPerLook * time.Since(began))
	}
}

// answer is whose something is.
func (o *owners) answer(q question) (a endpoint.Owner) {
	if !q.looked {
		q.process = o.find(q.app)
	}
	if p := q.process; p != nil {
		a = endpoint.Owner{Program: p.Exe, Label: p.Label, User: o.user(p.UID)}
	}
	addr := q.app.Addr.Addr()
	switch {
	case a.Label != "":
		a.App = a.Label
	case a.Program != "":
		a.App = path.Base(a.Program)
	case q.process != nil:
		a.App = "user " + a.User
	case addr.IsValid() && !o.here(addr):
		a.App = "from " + addr.String()
	default:
		a.App = api.AppUnknown
	}
	for _, s := range []*string{&a.App, &a.Program} { // names of files are any bytes
		*s = strings.ToValidUTF8(*s, "\uFFFD")
	}
	return a
}

// user is the name of a user.
func (o *owners) user(uid uint32) string {
	name, known := o.users[uid]
	if known {
		return name
	}
	if len(o.users) >= maxUserNames {
		clear(o.users)
	}
	name = strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(name); err == nil && u.Username != "" {
		name = u.Username
	}
	o.users[uid] = name
	return name
}

// ofThisMachine reports whether an app with that address runs here.
func ofThisMachine(a netip.Addr) bool {
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
