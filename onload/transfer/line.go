package transfer

import (
	"context"
	"net"
	"net/http"
	"time"
)

// Times of a line of this device's own.
const (
	tlsHandshakeTimeout   = 20 * time.Second // for TLS
	expectContinueTimeout = time.Second      // for "100 Continue", before a body is sent without
	idleConnTimeout       = time.Minute      // until a connection is closed that nobody uses
	maxIdleConns          = 8                // such connections to a host
)

// NewTransport is the transport of a line of this device's own, by connections that dial makes.
func NewTransport(dial func(ctx context.Context, network, addr string) (net.Conn, error)) *http.Transport {
	return &http.Transport{DialContext: dial, TLSHandshakeTimeout: tlsHandshakeTimeout, ExpectContinueTimeout: expectContinueTimeout, IdleConnTimeout: idleConnTimeout, MaxIdleConnsPerHost: maxIdleConns, MaxResponseHeaderBytes: 1 << 20}
}
