// SPDX-License-Identifier: Apache-2.0

package primary

import (
	"errors"
	"fmt"
	"net"

	"mpbond/api"
	"mpbond/base/fault"
	"mpbond/link/tcp"
	"mpbond/link/wire"
)

// helperTrouble is a helper's report of why it does not reach the server.
type helperTrouble struct {
	helper, server, at string
	code               wire.Code
	err                error
}

func (t *helperTrouble) Error() string {
	return fmt.Sprintf("%s has no way to %s at %s: %v", t.helper, t.server, t.at, causeTexts[t.code])
}

// Unwrap returns the helper's refusal.
func (t *helperTrouble) Unwrap() error { return t.err }

// causeTexts are texts for the codes by which a helper reports that the server was not reached.
var causeTexts = map[wire.Code]string{wire.CodeUnreachable: "no route", wire.CodeTimeout: "no answer",
	wire.CodeConnRefused: "connection refused", wire.CodeNameNotFound: "the name does not resolve there"}

// causeByCode maps these codes to causes of package fault.
var causeByCode = map[wire.Code]fault.Cause{
	wire.CodeUnreachable:  fault.CauseNoRoute,
	wire.CodeTimeout:      fault.CauseNoAnswer,
	wire.CodeConnRefused:  fault.CauseRefused,
	wire.CodeNameNotFound: fault.CauseNoName,
}

// codeByCause is the reverse of causeByCode.
var codeByCause = map[fault.Cause]wire.Code{
	fault.CauseNoRoute:  wire.CodeUnreachable,
	fault.CauseNoAnswer: wire.CodeTimeout,
	fault.CauseRefused:  wire.CodeConnRefused,
	fault.CauseNoName:   wire.CodeNameNotFound,
}

// explainJoinError turns a helper's refusal to join a subflow into an error that names both
// devices. err is of pipe.Waiting.Join.
func explainJoinError(helper, server, at string, err error) error {
	var f wire.Refuse
	if !errors.As(err, &f) || causeTexts[f.Code] == "" {
		return err
	}
	hint := map[wire.Code]string{
		wire.CodeUnreachable: fmt.Sprintf("connect %s to the Internet: its link is down or has no route", helper),
		wire.CodeTimeout: fmt.Sprintf("open a web page on %s: if that fails, its link has no Internet; "+
			"otherwise the network there blocks %s", helper, formatPort(at)),
		wire.CodeConnRefused:  fmt.Sprintf("start `mpbond server` on %s, at %s", server, formatPort(at)),
		wire.CodeNameNotFound: fmt.Sprintf("open a web page on %s: if that fails, its link has no Internet", helper),
	}[f.Code]
	return fault.New(fault.KindOf(err), &helperTrouble{helper, server, at, f.Code, err}, hint)
}

// formatPort returns "TCP port N" for an address.
func formatPort(at string) string {
	_, port, err := net.SplitHostPort(at)
	if err != nil {
		return "its port"
	}
	return "TCP port " + port
}

// troubleOfError returns the parts of err; the zero Trouble for nil.
func troubleOfError(err error) api.Trouble {
	if err == nil {
		return api.Trouble{}
	}
	t := api.Trouble{Kind: fault.KindOf(err), Cause: tcp.CauseOf(err), Text: err.Error(), Hint: fault.HintOf(err)}
	var h *helperTrouble
	if errors.As(err, &h) {
		t.By, t.At, t.Cause = h.helper, h.at, causeByCode[h.code]
	}
	return t
}

// formatTrouble returns a trouble as one text.
func formatTrouble(t api.Trouble) string {
	if t.Hint == "" {
		return t.Text
	}
	return t.Text + " (" + t.Hint + ")"
}
