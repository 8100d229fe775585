// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"

	"mpbond/pbe/cell"
)

// Record copies what a network sends from now on until ctx ends: control messages to messages, as a
// recording of package cell, and TruthLines to truth. Either writer may be nil. The output ends
// with a whole subframe or line. A writer that is too slow is an error.
func (l *Lab) Record(ctx context.Context, network string, messages, truth io.Writer) error {
	s, err := l.Stats(false)
	if err != nil {
		return err
	}
	for _, n := range s.LTE {
		if n.Name != network {
			continue
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		errs := make(chan error, 2)
		running := 0
		for _, c := range []struct {
			at   string
			to   io.Writer
			copy func(io.Writer, io.Reader) error
		}{{n.Messages, messages, copyMessages}, {n.Truth, truth, copyWholeLines}} {
			if c.to != nil {
				running++
				go func() { errs <- copySocket(ctx, c.at, c.to, c.copy) }()
			}
		}
		for ; running > 0; running-- {
			if e := <-errs; e != nil && err == nil {
				err = e
				cancel()
			}
		}
		return err
	}
	return fmt.Errorf("no network %q (write [lte.%s] in the topology)", network, network)
}

// copySocket copies data from a socket until ctx ends.
func copySocket(ctx context.Context, path string, to io.Writer, copy func(io.Writer, io.Reader) error) error {
	conn, err := net.Dial("unix", path)
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	err = copy(to, conn)
	switch {
	case ctx.Err() != nil:
		return nil // reading failed because ctx ended
	case err == nil:
		err = fmt.Errorf("the lab ended the connection: it is down, or this program read too slowly")
	}
	return err
}

// copyMessages copies a recording of control messages.
func copyMessages(to io.Writer, from io.Reader) error {
	r, err := cell.NewReader(from)
	if err != nil {
		return err
	}
	w, err := cell.NewWriter(to, r.PRB)
	if err != nil {
		return err
	}
	for self := cell.RNTI(0); ; {
		s, err := r.Read()
		if err == nil && r.Self != self {
			self = r.Self
			err = w.WriteSelf(self)
		}
		if err == nil {
			err = w.Write(s)
		}
		if err != nil {
			if e := w.Flush(); e != nil || err == io.EOF {
				return e
			}
			return err
		}
	}
}

// copyWholeLines copies whole lines.
func copyWholeLines(to io.Writer, from io.Reader) error {
	w := bufio.NewWriter(to)
	in := bufio.NewReader(from)
	for {
		line, err := in.ReadBytes('\n')
		if err == nil {
			_, err = w.Write(line)
		}
		if err != nil {
			if e := w.Flush(); e != nil || err == io.EOF {
				return e
			}
			return err
		}
	}
}
