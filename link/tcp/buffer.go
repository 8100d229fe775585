// SPDX-License-Identifier: Apache-2.0

package tcp

import (
	"bytes"
	"net"
	"sync"
	"syscall"
)

// Sizes of buffers.
const (
	readBuffer = 64 << 10  // four TLS records per system call
	corkLimit  = 128 << 10 // a corked connection writes by itself beyond this
	corkBuffer = corkLimit + 20<<10
)

// readBuffers holds buffers that no connection uses now.
var readBuffers = sync.Pool{New: func() any { return new([readBuffer]byte) }}

// corkBuffers holds buffers of corked connections, as *bytes.Buffer, that are empty. They have room for a record of TLS
// beyond the limit.
var corkBuffers = sync.Pool{New: func() any { return bytes.NewBuffer(make([]byte, 0, corkBuffer)) }}

// receiveBuffer reads a connection through a large buffer, which it has only while bytes are in it: a server may have
// very many connections that are idle. Not safe for concurrent use.
type receiveBuffer struct {
	conn *net.TCPConn
	raw  syscall.RawConn
	data *[readBuffer]byte // nil while there are no bytes
	from int               // the bytes are data[from:to]
	to   int

	tryFill func(fd uintptr) bool // the method fillFrom, bound once
	err     error                 // of fillFrom
}

func newReceiveBuffer(conn *net.TCPConn, raw syscall.RawConn) *receiveBuffer {
	b := &receiveBuffer{conn: conn, raw: raw}
	b.tryFill = b.fillFrom
	return b
}

// Read implements io.Reader.
func (b *receiveBuffer) Read(p []byte) (int, error) {
	if b.data == nil {
		if len(p) == 0 || len(p) >= readBuffer {
			return b.conn.Read(p)
		}
		if err := b.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, b.data[b.from:b.to])
	b.from += n
	b.releaseIfEmpty()
	return n, nil
}

// peek returns the next n bytes, at most readBuffer, without consuming them. They are valid until the next Read.
func (b *receiveBuffer) peek(n int) ([]byte, error) {
	for b.to-b.from < n {
		if b.from > 0 {
			b.to = copy(b.data[:], b.data[b.from:b.to])
			b.from = 0
		}
		if err := b.fill(); err != nil {
			return nil, err
		}
	}
	return b.data[b.from:][:n], nil
}

// acquire takes a buffer if there is none.
func (b *receiveBuffer) acquire() {
	if b.data == nil {
		b.data = readBuffers.Get().(*[readBuffer]byte)
	}
}

// releaseIfEmpty gives the buffer back if there are no bytes in it.
func (b *receiveBuffer) releaseIfEmpty() {
	if b.data != nil && b.from == b.to {
		readBuffers.Put(b.data)
		b.data, b.from, b.to = nil, 0, 0
	}
}
