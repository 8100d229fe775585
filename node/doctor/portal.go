// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"

	"mpbond/base/fault"
	"mpbond/link/tcp"
)

// detectPortal returns what a captive portal answers in place of the server, "" if there is none.
// It calls only the server's own address and contacts no other host: a portal answers at
// port 80 of any address. kind is why joining the server has failed.
func (p Config) detectPortal(ctx context.Context, a Address, iface string, kind fault.Kind) string {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	web := &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true, Proxy: nil, DialContext: func(ctx context.Context,
			_, at string) (net.Conn, error) {
			return tcp.Dial(ctx, at, tcp.Options{Interface: iface, Mark: p.Mark})
		}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(a.IP, "80")+"/", nil)
	if err != nil {
		return ""
	}
	answer, err := web.Do(req)
	if err != nil {
		return ""
	}
	answer.Body.Close()
	name, _, _ := net.SplitHostPort(a.At)
	return classifyPortal(answer.StatusCode, answer.Header.Get("Location"), []string{"", name, a.IP}, kind)
}

// classifyPortal distinguishes a portal from a web server on the same host. A portal asks for a
// login (RFC 6585 section 6), or redirects to another name while the server's own port fails, or
// something other than mpbond answers at that port. If the port refuses, mpbond probably does not
// run.
func classifyPortal(status int, location string, names []string, kind fault.Kind) string {
	where := ""
	if u, err := url.Parse(location); err == nil && !slices.Contains(names, u.Hostname()) {
		where = u.Hostname()
	}
	notMpbond := kind == fault.Protocol || kind == fault.WrongKey
	switch {
	case status == http.StatusNetworkAuthenticationRequired:
		return "its web server asks for a network login"
	case status >= 300 && status < 400 && where != "" && (notMpbond || kind == fault.Timeout):
		return fmt.Sprintf("web pages are redirected to %.100s", where)
	case notMpbond:
		return fmt.Sprintf("no mpbond at its port, and a web server (status %d) at port 80", status)
	}
	return ""
}
