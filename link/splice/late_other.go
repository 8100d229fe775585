//go:build !unix

package splice

import (
	"errors"
	"net"
	"syscall"
)

// lateReader has nothing for readLate: reads wait with a buffer.
func lateReader(*net.TCPConn) (syscall.RawConn, error) { return nil, nil }

func readLate(syscall.RawConn) (*[copyBuffer]byte, int, error) { return nil, 0, errors.ErrUnsupported }
