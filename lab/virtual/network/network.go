// SPDX-License-Identifier: Apache-2.0

package network

import (
	"fmt"
	"slices"
	"time"

	"mpbond/base/unit"
)

// Network is what connects a primary and a server: paths of one or two links.
type Network struct {
	Seed  uint64 `json:"seed"`
	Paths []Path `json:"paths"`
	// Changing reports that rates change during a run.
	Changing bool `json:"changing"`
}

// Path is one way from primary to server.
type Path struct {
	Name string `json:"name"`
	// Hops are its links from the primary on: one for a direct path, pipe and HS-path for one over
	// a helper.
	Hops []Hop `json:"hops"`
}

// Hop is a link in both directions.
type Hop struct {
	Name string `json:"name"`
	// Up is the direction from the primary to the server.
	Up   Link `json:"up"`
	Down Link `json:"down"`
}

// Direction says which way the bytes of a workload go.
type Direction uint8

// Directions.
const (
	Download Direction = iota
	Upload
)

var directionNames = []string{"download", "upload"}

func (d Direction) String() string { return directionNames[d] }

// MarshalText implements encoding.TextMarshaler.
func (d Direction) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Direction) UnmarshalText(b []byte) error { return parseEnumName(d, directionNames, b) }

// parseEnumName sets v to the index of a name.
func parseEnumName[T ~uint8](v *T, names []string, name []byte) error {
	i := slices.Index(names, string(name))
	if i < 0 {
		return fmt.Errorf("unknown name %q", name)
	}
	*v = T(i)
	return nil
}

// linkInDirection returns the link of a hop in the direction of the data.
func (h *Hop) linkInDirection(d Direction) *Link {
	if d == Upload {
		return &h.Up
	}
	return &h.Down
}

// newPathLines returns running lines of a path, from the primary and from the server.
func newPathLines(s *sim, p *Path) (up, down []*line) {
	for i := range p.Hops {
		up = append(up, newRunningLine(s, p.Hops[i].Up))
		down = append(down, newRunningLine(s, p.Hops[len(p.Hops)-1-i].Down))
	}
	return up, down
}

// Kind is what kind of transfer a workload is.
type Kind uint8

// Kinds of workloads.
const (
	// Objects follow each other on open connections; the time of the last one counts.
	Objects Kind = iota
	// Page fetches the objects of a page over six connections; the time of all counts.
	Page
	// Video fetches segments that last two seconds each; the sum of their times counts.
	Video
	// Beside sends small requests beside one object; the 95th percentile of the times until their
	// answers counts.
	Beside
)

var kindNames = []string{"objects", "page", "video", "beside bulk"}

func (k Kind) String() string { return kindNames[k] }

// MarshalText implements encoding.TextMarshaler.
func (k Kind) MarshalText() ([]byte, error) { return []byte(k.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *Kind) UnmarshalText(b []byte) error { return parseEnumName(k, kindNames, b) }

// Parameters of the kinds.
const (
	pageObjects     = 200
	pageConnections = 6
	segmentLength   = 2 * time.Second
	besideEvery     = 100 * time.Millisecond
	besideAnswer    = 4 << 10
)

// Workload is what an app transfers.
type Workload struct {
	Kind      Kind      `json:"kind"`
	Direction Direction `json:"direction"`
	// Size is the payload of one object, over all its streams; of a page, that of all objects.
	Size    unit.Bytes   `json:"size"`
	Sizes   []unit.Bytes `json:"sizes,omitempty"` // of the objects of a page
	Streams int          `json:"streams"`
	Objects int          `json:"objects"`
	// Pause is the time between objects.
	Pause time.Duration `json:"pause,omitempty"`
	// Begin is when the last object is wanted, after the request of the first one; 0: as soon as the
	// objects before it and the pause have ended. On a changing network it makes schemes comparable:
	// each is judged at the same moment of the changes. Who is not ready by then loses that time.
	Begin time.Duration `json:"begin,omitempty"`
}

// IsWarm reports whether the measured object follows others.
func (w *Workload) IsWarm() bool { return w.Kind == Objects && w.Objects > 1 }

// streamSize returns the size of the i-th stream of an object.
func (w *Workload) streamSize(i int) uint64 {
	n := uint64(w.Size)
	k := uint64(w.Streams)
	return n*uint64(i+1)/k - n*uint64(i)/k
}
