// SPDX-License-Identifier: Apache-2.0

package onload

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"mpbond/e2e/rig"
)

// video is a video of segments of equal size and duration.
type video struct {
	segments int
	size     int64
	each     time.Duration
}

// publish puts a video on the web server and returns its segments' URLs and digests.
func (v video) publish(n *network) (urls, sums []string) {
	n.Helper()
	list := "#EXTM3U\n#EXT-X-TARGETDURATION:10\n"
	for i := range v.segments {
		name := fmt.Sprintf("v/%d.ts", i)
		sums = append(sums, n.writeNoise(filepath.Join(n.www, name), v.size))
		urls = append(urls, n.url+name)
		list += fmt.Sprintf("#EXTINF:%g,\n%d.ts\n", v.each.Seconds(), i)
	}
	n.writeFile(filepath.Join(n.www, "v/list.m3u8"), list+"#EXT-X-ENDLIST\n")
	if err := os.Chmod(filepath.Join(n.www, "v/list.m3u8"), 0o644); err != nil {
		n.Fatal(err)
	}
	return urls, sums
}

// watchVideo has curl fetch a playlist and then its segments, one after the other, through a proxy.
// It calls begun before the first request for a segment, and returns when each segment was
// complete, counted from then.
func (n *network) watchVideo(proxy string, urls, sums []string, begun func()) (at []time.Duration) {
	n.Helper()
	dir := filepath.Join(n.Dir, "seen")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		n.Fatal(err)
	}
	get := []string{"curl", "-sS", "--max-time", "120", "-x", proxy, "-w", "%{time_total}\n"}
	if _, err := n.Run("primary", append(get, "-o", "/dev/null", n.url+"v/list.m3u8")...); err != nil {
		n.Fatal(err)
	}
	for i, url := range urls {
		get = append(get, "-o", filepath.Join(dir, strconv.Itoa(i)), url)
	}
	begun()
	times, err := n.Run("primary", get...)
	if err != nil {
		n.Fatal(err)
	}
	var sum time.Duration
	for i, line := range strings.Fields(string(times)) {
		s, err := strconv.ParseFloat(line, 64)
		if err != nil {
			n.Fatal(err)
		}
		sum += time.Duration(s * float64(time.Second))
		at = append(at, sum)
		if got := fileSum(filepath.Join(dir, strconv.Itoa(i))); got != sums[i] {
			n.Errorf("segment %d has the wrong SHA-256 %s", i, got)
		}
	}
	return at
}

// stallTime returns how long a player stalls that starts with the first segment.
func (v video) stallTime(at []time.Duration) (sum time.Duration) {
	ready := at[0]
	for _, t := range at {
		sum += max(0, t-ready)
		ready = max(ready, t) + v.each
	}
	return sum
}

// startPlay starts mpbond play and waits until helper1 takes part. It returns the proxy's URL and
// the process.
func (n *network) startPlay() (string, *rig.Process) {
	n.Helper()
	const at = "127.0.0.1:7606"
	p := n.Start("primary", n.Mpbond, "play", "--json", "--listen", at)
	n.waitUntil("mpbond play", "has its helper", func() (bool, error) {
		log := p.Log.String()
		return strings.Contains(log, "also using helper1"), nil
	})
	return "http://" + at, p
}

// TestPlaySilent silences a helper's link once the helper carries. A video that the home link alone
// can play without a stall must still arrive byte for byte. The stall time is only logged.
func TestPlaySilent(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, rig.Triangle(t, "12/12/100"))
	n.url = n.startNginx()
	v := video{6, 1 * mb, 2 * time.Second}
	urls, sums := v.publish(n)
	n.startHelper("helper1")
	proxy, play := n.startPlay()
	watched, silenced := make(chan struct{}), make(chan error, 1)
	at := n.watchVideo(proxy, urls, sums, func() {
		go func() { silenced <- n.silenceWhenCarrying("helper1", "hs1", watched) }()
	})
	close(watched)
	if err := <-silenced; err != nil {
		t.Error(err)
	}
	play.End(os.Interrupt)
	n.Logf("the player stalled for %v; segments arrived at %v\n%s", v.stallTime(at), at, &play.Log)
}

// silenceWhenCarrying cuts a link once a helper carries. It returns an error if that has not
// happened before watched is closed.
func (n *network) silenceWhenCarrying(helper, link string, watched <-chan struct{}) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if down, err := n.carriedBytes(helper); err != nil {
			return err
		} else if down > 0 {
			return n.Lab.Set(link, "", "outage=on")
		}
		select {
		case <-tick.C:
		case <-watched:
			return fmt.Errorf("%s carried nothing", helper)
		}
	}
}
