// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"mpbond/base/unit"
)

// pcapBacklog is how many packets may wait for the capture's writer. The emulator never waits for
// it: further packets are missing in the capture and counted.
const pcapBacklog = 4096

// capture writes one file for each end of a link, LINK.NODE.pcap. It has what a capture on that
// interface would show: packets as the node sends them, before the queue, and packets as it
// receives them. The link type is raw IP.
type capture struct {
	files map[captureKey]*captureFile
	bytes int // of each packet
	queue chan capturedPacket
	done  chan error
	lost  atomic.Int64
	spare chan []byte
}

type captureKey struct {
	link string
	end  int
}

type captureFile struct {
	file *os.File
	buf  *bufio.Writer
	pcap *pcapgo.Writer
}

// capturedPacket is a packet on its way to a file.
type capturedPacket struct {
	captureKey
	at   time.Time
	data []byte
	size int // of the packet
}

// newCapture opens the files of all shaped links in dir, for that many bytes of each packet, or 0 for all.
func newCapture(dir string, length int, t *Topology) (*capture, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("packet capture: %w", err)
	}
	c := &capture{files: map[captureKey]*captureFile{}, bytes: cmp.Or(length, bufferSize),
		queue: make(chan capturedPacket, pcapBacklog),
		done:  make(chan error, 1), spare: make(chan []byte, pcapBacklog)}
	for _, link := range t.Links() {
		if !t.Link[link].Shaped() {
			continue
		}
		for end, node := range t.Link[link].Ends {
			f, err := os.Create(filepath.Join(dir, captureName(link, node)))
			if err != nil {
				return nil, fmt.Errorf("packet capture: %w", err)
			}
			buf := bufio.NewWriterSize(f, 1<<16)
			w := pcapgo.NewWriterNanos(buf)
			if err := w.WriteFileHeader(65535, layers.LinkTypeRaw); err != nil {
				return nil, fmt.Errorf("packet capture: %w", err)
			}
			c.files[captureKey{link, end}] = &captureFile{f, buf, w}
		}
	}
	go c.runCaptureWriter()
	return c, nil
}

// captureName returns the name of the file of a link's end.
func captureName(link, node string) string { return link + "." + node + ".pcap" }

// observePacket implements packetTap.
func (c *capture) observePacket(link string, end int, data []byte) {
	var b []byte
	select {
	case b = <-c.spare:
	default:
		b = make([]byte, 0, bufferSize)
	}
	select {
	case c.queue <- capturedPacket{captureKey{link, end}, time.Now(), append(b[:0], data[:min(len(data), c.bytes)]...),
		len(data)}:
	default:
		c.lost.Add(1)
	}
}

// runCaptureWriter writes packets until the queue is closed.
func (c *capture) runCaptureWriter() {
	var err error
	for p := range c.queue {
		info := gopacket.CaptureInfo{Timestamp: p.at, CaptureLength: len(p.data), Length: p.size}
		err = errors.Join(err, c.files[p.captureKey].pcap.WritePacket(info, p.data))
		select {
		case c.spare <- p.data:
		default:
		}
		if len(c.queue) == 0 {
			err = errors.Join(err, c.flushFiles()) // let readers see them
		}
	}
	c.done <- errors.Join(err, c.flushFiles())
}

// flushFiles flushes all files.
func (c *capture) flushFiles() (err error) {
	for _, f := range c.files {
		err = errors.Join(err, f.buf.Flush())
	}
	return err
}

// closeFiles ends the capture. No packet may follow.
func (c *capture) closeFiles() error {
	close(c.queue)
	err := <-c.done
	for _, f := range c.files {
		err = errors.Join(err, f.file.Close())
	}
	return err
}

func bytesFromUint64(n uint64) unit.Bytes { return unit.Bytes(n) }
