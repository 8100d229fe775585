package transfer

import (
	"context"
	"net"
	"net/http"
	"time"
)

// Times of a line of this device's own.
const (
	greetTime  = 20 * time.Second // for TLS
	expectTime = time.Second      // for "100 Continue", before a body is sent without
	lineIdle   = time.Minute      // until a connection is closed that nobody uses
	lineKept   = 8                // such connections to a host
)

// NewLine is the transport of a line of this device's own, by connections that dial makes.
func NewLine(dial func(ctx context.Context, network, addr string) (net.Conn, error)) *http.Transport {
	return &http.Transport{DialContext: dial, TLSHandshakeTimeout: greetTime, ExpectContinueTimeout: expectTime, IdleConnTimeout: lineIdle, MaxIdleConnsPerHost: lineKept, MaxResponseHeaderBytes: 1 << 20}
}
