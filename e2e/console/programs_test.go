// SPDX-License-Identifier: Apache-2.0

package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"mpbond/base/porttest"
	"mpbond/e2e/rig"
	"mpbond/onload/playlist"
)

// programTimeout bounds one run of a program.
const programTimeout = time.Minute

// program is a third-party player or downloader.
type program struct {
	name string
	// args returns the arguments for a video. The program writes to out or to standard output.
	args func(url, out string) []string
	// lists are the playlists to run it with.
	lists []string
	// whole means that out holds the unchanged media of all segments, one after the other.
	whole bool
}

// programs are available in Debian. ffmpeg and mpv use libavformat, which sends
// "Range: bytes=0-" with every request; the others are written in Python.
var programs = []program{
	{name: "ffmpeg", lists: []string{
		"ts/list.m3u8", "aes/list.m3u8", "map/list.m3u8", "number/a.mpd", "gzip/list.m3u8",
	}, args: func(url, _ string) []string {
		return []string{"-nostdin", "-v", "error", "-i", url, "-map", "0:v", "-c", "copy", "-f", "framemd5", "-"}
	}},
	{name: "mpv", lists: []string{"ts/list.m3u8", "map/list.m3u8", "number/a.mpd"}, args: func(url, _ string) []string {
		return []string{"--no-config", "--no-terminal", "--vo=null", "--ao=null", "--untimed",
			"--log-file=/dev/stdout", url}
	}},
	{name: "yt-dlp", whole: true, lists: []string{
		"ts/list.m3u8", "gzip/list.m3u8",
	}, args: func(url, out string) []string {
		return []string{"--ignore-config", "--no-cache-dir", "--fixup", "never", "--no-part",
			"--hls-prefer-native", "-o", out, url}
	}},
	{name: "streamlink", whole: true, lists: []string{
		"ts/list.m3u8", "aes/list.m3u8", "gzip/list.m3u8",
	}, args: func(url, out string) []string {
		return []string{"-o", out, "hls://" + url, "best"}
	}},
}

// TestPrograms plays or downloads videos of a real nginx with ffmpeg, mpv, yt-dlp and streamlink
// through mpbond play. Each program must get the same bytes as without the proxy. Most segments
// must come over all devices, ahead of the program.
func TestPrograms(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("nginx"); err != nil {
		t.Skip("no nginx is installed: apt-get install nginx-light")
	}
	w := &testbed{Network: rig.New(t, rig.Options{})}
	s := &site{t: t, dir: filepath.Join(w.Dir, "web"), addr: porttest.FreeAddress(w)}
	s.publishVideos()
	s.startNginx(w)
	w.startHelpers(2)
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			if _, err := exec.LookPath(p.name); err != nil {
				t.Skipf("%s is not installed: .ci/deps programs", p.name)
			}
			t.Parallel()
			for _, list := range p.lists {
				p.compareOutput(t, w, s, list)
			}
		})
	}
}

// startPlay starts mpbond play and returns its address. It may be called concurrently.
func (w *testbed) startPlay() (at string, play *rig.Process) {
	w.starting.Lock()
	defer w.starting.Unlock()
	at = porttest.FreeAddress(w)
	return at, w.Start("laptop", w.Mpbond, "play", "--json", "--listen", at)
}

// compareOutput runs a program with a video, without and with mpbond play, and compares the output.
func (p program) compareOutput(t *testing.T, w *testbed, s *site, list string) {
	url := "http://" + s.addr + "/" + list
	direct, err := p.runProgram(t, url, "")
	if err != nil {
		t.Fatalf("%s without the proxy: %v\n%s", list, err, direct)
	}
	at, play := w.startPlay()
	rig.Eventually(t, func() error {
		if log := play.Log.String(); !strings.Contains(log, "also using phone1, phone2") {
			return errors.New(log)
		}
		return nil
	})
	proxied, err := p.runProgram(t, url, "http://"+at)
	if err != nil {
		t.Errorf("%s: %v\n%s", list, err, proxied)
	}
	if p.name != "mpv" && !bytes.Equal(direct, proxied) { // mpv's log contains times
		t.Errorf("%s: %d bytes, which differ from the %d without the proxy", list, len(proxied), len(direct))
	}
	if p.whole && !bytes.Equal(proxied, s.readMedia()) {
		t.Errorf("%s: %d bytes, which differ from the segments", list, len(proxied))
	}
	play.End(os.Interrupt)
	var r playlist.Result
	log := play.Log.String()
	if err := json.Unmarshal([]byte(log[max(0, strings.Index(log, "{")):]), &r); err != nil {
		t.Fatal(err, log)
	}
	t.Logf("%s: %+v", list, r)
	if r.Segments < segmentCount-1 || r.Passed > 0 {
		t.Errorf("%s: %d of %d segments came over all devices, %d were left to the program",
			list, r.Segments, segmentCount, r.Passed)
	}
}

// runProgram returns the program's output or, with an error, its messages.
func (p program) runProgram(t *testing.T, url, proxy string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(t.Context(), programTimeout)
	defer cancel()
	dir := t.TempDir()
	out := filepath.Join(dir, "out.ts")
	cmd := exec.CommandContext(ctx, p.name, p.args(url, out)...)
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir,
		"http_proxy="+proxy, "HTTP_PROXY="+proxy, "all_proxy=", "no_proxy=", "NO_PROXY=")
	var said bytes.Buffer
	cmd.Stderr = &said
	printed, err := cmd.Output()
	if err != nil {
		return append(said.Bytes(), printed...), err
	}
	if p.whole {
		return os.ReadFile(out)
	}
	return printed, nil
}

// readMedia returns the media of ts/list.m3u8. Other lists have the same media, some of them
// encrypted or under other paths.
func (s *site) readMedia() (all []byte) {
	for i := range segmentCount {
		data, err := os.ReadFile(fmt.Sprintf("%s/www/ts/%d.ts", s.dir, i))
		if err != nil {
			s.t.Fatal(err)
		}
		all = append(all, data...)
	}
	return all
}
