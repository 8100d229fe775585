package wire

import (
	"encoding/binary"
	"math"
)

// GroupID names a kind of streams and flows that policy treats alike, within a
// bond, for its life: one that is gone is never used again, so that what is late
// is not taken for something else. Group 0 is for all that policy says nothing
// special of, and has no entry in a plan.
type GroupID uint32

// Priority is how urgent what a group sends is: while a stream of a higher class
// has something that can be sent, lower ones wait.
type Priority uint8

// Classes. The zero Class is the usual one.
const (
	Normal Priority = iota
	High
	Low
	PriorityCount // how many there are
)

var priorityNames = [PriorityCount]string{Normal: "normal", High: "high", Low: "low"}

func (c Priority) String() string { return priorityNames[min(c, PriorityCount-1)] }

// Above reports whether c goes before d.
func (c Priority) Above(d Priority) bool {
	rank := [PriorityCount]int{Normal: 1, High: 2, Low: 0}
	return rank[c] > rank[d]
}

// Group is how both ends treat the streams and flows of a group.
type Group struct {
	ID       GroupID // over 0
	Priority Priority
	// Weight is how many bytes a stream may send where one of weight 1 in the same
	// class sends one; 1 to 255.
	Weight uint8
	// Limited tells that they may use Paths only, and wait while there is none of
	// these; else all.
	Limited  bool
	Subflows []SubflowID
}

// ClassTable tells the server how to treat groups. It holds them all, and replaces the
// plan of the next lower serial number; one with a lower serial is out of date.
// What belongs to a group that no plan has told of yet waits. Of a group that was
// left out although it is lower than one that was told, the primary has no stream
// or flow any more.
//
//	serial | then to the end, by rising group:
//	group | class (1 byte) | weight (1 byte) | 0: not limited, or 1 + number of paths | paths
type ClassTable struct {
	Serial uint64
	Groups []Group
}

// ClassUpdate has both ends treat the bytes of a stream in another way than OPEN has said.
// One with a lower serial number than the last one of that stream is out of date; the
// first has 1.
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
	return f, p.checkEnd(TypeClassUpdate)
}

// Bounds of a plan, which is one frame.
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
		if len(f.Groups) >= MaxGroups || g.ID <= last || g.Priority >= PriorityCount || g.Weight == 0 || n > 1+MaxGroupSubflows {
			p.bad = true
			break
		}
		last, g.Limited = g.ID, n > 0
		for ; n > 1 && !p.bad; n-- {
			g.Subflows = append(g.Subflows, p.readSubflowID())
		}
		f.Groups = append(f.Groups, g)
	}
	return f, p.checkEnd(TypeClassTable)
}

func (p *parser) readGroupID() GroupID {
	v := p.readUvarint()
	p.bad = p.bad || v > math.MaxUint32
	return GroupID(v)
}
