// SPDX-License-Identifier: Apache-2.0

package console

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"mpbond/base/porttest"
	"mpbond/e2e/rig"
	"mpbond/onload/playlist"
)

// segmentCount is the number of one-second segments in each video.
const segmentCount = 8

// readPlayerScript returns a file of a third-party player in bin/players, where
// `.ci/deps players` puts them.
func readPlayerScript(t *testing.T, pack, file string) []byte {
	t.Helper()
	found, _ := filepath.Glob("../../bin/players/" + pack + "-*.tgz")
	if len(found) != 1 {
		t.Skipf("%s is missing: run .ci/deps players", pack)
	}
	f, err := os.Open(found[0])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for in := tar.NewReader(z); ; {
		head, err := in.Next()
		if err != nil {
			t.Fatalf("%s: no %s: %v", found[0], file, err)
		}
		if head.Name == "package/dist/"+file {
			data, err := io.ReadAll(in)
			if err != nil {
				t.Fatal(err)
			}
			return data
		}
	}
}

// site is a web server, a real nginx, with videos.
type site struct {
	t    *testing.T
	dir  string
	addr string
}

func (s *site) writeFile(name string, data []byte) {
	s.t.Helper()
	path := filepath.Join(s.dir, "www", name)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	if err == nil {
		err = os.WriteFile(path+".new", data, 0o644)
	}
	if err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *site) writeText(name, format string, args ...any) {
	s.writeFile(name, fmt.Appendf(nil, format, args...))
}

// startNginx starts nginx. It limits a connection to 1.5 MB/s, so that several devices help.
func (s *site) startNginx(w *testbed) {
	s.t.Helper()
	conf := fmt.Sprintf(`%[3]s daemon off; master_process off; pid %[1]s/pid; error_log stderr error; events {}
http { log_format asked '$msec $request_time $uri $http_range'; access_log %[1]s/log asked;
types { text/html html; text/javascript js; }
client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f;
uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
server { listen %[2]s; listen 127.0.0.2:%[4]s; root %[1]s/www; limit_rate 1500k; location ~ js$ { limit_rate 0; }
location /gzip/ { gzip on; gzip_min_length 1; gzip_types *; }
location ~ ^/moved/.*ts$ {
  add_header Access-Control-Allow-Origin *;
  if ($http_host = %[2]s) { return 302 http://127.0.0.2:%[4]s$uri; }
} } }`, s.dir, s.addr, map[bool]string{true: "user root;"}[os.Geteuid() == 0], s.addr[strings.Index(s.addr, ":")+1:])
	if err := os.WriteFile(s.dir+"/conf", []byte(conf), 0o600); err != nil {
		s.t.Fatal(err)
	}
	w.Start("web", "nginx", "-e", "stderr", "-c", s.dir+"/conf")
}

// firstRequests returns when nginx first received a request for each path, and for each path with
// its range.
func (s *site) firstRequests() map[string]time.Time {
	s.t.Helper()
	log, err := os.ReadFile(s.dir + "/log")
	if err != nil {
		s.t.Fatal(err)
	}
	all := map[string]time.Time{}
	for line := range strings.Lines(string(log)) {
		f := strings.Fields(line)
		end, err1 := strconv.ParseFloat(f[0], 64)
		took, err2 := strconv.ParseFloat(f[1], 64)
		if err := errors.Join(err1, err2); err != nil {
			s.t.Fatal(err)
		}
		at := time.UnixMilli(int64(1000 * (end - took)))
		for _, k := range []string{f[2], f[2] + " " + f[3]} {
			if was, ok := all[k]; !ok || at.Before(was) {
				all[k] = at
			}
		}
	}
	return all
}

// publishVideos writes all videos and returns the paths of their playlists.
func (s *site) publishVideos() []string {
	var ts, mp4 [][]byte
	for i := range segmentCount {
		ts = append(ts, transportStream(i*fps, fps))
		mp4 = append(mp4, mediaFragment(i*fps, fps))
	}
	begin, key := initSegment(), []byte("sixteen bytes ok")
	s.writeFile("aes/key", key)
	s.writeFile("map/init.mp4", begin)
	s.writeFile("map/all.mp4", bytes.Join(mp4, nil))
	s.writeFile("number/init.mp4", begin)
	s.writeFile("time/init.mp4", begin)
	sidx := segmentIndex(mp4, fps)
	s.writeFile("base/all.mp4", slices.Concat(begin, sidx, bytes.Join(mp4, nil)))
	s.writeFile("parts/all.mp4", slices.Concat(begin, bytes.Join(mp4, nil)))
	const head = "#EXTM3U\n#EXT-X-VERSION:7\n#EXT-X-TARGETDURATION:1\n"
	plain, parts := head, ""
	aes := head + "#EXT-X-KEY:METHOD=AES-128,URI=\"key\"\n"
	byterange := head + "#EXT-X-MAP:URI=\"init.mp4\"\n"
	for i := range segmentCount {
		s.writeFile(fmt.Sprintf("ts/%d.ts", i), ts[i])
		s.writeFile(fmt.Sprintf("aes/%d.ts", i), encryptAES(ts[i], key, i))
		s.writeFile(fmt.Sprintf("live/%d.ts", i), ts[i])
		s.writeFile(fmt.Sprintf("moved/%d.ts", i), ts[i])
		s.writeFile(fmt.Sprintf("number/%d.m4s", i+1), mp4[i])
		s.writeFile(fmt.Sprintf("time/%d.m4s", i*90_000), mp4[i])
		plain += fmt.Sprintf("#EXTINF:1,\n%d.ts\n", i)
		aes += fmt.Sprintf("#EXTINF:1,\n%d.ts\n", i)
		byterange += fmt.Sprintf("#EXTINF:1,\n#EXT-X-BYTERANGE:%d@%d\nall.mp4\n",
			len(mp4[i]), len(bytes.Join(mp4[:i], nil)))
		at := len(begin) + len(bytes.Join(mp4[:i], nil))
		parts += fmt.Sprintf(`<SegmentURL media="all.mp4" mediaRange="%d-%d"/>`, at, at+len(mp4[i])-1)
	}
	s.writeText("ts/list.m3u8", "%s#EXT-X-ENDLIST\n", plain)
	// redirects each segment to another host
	s.writeText("moved/list.m3u8", "%s#EXT-X-ENDLIST\n", plain)
	// sent compressed
	s.writeText("gzip/list.m3u8", "%s#EXT-X-ENDLIST\n", strings.ReplaceAll(plain, "#EXTINF:1,\n", "#EXTINF:1,\n../ts/"))
	s.writeText("aes/list.m3u8", "%s#EXT-X-ENDLIST\n", aes)
	s.writeText("map/list.m3u8", "%s#EXT-X-ENDLIST\n", byterange)
	s.publishLive(4)
	mpd := func(dir, text string) {
		s.writeText(dir+"/a.mpd", `<MPD xmlns="urn:mpeg:dash:schema:mpd:2011" type="static"
profiles="urn:mpeg:dash:profile:full:2011" minBufferTime="PT1S" mediaPresentationDuration="PT%dS"><Period>
<AdaptationSet mimeType="video/mp4" segmentAlignment="true">
<Representation id="v" bandwidth="1500000" codecs=%q width="%d" height="%d">%s</Representation>
</AdaptationSet></Period></MPD>`,
			segmentCount, codec, 16*sideMacroblocks, 16*sideMacroblocks, text)
	}
	mpd("number", `<SegmentTemplate duration="1" initialization="init.mp4" media="$Number$.m4s"/>`)
	mpd("time", fmt.Sprintf(`<SegmentTemplate timescale="90000" initialization="init.mp4" media="$Time$.m4s">`+
		`<SegmentTimeline><S t="0" d="90000" r="%d"/></SegmentTimeline></SegmentTemplate>`, segmentCount-1))
	mpd("parts",
		fmt.Sprintf(`<SegmentList duration="1"><Initialization sourceURL="all.mp4" range="0-%d"/>%s</SegmentList>`,
			len(begin)-1, parts))
	mpd("base", fmt.Sprintf(`<BaseURL>all.mp4</BaseURL><SegmentBase indexRange="%d-%d"><Initialization range="0-%d"/>`+
		`</SegmentBase>`, len(begin), len(begin)+len(sidx)-1, len(begin)-1))
	return []string{
		"ts/list.m3u8", "aes/list.m3u8", "map/list.m3u8", "moved/list.m3u8", "live/list.m3u8",
		"number/a.mpd", "time/a.mpd", "parts/a.mpd", "base/a.mpd",
	}
}

// publishLive publishes the live playlist in its state after n segments.
func (s *site) publishLive(n int) {
	from := max(0, n-4)
	text := fmt.Sprintf("#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXT-X-MEDIA-SEQUENCE:%d\n", from)
	for i := from; i < n; i++ {
		text += fmt.Sprintf("#EXTINF:1,\n%d.ts\n", i)
	}
	if n == segmentCount {
		text += "#EXT-X-ENDLIST\n"
	}
	s.writeFile("live/list.m3u8", []byte(text))
}

// playerPage plays several videos at once, at double speed unless they are live. It records what
// the players request and receive.
const playerPage = `<!doctype html><meta charset=utf-8><script src=hls.js></script><script src=dash.js></script>
<body><script>
const asked = [], state = {};
const hex = async (b) => [...new Uint8Array(await crypto.subtle.digest("SHA-256", b))]
	.map((x) => x.toString(16).padStart(2, "0")).join("");
const note = (u) => {
	const n = { url: new URL(u, location).pathname, range: "", at: Date.now(), size: 0, sum: "" };
	asked.push(n); return n };
const keep = async (n, b) => { n.size = b.byteLength; n.sum = await hex(b) };
const P = XMLHttpRequest.prototype, { open, send, setRequestHeader } = P;
P.open = function (m, u, ...more) { this.n = note(u);
	this.addEventListener("readystatechange", () => { // before the player's listener, which transfers the buffer
		if (this.readyState == 4 && this.response instanceof ArrayBuffer) keep(this.n, this.response.slice(0)) });
	return open.call(this, m, u, ...more) };
P.setRequestHeader = function (k, v) {
	if (k.toLowerCase() == "range") this.n.range = v;
	return setRequestHeader.call(this, k, v) };
P.send = function (...a) { this.n.at = Date.now(); return send.apply(this, a) };
const real = fetch;
window.fetch = async (q, o) => {
	const n = note(q.url ?? q), r = new Request(q, o); n.range = r.headers.get("Range") ?? "";
	const a = await real(q, o); a.clone().arrayBuffer().then((b) => keep(n, b), () => {}); return a };
function play(list) {
	const v = document.body.appendChild(document.createElement("video"));
	const s = state[list] = { at: 0, ended: false, errors: [] };
	v.muted = true; v.defaultPlaybackRate = list.startsWith("live") ? 1 : 2;
	v.addEventListener("ended", () => s.ended = true); v.addEventListener("timeupdate", () => s.at = v.currentTime);
	v.addEventListener("error", () => s.errors.push(v.error.message));
	if (list.endsWith("mpd")) {
		const d = dashjs.MediaPlayer().create();
		d.updateSettings({ streaming: { buffer: { bufferTimeDefault: 2, bufferTimeAtTopQuality: 2,
			bufferTimeAtTopQualityLongForm: 2, fastSwitchEnabled: false } } });
		d.on(dashjs.MediaPlayer.events.ERROR, (e) => s.errors.push(JSON.stringify(e.error ?? e)));
		d.initialize(v, list, true);
	} else {
		const h = new Hls({ maxBufferLength: 2, maxMaxBufferLength: 2, liveSyncDurationCount: 2 });
		h.on(Hls.Events.ERROR, (_, e) => { if (e.fatal) s.errors.push(e.details + " " + (e.error ?? "")) });
		h.loadSource(list); h.attachMedia(v); v.play();
	}
}
</script>`

// TestPlayers plays videos of a real nginx to their ends with hls.js and dash.js in a real browser,
// through mpbond play. Some videos are live or encrypted. Segments must be fetched ahead of the
// players over this device and two helpers, and must arrive byte for byte.
func TestPlayers(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("nginx"); err != nil {
		t.Skip("no nginx is installed: apt-get install nginx-light")
	}
	hls := readPlayerScript(t, "hls.js", "hls.min.js")
	dash := readPlayerScript(t, "dashjs", "legacy/umd/dash.all.min.js")
	w := &testbed{Network: rig.New(t, rig.Options{})}
	s := &site{t: t, dir: filepath.Join(w.Dir, "web"), addr: porttest.FreeAddress(w)}
	lists := s.publishVideos()
	s.writeFile("hls.js", hls)
	s.writeFile("dash.js", dash)
	s.writeFile("index.html", []byte(playerPage))
	s.startNginx(w)
	at := porttest.FreeAddress(w)
	w.startHelpers(2)
	play := w.Start("laptop", w.Mpbond, "play", "--json", "--listen", at)
	rig.Eventually(t, func() error {
		if log := play.Log.String(); !strings.Contains(log, "also using phone1, phone2") {
			return errors.New(log)
		}
		return nil
	})
	b := newBrowser(t, map[string]any{
		"no-proxy-server":   false,
		"proxy-server":      "http://" + at,
		"proxy-bypass-list": "<-loopback>",
		"autoplay-policy":   "no-user-gesture-required",
	})
	b.openURL("http://" + s.addr + "/index.html")
	for _, l := range lists {
		runAction(b, chromedp.Evaluate[bool]("play("+quoteJS(l)+"), true"))
	}
	b.waitUntil("the live video plays", `state["live/list.m3u8"].at > 0 || state["live/list.m3u8"].errors.length`)
	// Publish segments as playback proceeds. The player keeps 2 s and reloads the list each second, so
	// it learns of a segment before it needs it, and the proxy can be first.
	for n := 5; n <= segmentCount; n++ {
		b.waitUntil("the live video goes on",
			fmt.Sprintf(`state["live/list.m3u8"].at > %d || state["live/list.m3u8"].errors.length`, n-5))
		s.publishLive(n)
	}
	b.waitUntil("all videos have ended", "Object.values(state).every((s) => s.ended || s.errors.length)")
	var state map[string]struct {
		Ended  bool
		At     float64
		Errors []string
	}
	var asked []struct {
		URL, Range, Sum string
		At              int64
		Size            int
	}
	for of, into := range map[string]any{"state": &state, "asked": &asked} {
		text := runAction(b, chromedp.Evaluate[string]("JSON.stringify("+of+")"))
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range lists {
		if s := state[l]; !s.Ended || len(s.Errors) > 0 || s.At < segmentCount-.2 {
			t.Errorf("%s: %+v", l, s)
		}
	}
	b.checkProblems()
	first, ahead := s.firstRequests(), map[string]int{}
	for _, a := range asked {
		dir, _, _ := strings.Cut(a.URL[1:], "/")
		if a.Sum == "" || strings.HasSuffix(a.URL, ".m3u8") || strings.HasSuffix(a.URL, ".mpd") {
			continue
		}
		want, err := os.ReadFile(s.dir + "/www" + a.URL)
		if err != nil {
			t.Fatal(err)
		}
		if from, to, ok := strings.Cut(strings.TrimPrefix(a.Range, "bytes="), "-"); ok {
			i, err1 := strconv.Atoi(from)
			j, err2 := strconv.Atoi(to)
			if err := errors.Join(err1, err2); err != nil {
				t.Fatal(a.Range, err)
			}
			want = want[i:min(j+1, len(want))]
		}
		if sum := fmt.Sprintf("%x", sha256.Sum256(want)); a.Sum != sum {
			t.Errorf("%s %s: the %d bytes received differ from the %d of the file", a.URL, a.Range, a.Size, len(want))
		}
		if first[strings.TrimSpace(a.URL+" "+cmp.Or(a.Range, "-"))].Before(time.UnixMilli(a.At)) {
			ahead[dir]++
		}
	}
	t.Logf("%d requests; segments fetched ahead of the player: %v", len(asked), ahead)
	for _, l := range lists {
		if dir, _, _ := strings.Cut(l, "/"); dir != "base" && ahead[dir] < segmentCount/2 {
			t.Errorf("%s: only %d segments were fetched ahead", dir, ahead[dir])
		}
	}
	play.End(os.Interrupt)
	type share struct {
		Device string
		Share  float64
	}
	var r struct {
		playlist.Result
		Devices []share `json:"devices"`
	}
	log := play.Log.String()
	if err := json.Unmarshal([]byte(log[max(0, strings.Index(log, "{")):]), &r); err != nil {
		t.Fatal(err, log)
	}
	t.Logf("%+v", r)
	if len(r.Devices) != 3 || slices.ContainsFunc(r.Devices, func(d share) bool { return d.Share < .1 }) {
		t.Errorf("shares of the devices, want at least 0.1 of each of three: %+v", r.Devices)
	}
	if most := 8 * (segmentCount + 1); r.Segments < 8*segmentCount-6 || r.Segments > most || r.Passed > 0 {
		t.Errorf("wrong count of segments: %+v", r)
	}
}

// startHelpers starts n helpers that onload. Each has its own loopback address and the usual port.
// The device laptop and the helpers trust each other.
func (w *testbed) startHelpers(n int) {
	w.Helper()
	key := func(device string) string {
		var k struct{ Key string }
		if err := w.JSON(&k, device, "keygen", "--json"); err != nil {
			w.Fatal(err)
		}
		return k.Key
	}
	laptop := key("laptop")
	net4 := net.IPv4(127, 64+byte(rand.IntN(64)), byte(rand.IntN(256)), 0).To4()
	for i := 1; i <= n; i++ {
		name, ip := fmt.Sprintf("phone%d", i), slices.Clone(net4)
		ip[3] = byte(i)
		w.Must("laptop", w.Mpbond, "trust", "add", name,
			"--role", "helper", "--key", key(name), "--addr", ip.String()+":7603")
		w.Must(name, w.Mpbond, "trust", "add", "laptop", "--role", "primary", "--key", laptop)
		w.writeConfig(name, "helper", fmt.Sprintf(
			"[onload]\nallowance = \"unlimited\"\nlisten = \"%s:7604\"\nallow = [\"127.0.0.0/8\"]\n", ip))
		w.Start(name, w.Mpbond, "helper", "--name", name)
		h := w.NewClient(name, "helper")
		rig.Eventually(w, func() error {
			s, err := h.Status(w.Context(), false)
			if err == nil && (s.Onload == nil || !s.Onload.Open) {
				err = fmt.Errorf("onloading is not open: %+v", s.Onload)
			}
			return err
		})
	}
}
