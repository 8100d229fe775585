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

// detectPortal asks whether a captive portal answers in the server's place, "" if not.
// Only the server's own address is called, so that nobody else learns of it: a
// portal answers at port 80 of any address. Kind is why the server could not be
// joined at its own port.
func (p Config) detectPortal(ctx context.Context, a Address, iface string, kind fault.Kind) string {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	web := &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true, Proxy: nil, DialContext: func(ctx context.Context, _, at string) (net.Conn, error) {
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

// classifyPortal tells a portal from a web server that happens to be there: it asks
// for a login (RFC 6585 section 6), sends elsewhere than to the names of the server
// although its own port cannot be joined, or whatever has that port is not mpbond.
// A port that is refused is more likely an mpbond that does not run.
func classifyPortal(status int, location string, names []string, kind fault.Kind) string {
	where := ""
	if u, err := url.Parse(location); err == nil && !slices.Contains(names, u.Hostname()) {
		where = u.Hostname()
	}
	stranger := kind == fault.Protocol || kind == fault.WrongKey
	switch {
	case status == http.StatusNetworkAuthenticationRequired:
		return "its web server wants a login to the network"
	case status >= 300 && status < 400 && where != "" && (stranger || kind == fault.Timeout):
		return fmt.Sprintf("web pages are sent to %.100s", where)
	case stranger:
		return fmt.Sprintf("no mpbond at its port, and a web server (status %d) at port 80", status)
	}
	return ""
}
