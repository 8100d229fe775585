package serve

import (
	"context"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"

	"mpbond/api"
	"mpbond/api/chart"
)

func (r Role) registerUsage(a huma.API) {
	op := operation(http.MethodGet, "/v1/usage", "what this device's links carried, by day and month; a table with Accept: text/csv")
	op.Middlewares = huma.Middlewares{func(ctx huma.Context, next func(huma.Context)) {
		if r.Usage == nil || !strings.Contains(ctx.Header("Accept"), "text/csv") {
			next(ctx)
			return
		}
		ctx.SetHeader("Content-Type", "text/csv; charset=utf-8")
		ctx.SetHeader("Cache-Control", "no-store")
		ctx.SetStatus(http.StatusOK)
		_ = r.usage().CSV(ctx.BodyWriter()) // an error means that nobody listens any more
	}}
	register(a, op, func(*nothing) (u api.Usage, err error) {
		if r.Usage == nil {
			return u, unsupported("usage")
		}
		return r.usage(), nil
	})
}

type usagePictureInput struct {
	Format string `path:"format" enum:"svg,png" doc:"a picture"`
	Period string `query:"period" enum:"day,month" default:"day" doc:"the last 31 days, or 13 months"`
	Of     string `query:"of" enum:"bytes,joules" default:"bytes" doc:"bytes, without pipes, which are local; or what radios took, pipes included, as estimated"`
	Link   string `query:"link" maxLength:"64" doc:"of this network interface alone; without it of all"`
	Theme  string `query:"theme" enum:"light,dark" default:"light" doc:"the picture's ground"`
	Width  int    `query:"width" minimum:"240" maximum:"2000" default:"760" doc:"the picture's, in CSS pixels"`
}

// How much a picture of usage shows.
const (
	shownDays   = 31
	shownMonths = 13
)

func (r Role) registerUsagePicture(a huma.API) {
	op := operation(http.MethodGet, "/v1/usage/{format}", "what this device's links carried, or their radios took, as a picture")
	op.Responses = pictures("svg", "png")
	huma.Register(a, op, func(_ context.Context, in *usagePictureInput) (*picture, error) {
		if r.Usage == nil {
			return nil, problemOf(unsupported("usage"))
		}
		b := usageBars(r.usage(), in)
		draw := b.SVG
		if in.Format == "png" {
			draw = b.PNG
		}
		body, err := draw()
		if err != nil {
			return nil, problemOf(err)
		}
		return newPicture("usage", in.Format, body), nil
	})
}

// usageBars sums up what was used in each period up to the last one that
// anything is known of: a day without anything has an empty bar, and months begin
// where those of the links do. Bytes of pipes are local, and do not count.
func usageBars(u api.Usage, in *usagePictureInput) chart.Bars {
	list := u.Days
	if in.Period == "month" {
		list = u.Months
	}
	b := chart.Bars{Title: "Used by " + in.Period, Width: in.Width, Dark: in.Theme == "dark"}
	if in.Of == "joules" {
		b.Title, b.Unit = "Energy of radios by "+in.Period+", estimated", "J"
	}
	if in.Link != "" {
		b.Title += " over " + in.Link
	}
	sums, newest := map[string]float64{}, ""
	for _, used := range list {
		newest = max(newest, used.From)
		switch {
		case in.Link != "" && used.Link != in.Link:
		case b.Unit == "J":
			sums[used.From] += float64(used.RadioJoules)
		case used.Purpose != "pipe":
			sums[used.From] += float64(used.DownBytes + used.UpBytes)
		}
	}
	if in.Period == "month" {
		b.Names = slices.Sorted(maps.Keys(sums))
		b.Names = b.Names[max(len(b.Names)-shownMonths, 0):]
	} else if at, err := time.Parse(time.DateOnly, newest); err == nil {
		for i := shownDays - 1; i >= 0; i-- {
			day := at.AddDate(0, 0, -i).Format(time.DateOnly)
			if _, used := sums[day]; used || len(b.Names) > 0 {
				b.Names = append(b.Names, day)
			}
		}
	}
	for _, name := range b.Names {
		b.Values = append(b.Values, sums[name])
	}
	return b
}

func (r Role) usage() api.Usage {
	u := r.Usage()
	u.Days, u.Months, u.Caps = list(u.Days), list(u.Months), list(u.Caps)
	return u
}

// ofCap are the labels of a cap's metrics. One that is not kept has none.
var ofCap = []string{"name", "period"}

func ofCaps(f func(api.Cap) float64) func(api.Status) []sample {
	return func(s api.Status) (list []sample) {
		for _, c := range s.Caps {
			if c.State != api.CapNotKept {
				list = append(list, sample{f(c), []string{c.Name, c.Period}})
			}
		}
		return list
	}
}

// usageDesc is the metric of what links carried.
var usageDesc = prometheus.NewDesc("mpbond_link_bytes", "Bytes of IP packets that a link carried for mpbond in the current day or month, which begins on the reset day of its cap. It falls when a new one begins.",
	[]string{"link", "purpose", "device", "device_id", "direction", "period"}, nil)

// usageMetrics tells of the periods that a day is in.
func usageMetrics(u api.Usage, today string, tell func(value float64, labels ...string)) {
	for period, list := range map[string][]api.Used{"day": u.Days, "month": u.Months} {
		for _, r := range list {
			if r.From <= today && today < r.Until {
				tell(float64(r.DownBytes), r.Link, r.Purpose, r.Device, r.DeviceID, "down", period)
				tell(float64(r.UpBytes), r.Link, r.Purpose, r.Device, r.DeviceID, "up", period)
			}
		}
	}
}
