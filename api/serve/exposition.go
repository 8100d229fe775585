// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bytes"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"mpbond/base/text"
)

// exposition writes metrics in the text format of Prometheus, version 0.0.4. The zero value is
// ready. Not safe for concurrent use.
type exposition struct {
	buf  bytes.Buffer
	seen map[string]bool // samples without their values
}

var (
	helpEscapes  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	labelEscapes = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

// addMetric appends a metric with its help text, type and samples. Without samples it adds nothing.
// Of samples with equal labels it keeps the first: two bonds of a device may have the same ID,
// since devices choose its beginning.
func (e *exposition) addMetric(m metric, samples []sample) {
	if len(samples) == 0 {
		return
	}
	kind := "gauge"
	if m.counter {
		kind = "counter"
	}
	e.buf.WriteString("# HELP " + m.name + " " + helpEscapes.Replace(m.help) + "\n# TYPE " + m.name + " " + kind + "\n")
	order := make([]int, len(m.labels)) // by label name
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(m.labels[a], m.labels[b]) })
	for _, s := range samples {
		var pairs []string
		for _, i := range order {
			// UTF-8 without control characters: some labels come from other devices, and interface
			// names may be any bytes.
			pairs = append(pairs, m.labels[i]+`="`+labelEscapes.Replace(text.Printable(s.labels[i]))+`"`)
		}
		key := m.name
		if len(pairs) > 0 {
			key += "{" + strings.Join(pairs, ",") + "}"
		}
		if e.seen[key] {
			continue
		}
		if e.seen == nil {
			e.seen = map[string]bool{}
		}
		e.seen[key] = true
		e.buf.WriteString(key + " " + strconv.FormatFloat(s.value, 'g', -1, 64) + "\n")
	}
}

// maxScrapes is the greatest number of scrapes at once.
const maxScrapes = 4

// metricsHandler returns the handler of GET /metrics.
func metricsHandler(role Role) http.Handler {
	turns := make(chan struct{}, maxScrapes)
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		select {
		case turns <- struct{}{}:
			defer func() { <-turns }()
		default:
			http.Error(w, "too many scrapes at once", http.StatusServiceUnavailable)
			return
		}
		e := role.collectMetrics(time.Now())
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = w.Write(e.buf.Bytes()) // the client has gone
	})
}

// collectMetrics returns all metrics of the role, the Go runtime and the process.
func (r Role) collectMetrics(now time.Time) *exposition {
	e := new(exposition)
	status := r.currentStatus(false)
	for _, m := range metricList {
		e.addMetric(m, m.values(status))
	}
	if r.Usage != nil {
		e.addMetric(usageMetric, usageSamples(r.currentUsage(), now.Format(time.DateOnly)))
	}
	if r.Feed != nil {
		var events []sample
		for kind, n := range r.Feed.countByKind() {
			events = append(events, sample{float64(n), []string{kind}})
		}
		e.addMetric(eventMetric, events)
	}
	if r.Handoffs != nil {
		var links []sample
		for _, l := range r.Handoffs().Links {
			links = append(links, sample{l.Probability, []string{l.Interface}})
		}
		if len(links) > 0 {
			e.addMetric(handoffMetric, links)
		}
	}
	if r.PastForecasts != nil {
		if past := r.PastForecasts(); len(past.Forecasts) > 0 {
			e.addMetric(forecastMetric, []sample{{past.MedianErrorPercent / 100, nil}})
		}
	}
	for _, m := range processMetrics() {
		e.addMetric(m.metric, []sample{m.sample})
	}
	return e
}
