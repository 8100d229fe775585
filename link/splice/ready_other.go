// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package splice

import (
	"errors"
	"net"
	"syscall"
)

// readyReader returns nil: without readWhenReady, reads wait with a buffer.
func readyReader(*net.TCPConn) (syscall.RawConn, error) { return nil, nil }

func readWhenReady(syscall.RawConn) (*[copyBufferSize]byte, int, error) {
	return nil, 0, errors.ErrUnsupported
}
