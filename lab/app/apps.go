// SPDX-License-Identifier: Apache-2.0

package app

import (
	"math"
	"math/rand/v2"
	"time"

	"mpbond/base/unit"
)

// [P] marks values that the study publishes. The others are our assumptions.

// SpeedTest downloads over four connections for 15 seconds.
func SpeedTest() Script {
	const connections = 4
	s := Script{App: "SpeedTest", Connections: connections, Length: 15 * time.Second}
	for range connections {
		s.Requests = append(s.Requests, Request{Down: maxObject})
	}
	return s
}

// Dropbox uploads a file in serial requests of 4 MB, at 30 Mbit/s at most [P].
func Dropbox(size unit.Bytes) Script {
	s := Script{App: "Dropbox", Connections: 1, SendLimit: 30 * unit.Mbps}
	for left := size; left > 0; left -= 4 * unit.MB {
		s.addSerial(Request{Up: min(left, 4*unit.MB)})
	}
	return s
}

// Spotify fetches a song of 8.8 MB in serial ranges of 512 KB.
func Spotify() Script {
	s := Script{App: "Spotify", Connections: 1}
	for left := 88 * unit.MB / 10; left > 0; left -= 512 * unit.KB {
		s.addSerial(Request{Down: min(left, 512*unit.KB)})
	}
	return s
}

// YouTube plays 480p [P] for a time: 25 seconds of media at once, then 5 seconds of media each 5
// seconds, over two connections.
func YouTube(length time.Duration) Script {
	const (
		rate    = 1200 * unit.Kbps
		segment = 5 * time.Second
		atOnce  = 5
	)
	s := Script{App: "YouTube", Connections: 2, Length: length, Media: &Media{Segment: segment, StartBuffer: segment}}
	for range atOnce {
		s.Requests = append(s.Requests, Request{Down: rate.Bytes(segment)})
	}
	for at := segment; at < length; at += segment {
		s.Requests = append(s.Requests, Request{Down: rate.Bytes(segment), At: at})
	}
	return s
}

// Facebook makes 15 requests of 1 to 100 KB to two hosts in turn, over one connection to each. The user
// pauses 1 to 5 seconds before each request, which sends 500 bytes.
func Facebook(seed uint64) Script {
	random := rand.New(rand.NewPCG(seed, 7))
	s := Script{App: "Facebook", Connections: 1}
	for i := range 15 {
		size := unit.Bytes(math.Exp(math.Log(1000) + random.Float64()*math.Log(100)))
		s.addSerial(Request{Host: i % 2, Up: 500, Down: size, Pause: pauseBetween(random, time.Second, 5*time.Second)})
	}
	return s
}

// Messenger makes 12 exchanges of 200 to 2000 bytes each way on one connection, 2 to 5 seconds
// apart.
func Messenger(seed uint64) Script {
	random := rand.New(rand.NewPCG(seed, 8))
	s := Script{App: "Messenger", Connections: 1}
	for range 12 {
		s.addSerial(Request{Up: bytesBetween(random, 200, 2000), Down: bytesBetween(random, 200, 2000),
			Pause: pauseBetween(random, 2*time.Second, 5*time.Second)})
	}
	return s
}

// siteKind bounds the pages of a kind of sites.
type siteKind struct {
	name                      string
	leastBytes, mostBytes     unit.Bytes
	leastObjects, mostObjects int
	leastHosts, mostHosts     int
	randomStream              uint64 // of drawPage
}

var (
	largeSites = siteKind{name: "large sites", leastBytes: 6 * unit.MB, mostBytes: 15 * unit.MB, // [P]
		leastObjects: 100, mostObjects: 250, leastHosts: 15, mostHosts: 25, randomStream: 5}
	smallSites = siteKind{name: "small sites", leastBytes: 300 * unit.KB, mostBytes: 4900 * unit.KB, // below 5 MB [P]
		leastObjects: 20, mostObjects: 100, leastHosts: 3, mostHosts: 12, randomStream: 6}
)

// LargeSite loads a page of 6 to 15 MB [P] with 100 to 250 objects from 15 to 25 hosts.
func LargeSite(seed uint64) Script { return largeSites.drawPage(seed) }

// SmallSite loads a page of 0.3 to 4.9 MB with 20 to 100 objects from 3 to 12 hosts.
func SmallSite(seed uint64) Script { return smallSites.drawPage(seed) }

// Sizes of objects are lognormal, scaled to the size of the page.
const (
	medianObject = 12_000.0
	sigmaObject  = 1.5
	leastObject  = 100
)

// drawPage draws a page: its root, then 5 to 15 scripts and styles, then the other objects. Each
// host has at least one object, and hosts of lower number have more.
func (k siteKind) drawPage(seed uint64) Script {
	random := rand.New(rand.NewPCG(seed, k.randomStream))
	total := bytesBetween(random, k.leastBytes, k.mostBytes)
	objects := k.leastObjects + random.IntN(k.mostObjects-k.leastObjects+1)
	hosts := k.leastHosts + random.IntN(k.mostHosts-k.leastHosts+1)
	styles := 5 + random.IntN(11)
	s := Script{App: k.name, Connections: 6, TLS: true}
	sizes, sum := make([]float64, objects), 0.0
	for i := range sizes {
		sizes[i] = medianObject * math.Exp(sigmaObject*random.NormFloat64())
		sum += sizes[i]
	}
	for i, size := range sizes {
		r := Request{Down: max(leastObject, unit.Bytes(size/sum*float64(total)))}
		switch {
		case i == 0:
		case i <= styles:
			r.Stage = 1
		default:
			r.Stage = 2
		}
		if i < hosts {
			r.Host = i
		} else {
			r.Host = int(float64(hosts) * random.Float64() * random.Float64())
		}
		s.Requests = append(s.Requests, r)
	}
	return s
}

// addSerial appends a request that begins when all before it are complete.
func (s *Script) addSerial(r Request) {
	r.Stage = s.StageCount()
	s.Requests = append(s.Requests, r)
}

// bytesBetween draws a size between two bounds, both included.
func bytesBetween(random *rand.Rand, least, most unit.Bytes) unit.Bytes {
	return least + unit.Bytes(random.Int64N(int64(most-least)+1))
}

// pauseBetween draws a pause between two bounds.
func pauseBetween(random *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(random.Int64N(int64(most-least)+1))
}
