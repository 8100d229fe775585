package primary

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"mpbond/api"
	"mpbond/base/fault"
	"mpbond/base/identity"
	"mpbond/link/pipe"
	"mpbond/link/tcp"
	"mpbond/link/wire"
)

// helperTrouble is what a helper says of why it does not reach the server.
type helperTrouble struct {
	helper, server, at string
	code               wire.Code
	err                error
}

func (e *helperTrouble) Error() string {
	return fmt.Sprintf("%s has no way to %s at %s: %v", e.helper, e.server, e.at, reachWords[e.code])
}

// Unwrap returns what the helper said.
func (e *helperTrouble) Unwrap() error { return e.err }

// reachWords are the codes by which a helper says that the server was not reached.
var reachWords = map[wire.Code]string{wire.CodeUnreachable: "no route", wire.CodeTimeout: "no answer",
	wire.CodeConnRefused: "connection refused", wire.CodeNameNotFound: "the name does not resolve there"}

// causes are these codes in the words of package fault.
var causes = map[wire.Code]fault.Cause{wire.CodeUnreachable: fault.CauseNoRoute, wire.CodeTimeout: fault.CauseNoAnswer,
	wire.CodeConnRefused: fault.CauseRefused, wire.CodeNameNotFound: fault.CauseNoName}

// codes is the reverse of causes.
var codes = map[fault.Cause]wire.Code{fault.CauseNoRoute: wire.CodeUnreachable, fault.CauseNoAnswer: wire.CodeTimeout,
	fault.CauseRefused: wire.CodeConnRefused, fault.CauseNoName: wire.CodeNameNotFound}

// explainJoin returns what a helper has answered instead of joining a subflow, in words
// that name both devices. Err is of pipe.Waiting.Join.
func explainJoin(helper, server, at string, err error) error {
	var f wire.Refuse
	if !errors.As(err, &f) || reachWords[f.Code] == "" {
		return err
	}
	hint := map[wire.Code]string{
		wire.CodeUnreachable:  fmt.Sprintf("connect %s to the Internet: its own line is down, or leads nowhere", helper),
		wire.CodeTimeout:      fmt.Sprintf("open a web page on %s: if none comes, its own line has no Internet; else the network there lets %s not through", helper, portWords(at)),
		wire.CodeConnRefused:  fmt.Sprintf("start `mpbond server` on %s, at %s", server, portWords(at)),
		wire.CodeNameNotFound: fmt.Sprintf("open a web page on %s: if none comes, its own line has no Internet", helper),
	}[f.Code]
	return fault.New(fault.KindOf(err), &helperTrouble{helper, server, at, f.Code, err}, hint)
}

// portWords returns "TCP port N" of an address.
func portWords(at string) string {
	_, port, err := net.SplitHostPort(at)
	if err != nil {
		return "its port"
	}
	return "TCP port " + port
}

// troubleOf returns err in parts; the zero Trouble for nil.
func troubleOf(err error) api.Trouble {
	if err == nil {
		return api.Trouble{}
	}
	t := api.Trouble{Kind: fault.KindOf(err), Cause: tcp.CauseOf(err), Text: err.Error(), Hint: fault.HintOf(err)}
	var h *helperTrouble
	if errors.As(err, &h) {
		t.By, t.At, t.Cause = h.helper, h.at, causes[h.code]
	}
	return t
}

// lastError returns a trouble as one text.
func lastError(t api.Trouble) string {
	if t.Hint == "" {
		return t.Text
	}
	return t.Text + " (" + t.Hint + ")"
}

// reportTrouble sends waiting helpers the reason why this device has no server, or that
// it has one again.
func (p *Primary) reportTrouble() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ending {
		return
	}
	for _, slot := range p.helpers {
		for _, w := range slot.waiting() {
			p.wg.Go(func() { w.SendTrouble(p.currentTrouble) })
		}
	}
}

// currentTrouble is ownTrouble for callers that do not hold mu.
func (p *Primary) currentTrouble() wire.Trouble {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ownTrouble()
}

// ownTrouble is why no subflow of this device's own reaches the server; one without a text
// if one does, or it is not known. Mu is held.
func (p *Primary) ownTrouble() (f wire.Trouble) {
	if p.noPeer != nil {
		return wire.Trouble{Code: wire.CodeUnknown, Text: p.noPeer.Error()}
	}
	if p.cur == nil || p.cur.e == nil || p.cur.e.WithoutSubflow() == 0 {
		return f
	}
	helpers := map[string]bool{}
	for _, slot := range p.helpers {
		helpers[slot.name] = true
	}
	for device, t := range p.errs {
		if t.Text != "" && !helpers[device] && (f.Text == "" || t.Text < f.Text) {
			f = wire.Trouble{Code: codes[t.Cause], Text: t.Text}
			if len(p.server.Addresses) > 0 {
				f.At = p.server.Addresses[0]
			}
		}
	}
	return f
}

// waiting are the pipes of a helper that wait. Mu is held.
func (s *helperSlot) waiting() []*pipe.Waiting {
	list := append([]*pipe.Waiting(nil), s.reserve...)
	if s.held != nil {
		list = append(list, s.held)
	}
	return list
}

// reportTo has a helper know, over a pipe that has just come.
func (p *Primary) reportTo(ctx context.Context, w *pipe.Waiting) {
	if ctx.Err() != nil {
		return
	}
	if p.currentTrouble().Text != "" {
		w.SendTrouble(p.currentTrouble)
	}
}

// noteCall counts a connection to the port for helpers, unless it came from this machine.
func (p *Primary) noteCall(from net.Addr, now time.Time) {
	if a, err := netip.ParseAddrPort(from.String()); err == nil && a.Addr().IsLoopback() {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls.Count++
	p.calls.Last = now
}

// Calls returns the connections that reached the port for helpers; nil if there is none.
func (p *Primary) Calls() *api.Calls {
	if len(p.pipes) == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.calls
	return &c
}

// LastPipeOf returns when a pipe of a helper last came; zero if none did.
func (p *Primary) LastPipeOf(helper identity.PublicKey) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if slot := p.helpers[helper]; slot != nil {
		return slot.lastPipe
	}
	return time.Time{}
}
