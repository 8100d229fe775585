package relay

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"mpbond/base/fault"
	"mpbond/base/text"
)

// kindHeader tells the kind of fault by which a connection is refused.
const kindHeader = "Mpbond-Fault"

// answer is the status and, for the primary's owner, the hint of a kind of fault.
type answer struct {
	kind   fault.Kind
	status int
	hint   string
}

// answers are those of the kinds that are told; others are told as fault.Other.
var answers = []answer{
	{fault.Other, http.StatusBadGateway, "its log says more"},
	{fault.Unreachable, http.StatusBadGateway, "does the helper have an Internet connection of its own?"},
	{fault.Timeout, http.StatusGatewayTimeout, "does the helper have an Internet connection of its own?"},
	{fault.Permission, http.StatusForbidden, "if that address is meant, its owner sets `allow` in [onload] of helper.toml"},
	{fault.Limit, http.StatusServiceUnavailable, "`mpbond status` at the helper says what it may carry"},
	{fault.UnknownDevice, http.StatusForbidden, "pair the two devices again"},
	{fault.Protocol, http.StatusBadRequest, "install the same release of mpbond on both devices"},
}

const maxText = 300

// refuse tells the primary why, and ends the connection.
func (n *near) refuse(err error) {
	a := answers[max(slices.IndexFunc(answers, func(a answer) bool { return fault.Is(err, a.kind) }), 0)]
	why := text.Short(err.Error(), maxText)
	_ = n.SetDeadline(time.Now().Add(greetTime)) // it may not read
	_, _ = fmt.Fprintf(n.Conn, "HTTP/1.1 %d %s\r\n%s: %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		a.status, http.StatusText(a.status), kindHeader, a.kind, len(why), why)
	_ = n.Conn.Close()
}

// refusal is the fault that an answer other than 200 tells of.
func refusal(a *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(a.Body, 4*maxText)) // as far as it comes
	why := text.Short(string(body), maxText)
	if why == "" {
		why = text.Short(a.Status, maxText)
	}
	i := slices.IndexFunc(answers, func(b answer) bool { return string(b.kind) == a.Header.Get(kindHeader) })
	if i < 0 {
		return fault.New(fault.Protocol, errors.New("it answers "+why), "is it a helper of mpbond?")
	}
	return fault.New(answers[i].kind, errors.New(why), answers[i].hint)
}
