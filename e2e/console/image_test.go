// SPDX-License-Identifier: Apache-2.0

package console

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// runProgram runs a program that tests start in a node.
func runProgram(args []string) error {
	switch {
	case args[0] == "image" && len(args) == 3:
		return serveImage(args[1], args[2])
	case args[0] == "forward" && len(args) == 3:
		l, err := net.Listen("unix", args[1])
		if err == nil {
			forward(l, "tcp", args[2])
		}
		return err
	}
	return fmt.Errorf("unknown program %q", args)
}

// serveImage answers every request with a file of that size.
func serveImage(addr, size string) error {
	n, err := strconv.ParseInt(size, 10, 64)
	if err != nil {
		return err
	}
	return http.ListenAndServe(addr, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.ServeContent(w, r, "", time.Unix(1e9, 0), io.NewSectionReader(zeros{}, 0, n))
	}))
}

// zeros is an endless file of zeros.
type zeros struct{}

// ReadAt implements io.ReaderAt.
func (zeros) ReadAt(p []byte, _ int64) (int, error) {
	clear(p)
	return len(p), nil
}

// forward forwards connections to another address until the listener is closed, and then closes
// them.
func forward(l net.Listener, network, to string) {
	var running sync.WaitGroup
	var conns []net.Conn // both ends of all, also of those that have ended
	for {
		near, err := l.Accept()
		if err != nil {
			break
		}
		far, err := net.Dial(network, to)
		if err != nil {
			near.Close()
			continue
		}
		conns = append(conns, near, far)
		for _, ends := range [][2]net.Conn{{near, far}, {far, near}} {
			running.Go(func() {
				_, _ = io.Copy(ends[0], ends[1])
				ends[0].Close()
				ends[1].Close()
			})
		}
	}
	for _, c := range conns {
		c.Close()
	}
	running.Wait()
}
