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

// shownApps are told of one by one.
const shownApps = 6

// carriedApp is what a stream or flow of an app has carried so far.
type carriedApp struct {
	name     string
	down, up unit.Bytes
}

// appsAt is what those of all apps had carried at a time, by stream or flow.
type appsAt struct {
	at   time.Time
	apps map[string]carriedApp
}

// askApps is what the streams and flows of apps have carried so far, where it is
// known whose they are: not at a server.
func askApps(ctx context.Context, sockets []string) map[string]carriedApp {
	all := map[string]carriedApp{}
	add := func(key string, o api.Owner, down, up unit.Bytes) {
		if o.App != "" { // else it is looked for
			all[key] = carriedApp{o.App, down, up}
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
				add(s.Bond+"/"+strconv.FormatUint(s.ID, 10), s.Owner, s.DownBytes, s.UpBytes)
			}
			for _, f := range flows {
				add(f.Bond+"/udp "+strconv.FormatUint(f.ID, 10), f.Owner, f.DownBytes, f.UpBytes)
			}
		}
		c.Close()
	}
	return all
}

// appLanes are the apps that are connected, those that carry most first, with
// rates over the last second.
func (v *topView) appLanes(l look) (list []topLane) {
	v.apps = append(v.apps, appsAt{l.at, l.apps})
	v.apps = slices.DeleteFunc(v.apps, func(a appsAt) bool { return l.at.Sub(a.at) > time.Second+topEvery/2 })
	first := v.apps[0]
	took := l.at.Sub(first.at)
	at, conns := map[string]int{}, map[string]int{}
	for key, c := range l.apps {
		i, known := at[c.name]
		if !known {
			i = len(list)
			at[c.name] = i
			list = append(list, topLane{key: "app " + c.name, name: c.name})
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
	slices.SortFunc(list, func(a, b topLane) int {
		return cmp.Or(cmp.Compare(b.down+b.up, a.down+a.up), cmp.Compare(a.name, b.name))
	})
	return list
}

// drawApps draws a line for each app, as drawLanes does for lanes.
func (v *topView) drawApps(width int, add func(style int, format string, args ...any)) {
	list := v.appList[:min(len(v.appList), shownApps)]
	if len(list) == 0 {
		return
	}
	name := len("APP")
	for _, x := range list {
		name = min(max(name, utf8.RuneCountInString(x.name)), 32)
	}
	const columns = "  %-*s  %11s  %12s  %12s  "
	head := fmt.Sprintf(columns, name, "APP", "CONNECTIONS", "DOWN", "UP")
	note, sparks := v.sparks(list, width-utf8.RuneCountInString(head))
	add(cli.StyleHead, "%s", head+note)
	for _, x := range list {
		add(cli.StylePlain, "%s", fmt.Sprintf(columns, name, cli.Truncate(x.name, name), x.state, x.down, x.up)+sparks(x.key))
	}
	if more := len(v.appList) - len(list); more > 0 {
		add(cli.StyleDim, "  and %d more with less", more)
	}
	add(cli.StylePlain, "")
}

// sparks draws the rates of lanes into a room beside them, all of one scale, with
// what that is; nothing where there is too little.
func (v *topView) sparks(list []topLane, room int) (note string, of func(key string) string) {
	room = min(room, keptRates)
	if room < leastSpark {
		return "", func(string) string { return "" }
	}
	var most unit.Rate
	for _, x := range list {
		if h := v.rates[x.key]; len(h) > 0 {
			most = max(most, slices.Max(h[max(0, len(h)-room):]))
		}
	}
	return fmt.Sprintf("LAST %v, TO %v", (time.Duration(room) * topEvery).Round(time.Second), most), func(key string) string {
		if key == "" {
			return ""
		}
		return spark(v.rates[key], room, most)
	}
}
