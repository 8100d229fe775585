package exp

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"mpbond/base/unit"
	"mpbond/lab"
)

// The paths of a fixed ratio are connections that know nothing of each other, so
// that a transfer tells for each of them how long less than its part would have
// taken. The two outermost ratios of a search thus tell it of all between them,
// and of those beyond at least how long: what the search may have missed.

// ratioSteps is how finely ratios are reckoned: in steps of 1 %.
const ratioSteps = 100

// tcpHeaders are those of a packet with data: IPv4, TCP, and its timestamps.
const tcpHeaders = 20 + 20 + 12

// directShare is the direct path's part in a fixed ratio.
func directShare(scheme string) float64 {
	text, _, _ := strings.Cut(strings.TrimPrefix(scheme, ratioPrefix), "/")
	p, _ := strconv.ParseFloat(text, 64)
	return p
}

// arrivals are when payload came to the primary by a link: seconds, and bytes so
// far.
type arrivals struct{ at, sum []float64 }

// timeOf is the time at which so many bytes had come; the last one's, if these were
// fewer.
func (a arrivals) timeOf(bytes float64) float64 {
	if bytes <= 0 || len(a.at) == 0 {
		return 0
	}
	i, _ := slices.BinarySearch(a.sum, bytes)
	return a.at[min(i, len(a.at)-1)]
}

// pathArrivals are those of a transfer: by the direct path, and by each helper's.
func pathArrivals(r lab.Result) (direct arrivals, helped []arrivals) {
	for _, t := range r.Traffic {
		if t.Node != "primary" {
			continue
		}
		a, all := arrivals{}, 0.0
		t.Each(func(at time.Duration, n unit.Bytes, sent bool) {
			if !sent && n > tcpHeaders {
				all += float64(n - tcpHeaders)
				a.at, a.sum = append(a.at, at.Seconds()), append(a.sum, all)
			}
		})
		if strings.HasPrefix(t.Link, "pipe") {
			helped = append(helped, a)
		} else {
			direct = a
		}
	}
	return direct, helped
}

// splitTime is how long a fixed ratio takes over paths that carry data so; helpers
// have equal parts.
func splitTime(share float64, size unit.Bytes, direct arrivals, helped []arrivals) float64 {
	took := direct.timeOf(share * float64(size))
	for _, h := range helped {
		took = max(took, h.timeOf((1-share)*float64(size)/float64(len(helped))))
	}
	return took
}

// bestRatioChange is by how many percent the best of all fixed ratios, reckoned, takes
// another time than the best that was measured, whose search in the cell had
// several.
func (d Data) bestRatioChange(c Cell) (percent float64, told bool) {
	ratios := c.ratioSchemes()
	if len(ratios) < 2 {
		return 0, false
	}
	slices.SortFunc(ratios, func(a, b string) int {
		if directShare(a) < directShare(b) {
			return -1
		}
		return 1
	})
	least, most := ratios[0], ratios[len(ratios)-1]
	var took [ratioSteps + 1]float64
	n := 0
	d.forEachResultPair(c.Name, [2]string{most, least}, func(m, l lab.Result) {
		direct, beside := pathArrivals(m)
		own, helped := pathArrivals(l)
		if len(direct.at) == 0 || len(helped) == 0 {
			return
		}
		// Packets are timed from before the client begins.
		late := (splitTime(directShare(most), m.Bytes, direct, beside) - m.Seconds + splitTime(directShare(least), l.Bytes, own, helped) - l.Seconds) / 2
		for i := range took {
			took[i] += splitTime(float64(i)/ratioSteps, m.Bytes, direct, helped) - late
		}
		n++
	})
	best := Summarize(d.Values(c.Name, d.bestScheme(c.Name, ratios, Time), Time))
	if n == 0 || best.N == 0 {
		return 0, false
	}
	return 100 * (slices.Min(took[:])/float64(n)/best.Mean - 1), true
}

// searchText says what the search for fixed ratios may have missed in the row's
// cells; nothing where there was none.
func (r Row) searchText(d Data) string {
	var all []float64
	for _, c := range r.Cells {
		if v, told := d.bestRatioChange(c); told {
			all = append(all, v)
		}
	}
	if len(all) == 0 {
		return ""
	}
	slices.Sort(all)
	return fmt.Sprintf("Of every fixed ratio in steps of 1 %%, reckoned from packets, the best takes %+.1f %% beside the best that was measured (median of %d cells; in one cell %+.1f %%), not counting what is lost at a part's end.",
		all[(len(all)-1)/2], len(all), all[0])
}
