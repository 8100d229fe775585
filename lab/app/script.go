// SPDX-License-Identifier: Apache-2.0

package app

import (
	"fmt"
	"slices"
	"time"

	"mpbond/base/unit"
)

// Script lists the requests of an app. Its JSON is the input of the lab's client.
type Script struct {
	App string `json:"app"`
	// Connections is how many connections to each host there may be at once. They stay open until
	// the script ends, unless it IsCold.
	Connections int  `json:"connections"`
	TLS         bool `json:"tls,omitempty"`
	// IsCold says that each request opens a connection of its own.
	IsCold bool `json:"cold,omitempty"`
	// SendLimit bounds the rate at which the app sends; 0 is no bound.
	SendLimit unit.Rate `json:"send_limit_bps,omitempty"`
	// Length ends the script after that time, complete or not; 0: when all requests are complete.
	Length   time.Duration `json:"length_ns,omitempty"`
	Requests []Request     `json:"requests"`
	// Browser says that a browser loads the script, which must be one of a page: its root, then
	// scripts, then images.
	Browser Browser `json:"browser,omitempty"`
	// Media is set if the answers are media that a player plays.
	Media *Media `json:"media,omitempty"`
}

// Browser is a way in which a browser speaks to hosts. The zero value is the lab's own client, which
// speaks HTTP/1.1.
type Browser string

// Browsers.
const (
	BrowserHTTP1 Browser = "HTTP/1.1"
	BrowserHTTP2 Browser = "HTTP/2" // one connection to each host
)

// Request sends Up bytes to a host and fetches Down bytes from it. It begins when all requests of
// earlier stages are complete and Pause has passed since then, but not before At, counted from the
// start of the script. Stages begin with 0 and rise along a script.
type Request struct {
	Host  int           `json:"host,omitempty"`
	Stage int           `json:"stage,omitempty"`
	Up    unit.Bytes    `json:"up,omitempty"`
	Down  unit.Bytes    `json:"down,omitempty"`
	Pause time.Duration `json:"pause_ns,omitempty"`
	At    time.Duration `json:"at_ns,omitempty"`
}

// Media says how answers are played: each request fetches Segment of it, in order. Playing begins,
// and goes on after a stall, with StartBuffer of media that follows what was played.
type Media struct {
	Segment     time.Duration `json:"segment_ns"`
	StartBuffer time.Duration `json:"start_buffer_ns"`
}

// Limits of what a client plays. They bound memory and time, and lie far beyond any app here.
const (
	maxRequests    = 10_000
	maxHosts       = 100
	maxConnections = 100
	maxObject      = 128 * unit.MB
	maxLength      = time.Hour
)

// Check returns why the script cannot be played, if it cannot.
func (s Script) Check() error {
	if len(s.Requests) == 0 || len(s.Requests) > maxRequests || s.Connections < 1 || s.Connections > maxConnections ||
		s.Length < 0 || s.Length > maxLength || s.SendLimit < 0 {
		return fmt.Errorf("script of %q: it needs 1 to %d requests, 1 to %d connections for each host and at most %v",
			s.App, maxRequests, maxConnections, maxLength)
	}
	stage := 0
	for i, r := range s.Requests {
		switch {
		case r.Host < 0 || r.Host >= maxHosts || r.Up < 0 || r.Up > maxObject || r.Down < 0 || r.Down > maxObject:
			return fmt.Errorf("script of %q: request %d: hosts are below %d, sizes at most %v", s.App, i, maxHosts, maxObject)
		case r.Stage < stage || r.Stage > stage+1 || i == 0 && r.Stage != 0:
			return fmt.Errorf("script of %q: request %d: stages begin with 0 and rise by one", s.App, i)
		case r.Pause < 0 || r.Pause > maxLength || r.At < 0 || r.At > maxLength:
			return fmt.Errorf("script of %q: request %d: times are at most %v", s.App, i, maxLength)
		}
		stage = r.Stage
	}
	if s.Browser != "" && !s.isPage() {
		return fmt.Errorf("script of %q: a browser loads a root, then scripts, then images, by TLS over %d connections and "+
			"without pauses", s.App, browserConnections)
	}
	if m := s.Media; m != nil && (m.Segment <= 0 || m.StartBuffer <= 0) {
		return fmt.Errorf("script of %q: media needs a segment and a buffer to start with", s.App)
	}
	return nil
}

// browserConnections is how many connections to a host browsers open with HTTP/1.1.
const browserConnections = 6

// isPage reports whether a browser can load the script.
func (s Script) isPage() bool {
	return s.TLS && s.Connections == browserConnections && s.Length == 0 && s.SendLimit == 0 && s.Media == nil &&
		len(s.StageOf(0)) == 1 && s.StageCount() <= 3 &&
		!slices.ContainsFunc(s.Requests, func(r Request) bool {
			return r.Up > 0 || r.Down < leastObject || r.Pause > 0 || r.At > 0
		})
}

// Bytes returns how many bytes the script sends and fetches, without headers. A script with a
// Length may end before.
func (s Script) Bytes() (up, down unit.Bytes) {
	for _, r := range s.Requests {
		up, down = up+r.Up, down+r.Down
	}
	return up, down
}

// HostCount returns how many hosts the script uses.
func (s Script) HostCount() (n int) {
	for _, r := range s.Requests {
		n = max(n, r.Host+1)
	}
	return n
}

// StageOf returns the requests of a stage, by index.
func (s Script) StageOf(stage int) (indexes []int) {
	for i, r := range s.Requests {
		if r.Stage == stage {
			indexes = append(indexes, i)
		}
	}
	return indexes
}

// StageCount returns the number of stages.
func (s Script) StageCount() int {
	if len(s.Requests) == 0 {
		return 0
	}
	return s.Requests[len(s.Requests)-1].Stage + 1
}

// idleTime returns how long the script lasts if its bytes take no time.
func (s Script) idleTime() (total time.Duration) {
	began, stage := time.Duration(0), 0
	for _, r := range s.Requests {
		if r.Stage != stage {
			began, stage = total, r.Stage
		}
		total = max(total, began+r.Pause, r.At)
	}
	return total
}

// ExpectedTime estimates how long the script takes if all of its bytes take network.
func (s Script) ExpectedTime(network time.Duration) time.Duration {
	if s.Length > 0 {
		return s.Length
	}
	return s.idleTime() + network
}
