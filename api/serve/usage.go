// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"mpbond/api"
)

func (r Role) registerUsage(a huma.API) {
	op := newOperation(
		http.MethodGet,
		"/v2/usage",
		"what this device's links carried, by day and month; a table with Accept: text/csv",
	)
	op.Middlewares = huma.Middlewares{func(ctx huma.Context, next func(huma.Context)) {
		if r.Usage == nil || !strings.Contains(ctx.Header("Accept"), "text/csv") {
			next(ctx)
			return
		}
		ctx.SetHeader("Content-Type", "text/csv; charset=utf-8")
		ctx.SetHeader("Cache-Control", "no-store")
		ctx.SetStatus(http.StatusOK)
		_ = r.currentUsage().CSV(ctx.BodyWriter()) // an error means that the client has gone
	}}
	registerJSON(a, op, func(*noInput) (u api.Usage, err error) {
		if r.Usage == nil {
			return u, unsupportedError("usage")
		}
		return r.currentUsage(), nil
	})
}

func (r Role) currentUsage() api.Usage {
	u := r.Usage()
	u.Days, u.Months, u.Caps = emptyListIfNil(u.Days), emptyListIfNil(u.Months), emptyListIfNil(u.Caps)
	return u
}

// capLabels are the labels of a cap's metrics. A cap that is not counted has none.
var capLabels = []string{"name", "period"}

// sampleCaps returns a function that samples f of each cap that is counted, with capLabels.
func sampleCaps(f func(api.Cap) float64) func(api.Status) []sample {
	return func(s api.Status) (list []sample) {
		for _, c := range s.Caps {
			if c.State != api.CapNotCounted {
				list = append(list, sample{f(c), []string{c.Name, c.Period}})
			}
		}
		return list
	}
}

// usageMetric is the metric of what links carried.
var usageMetric = metric{
	name: "mpbond_link_bytes",
	help: "Bytes of IP packets that a link carried for mpbond in the current day or month, " +
		"which begins on the reset day of its cap. It falls when a new period begins.",
	labels: []string{"link", "purpose", "device", "device_id", "direction", "period"},
}

// usageSamples returns the samples of the periods that include today.
func usageSamples(u api.Usage, today string) (samples []sample) {
	for period, list := range map[string][]api.UsageEntry{"day": u.Days, "month": u.Months} {
		for _, r := range list {
			if r.From <= today && today < r.Until {
				samples = append(
					samples,
					sample{float64(r.DownBytes), []string{r.Link, r.Purpose, r.Device, r.DeviceID, "down", period}},
					sample{float64(r.UpBytes), []string{r.Link, r.Purpose, r.Device, r.DeviceID, "up", period}},
				)
			}
		}
	}
	return samples
}
