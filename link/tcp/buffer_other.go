// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package tcp

// fill waits for bytes and reads them behind those that are there.
func (b *receiveBuffer) fill() error {
	b.acquire()
	defer b.releaseIfEmpty()
	n, err := b.conn.Read(b.data[b.to:])
	if b.to += n; n > 0 {
		return nil
	}
	return err
}

func (b *receiveBuffer) fillFrom(uintptr) bool { return true }
