// SPDX-License-Identifier: Apache-2.0

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

// faultHeader is the header field with the fault kind of a refused connection.
const faultHeader = "Mpbond-Fault"

// faultStatus is the HTTP status of a fault kind, and its hint for the owner of the primary.
type faultStatus struct {
	kind   fault.Kind
	status int
	hint   string
}

// faultStatuses lists the fault kinds that are reported to primaries. Others are reported as
// fault.Other.
var faultStatuses = []faultStatus{
	{fault.Other, http.StatusBadGateway, "see the log of the helper"},
	{fault.Unreachable, http.StatusBadGateway, "check the Internet connection of the helper"},
	{fault.Timeout, http.StatusGatewayTimeout, "check the Internet connection of the helper"},
	{fault.Permission, http.StatusForbidden,
		"to allow the address, set `allow` in [onload] of the helper's helper.toml"},
	{fault.Limit, http.StatusServiceUnavailable, "run `mpbond status` on the helper to see what it may carry"},
	{fault.UnknownDevice, http.StatusForbidden, "pair the two devices again"},
	{fault.Protocol, http.StatusBadRequest, "install the same release of mpbond on both devices"},
}

// maxErrorText bounds the error text in a response, in bytes.
const maxErrorText = 300

// writeRefusal reports err to the primary and closes the connection.
func (n *primaryConn) writeRefusal(err error) {
	a := faultStatuses[max(slices.IndexFunc(faultStatuses,
		func(a faultStatus) bool { return fault.Is(err, a.kind) }), 0)]
	why := text.Short(err.Error(), maxErrorText)
	_ = n.SetDeadline(time.Now().Add(handshakeTimeout)) // the primary may not read
	_, _ = fmt.Fprintf(n.Conn,
		"HTTP/1.1 %d %s\r\n%s: %s\r\nContent-Type: text/plain; charset=utf-8\r\n"+
			"Content-Length: %d\r\nConnection: close\r\n\r\n%s",
		a.status, http.StatusText(a.status), faultHeader, a.kind, len(why), why)
	_ = n.Conn.Close()
}

// parseRefusal returns the fault that a response other than 200 reports.
func parseRefusal(a *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(a.Body, 4*maxErrorText)) // may be incomplete
	why := text.Short(string(body), maxErrorText)
	if why == "" {
		why = text.Short(a.Status, maxErrorText)
	}
	i := slices.IndexFunc(faultStatuses,
		func(b faultStatus) bool { return string(b.kind) == a.Header.Get(faultHeader) })
	if i < 0 {
		return fault.New(fault.Protocol, errors.New("the helper answers "+why),
			"check that the address belongs to an mpbond helper")
	}
	return fault.New(faultStatuses[i].kind, errors.New(why), faultStatuses[i].hint)
}
