// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gopacket/gopacket/pcapgo"
)

// headerBytes is how much of each packet holds the headers of IP and TCP, with all options.
const headerBytes = 128

// captureHeaders returns the options of a lab with captures of all headers, if the spec has figures from these.
// done removes the captures.
func (s *session) captureHeaders(o Options) (_ Options, done func(), err error) {
	if !s.spec.Handshakes && !s.spec.Held {
		return o, func() {}, nil
	}
	if o.Pcap != "" {
		return o, nil, errors.New("handshakes and held bytes are read from captures of their own: omit the directory")
	}
	if o.Pcap, err = os.MkdirTemp("", "mpbond-headers-"); err != nil {
		return o, nil, err
	}
	o.PcapBytes, s.captures = headerBytes, o.Pcap
	return o, func() { os.RemoveAll(o.Pcap) }, nil
}

// linkPacket is a packet at the primary's end of a link, without what follows its headers.
type linkPacket struct {
	at   time.Time
	link string
	data []byte
}

// readCaptures returns what was captured at the primary's ends of all links since a time, in order.
func (s *session) readCaptures(b *Bench, since time.Time) (all []linkPacket, err error) {
	for _, link := range b.Lab.Topology.Links() {
		one, e := readCapture(filepath.Join(s.captures, captureName(link, "primary")), link, since)
		if e != nil && !errors.Is(e, os.ErrNotExist) { // it ends elsewhere
			err = fmt.Errorf("captured packets: %w", e)
		}
		all = append(all, one...)
	}
	slices.SortStableFunc(all, func(a, b linkPacket) int { return a.at.Compare(b.at) })
	return all, err
}

// readCapture returns the packets of a capture since a time. The file may still grow.
func readCapture(file, link string, since time.Time) (all []linkPacket, err error) {
	in, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	p, err := pcapgo.NewReader(bufio.NewReaderSize(in, 1<<16))
	for err == nil {
		data, info, e := p.ReadPacketData()
		if err = e; err == nil && !info.Timestamp.Before(since) {
			all = append(all, linkPacket{info.Timestamp, link, data})
		}
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil // its last packet may be half written
	}
	return all, err
}
