// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"context"
	"net"
	"net/http"
	"time"
)

// Limits of a transport over this device's own interfaces.
const (
	tlsHandshakeTimeout   = 20 * time.Second
	expectContinueTimeout = time.Second // wait for "100 Continue" before the body is sent
	idleConnTimeout       = time.Minute // an unused connection is closed after this time
	maxIdleConns          = 8           // unused connections kept per host
)

// NewTransport returns an HTTP transport that connects with dial. It is meant for this device's own
// interfaces, not for helpers.
func NewTransport(dial func(ctx context.Context, network, addr string) (net.Conn, error)) *http.Transport {
	return &http.Transport{DialContext: dial, TLSHandshakeTimeout: tlsHandshakeTimeout,
		ExpectContinueTimeout: expectContinueTimeout, IdleConnTimeout: idleConnTimeout,
		MaxIdleConnsPerHost: maxIdleConns, MaxResponseHeaderBytes: 1 << 20}
}
