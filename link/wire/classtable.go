// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/binary"
	"math"
)

// GroupID names a group of streams and flows of one bond that policy treats alike. The ID of a
// retired group is never reused, so that late frames are not taken for another group. Group 0 is
// for default traffic and has no entry in a class table.
type GroupID uint32

// Priority orders groups: while a stream of a higher priority has bytes to send, lower ones wait.
type Priority uint8

// Priorities. The zero Priority is the default.
const (
	Normal Priority = iota
	High
	Low
	PriorityCount // number of priorities
)

var priorityNames = [PriorityCount]string{Normal: "normal", High: "high", Low: "low"}

func (c Priority) String() string { return priorityNames[min(c, PriorityCount-1)] }

// Above reports whether c precedes d.
func (c Priority) Above(d Priority) bool {
	rank := [PriorityCount]int{Normal: 1, High: 2, Low: 0}
	return rank[c] > rank[d]
}

// Group is the traffic class that both ends apply to the streams and flows of a group.
type Group struct {
	ID       GroupID // not 0
	Priority Priority
	// Weight is the number of bytes that a stream may send for each byte of a stream of weight 1
	// and the same priority; 1 to 255.
	Weight uint8
	// Limited reports that they may use only Subflows, and wait while none of these exists.
	// Otherwise they may use all.
	Limited  bool
	Subflows []SubflowID
}

// ClassTable, CLASS_TABLE, gives the server the traffic class of every group. It replaces the last
// table; a table with a lower serial is out of date. Streams and flows of a group that no table has
// named yet wait. If a table omits a group with a lower ID than the highest one named so far, that
// group is retired: the primary has no stream or flow of it left.
//
//	serial | then to the end, by rising group:
//	group | priority (1 byte) | weight (1 byte) | 0: not limited, or 1 + number of subflows | subflows
type ClassTable struct {
	Serial uint64
	Groups []Group
}

// ClassUpdate, CLASS_UPDATE, changes the mode and group of a stream, which OPEN has set, for the
// bytes that both ends send from now on. An update with a lower serial than the stream's last one
// is out of date. The first serial is 1.
//
//	stream | serial | mode (1 byte) | group
type ClassUpdate struct {
	Stream StreamID
	Serial uint64
	Mode   Mode
	Group  GroupID
}

// Type implements Frame.
func (ClassUpdate) Type() Type { return TypeClassUpdate }

// AppendPayload implements Frame.
func (f ClassUpdate) AppendPayload(b []byte) []byte {
	b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(f.Stream)), f.Serial)
	return binary.AppendUvarint(append(b, byte(f.Mode)), uint64(f.Group))
}

// ParseClassUpdate parses the payload of a CLASS_UPDATE.
func ParseClassUpdate(b []byte) (f ClassUpdate, err error) {
	p := parser{b: b}
	f.Stream, f.Serial, f.Mode, f.Group = p.readStreamID(), p.readUvarint(), Mode(p.readByte()), p.readGroupID()
	p.bad = p.bad || f.Serial == 0 || f.Mode >= modeCount
	return f, p.checkFrameEnd(TypeClassUpdate)
}

// Bounds of a class table, which is one frame.
const (
	MaxGroups        = 128
	MaxGroupSubflows = 64
)

// Type implements Frame.
func (ClassTable) Type() Type { return TypeClassTable }

// AppendPayload implements Frame.
func (f ClassTable) AppendPayload(b []byte) []byte {
	b = binary.AppendUvarint(b, f.Serial)
	for _, g := range f.Groups {
		b = append(binary.AppendUvarint(b, uint64(g.ID)), byte(g.Priority), g.Weight)
		n := 0
		if g.Limited {
			n = 1 + len(g.Subflows)
		}
		b = binary.AppendUvarint(b, uint64(n))
		for _, p := range g.Subflows {
			b = binary.AppendUvarint(b, uint64(p))
		}
	}
	return b
}

// ParseClassTable parses the payload of a CLASS_TABLE.
func ParseClassTable(b []byte) (f ClassTable, err error) {
	p := parser{b: b}
	f.Serial = p.readUvarint()
	last := GroupID(0)
	for len(p.b) > 0 && !p.bad {
		g := Group{ID: p.readGroupID(), Priority: Priority(p.readByte()), Weight: p.readByte()}
		n := p.readUvarint()
		if len(f.Groups) >= MaxGroups || g.ID <= last || g.Priority >= PriorityCount || g.Weight == 0 ||
			n > 1+MaxGroupSubflows {
			p.bad = true
			break
		}
		last, g.Limited = g.ID, n > 0
		for ; n > 1 && !p.bad; n-- {
			g.Subflows = append(g.Subflows, p.readSubflowID())
		}
		f.Groups = append(f.Groups, g)
	}
	return f, p.checkFrameEnd(TypeClassTable)
}

func (p *parser) readGroupID() GroupID {
	v := p.readUvarint()
	p.bad = p.bad || v > math.MaxUint32
	return GroupID(v)
}
