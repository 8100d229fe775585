// SPDX-License-Identifier: Apache-2.0

//go:build !router

package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"mpbond/api"
	"mpbond/api/client"
	"mpbond/base/unit"
	"mpbond/internal/cli"
)

// maxShownApps is the most apps that get a line of their own.
const maxShownApps = 6

// appTraffic is what a stream or flow of an app has carried so far.
type appTraffic struct {
	name     string
	down, up unit.Bytes
}

// appSample is what the streams and flows of all apps had carried at a time, by key.
type appSample struct {
	at   time.Time
	apps map[string]appTraffic
}

// queryAppTraffic returns what the streams and flows of apps have carried so far, by key. Servers
// do not know the apps.
func queryAppTraffic(ctx context.Context, sockets []string) map[string]appTraffic {
	all := map[string]appTraffic{}
	add := func(key string, o api.AppInfo, down, up unit.Bytes) {
		if o.App != "" { // else the app is not known yet
			all[key] = appTraffic{o.App, down, up}
		}
	}
	for _, path := range sockets {
		if path == api.SocketPath("server") {
			continue
		}
		c := client.New(path)
		streams, err := c.Streams(ctx)
		if err == nil {
			flows, _ := c.Flows(ctx)
			for _, s := range streams {
				add(s.Bond+"/"+strconv.FormatUint(s.ID, 10), s.AppInfo, s.DownBytes, s.UpBytes)
			}
			for _, f := range flows {
				add(f.Bond+"/udp "+strconv.FormatUint(f.ID, 10), f.AppInfo, f.DownBytes, f.UpBytes)
			}
		}
		c.Close()
	}
	return all
}

// listAppRows returns the apps with connections, the busiest first, with rates over the last
// second.
func (v *topView) listAppRows(l topSnapshot) (list []topRow) {
	v.appSamples = append(v.appSamples, appSample{l.at, l.apps})
	v.appSamples = slices.DeleteFunc(v.appSamples,
		func(a appSample) bool { return l.at.Sub(a.at) > time.Second+topInterval/2 })
	first := v.appSamples[0]
	took := l.at.Sub(first.at)
	at, conns := map[string]int{}, map[string]int{}
	for key, c := range l.apps {
		i, known := at[c.name]
		if !known {
			i = len(list)
			at[c.name] = i
			list = append(list, topRow{key: "app " + c.name, name: c.name})
		}
		conns[c.name]++
		if took > 0 {
			was := first.apps[key]
			list[i].down += unit.RateOf(max(c.down-was.down, 0), took)
			list[i].up += unit.RateOf(max(c.up-was.up, 0), took)
		}
	}
	for i := range list {
		list[i].state = strconv.Itoa(conns[list[i].name])
	}
	slices.SortFunc(list, func(a, b topRow) int {
		return cmp.Or(cmp.Compare(b.down+b.up, a.down+a.up), cmp.Compare(a.name, b.name))
	})
	return list
}

// drawAppTable draws one line for each app.
func (v *topView) drawAppTable(width int, add func(style int, format string, args ...any)) {
	list := v.apps[:min(len(v.apps), maxShownApps)]
	if len(list) == 0 {
		return
	}
	name := len("APP")
	for _, x := range list {
		name = min(max(name, utf8.RuneCountInString(x.name)), 32)
	}
	const columns = "  %-*s  %11s  %12s  %12s  "
	head := fmt.Sprintf(columns, name, "APP", "CONNECTIONS", "DOWN", "UP")
	note, sparks := v.layoutSparklines(list, width-utf8.RuneCountInString(head))
	add(cli.StyleHead, "%s", head+note)
	for _, x := range list {
		add(cli.StylePlain, "%s", fmt.Sprintf(columns, name, cli.Truncate(x.name, name), x.state, x.down,
			x.up)+sparks(x.key))
	}
	if more := len(v.apps) - len(list); more > 0 {
		add(cli.StyleDim, "  and %d more with less", more)
	}
	add(cli.StylePlain, "")
}

// layoutSparklines returns a function that draws the sparkline of a key within the given width, and
// a heading with their common scale. Both return "" if the width is too small.
func (v *topView) layoutSparklines(list []topRow, room int) (note string, of func(key string) string) {
	room = min(room, maxRates)
	if room < minSparklineWidth {
		return "", func(string) string { return "" }
	}
	var most unit.Rate
	for _, x := range list {
		if h := v.rates[x.key]; len(h) > 0 {
			most = max(most, slices.Max(h[max(0, len(h)-room):]))
		}
	}
	return fmt.Sprintf("LAST %v, TO %v", (time.Duration(room) * topInterval).Round(time.Second),
			most), func(key string) string {
			if key == "" {
				return ""
			}
			return drawSparkline(v.rates[key], room, most)
		}
}
