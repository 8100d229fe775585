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

// faultHeader tells the kind of fault by which a connection is refused.
const faultHeader = "Mpbond-Fault"

// faultStatus is the status and, for the primary's owner, the hint of a kind of fault.
type faultStatus struct {
	kind   fault.Kind
	status int
	hint   string
}

// faultStatuses are those of the kinds that are told; others are told as fault.Other.
var faultStatuses = []faultStatus{
	{fault.Other, http.StatusBadGateway, "its log says more"},
	{fault.Unreachable, http.StatusBadGateway, "does the helper have an Internet connection of its own?"},
	{fault.Timeout, http.StatusGatewayTimeout, "does the helper have an Internet connection of its own?"},
	{fault.Permission, http.StatusForbidden, "if that address is meant, its owner sets `allow` in [onload] of helper.toml"},
	{fault.Limit, http.StatusServiceUnavailable, "`mpbond status` at the helper says what it may carry"},
	{fault.UnknownDevice, http.StatusForbidden, "pair the two devices again"},
	{fault.Protocol, http.StatusBadRequest, "install the same release of mpbond on both devices"},
}

const maxErrorText = 300

// writeRefusal tells the primary why, and ends the connection.
func (n *primaryConn) writeRefusal(err error) {
	a := faultStatuses[max(slices.IndexFunc(faultStatuses, func(a faultStatus) bool { return fault.Is(err, a.kind) }), 0)]
	why := text.Short(err.Error(), maxErrorText)
	_ = n.SetDeadline(time.Now().Add(handshakeTimeout)) // it may not read
	_, _ = fmt.Fprintf(n.Conn, "HTTP/1.1 %d %s\r\n%s: %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s",
		a.status, http.StatusText(a.status), faultHeader, a.kind, len(why), why)
	_ = n.Conn.Close()
}

// parseRefusal is the fault that an answer other than 200 tells of.
func parseRefusal(a *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(a.Body, 4*maxErrorText)) // as far as it comes
	why := text.Short(string(body), maxErrorText)
	if why == "" {
		why = text.Short(a.Status, maxErrorText)
	}
	i := slices.IndexFunc(faultStatuses, func(b faultStatus) bool { return string(b.kind) == a.Header.Get(faultHeader) })
	if i < 0 {
		return fault.New(fault.Protocol, errors.New("it answers "+why), "is it a helper of mpbond?")
	}
	return fault.New(faultStatuses[i].kind, errors.New(why), faultStatuses[i].hint)
}
