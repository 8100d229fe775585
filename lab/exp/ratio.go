// SPDX-License-Identifier: Apache-2.0

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

// The paths of a fixed ratio are independent connections. So a transfer shows for each of them how
// long less than its part would have taken. The two outermost ratios of a search give that for all
// ratios between them, and a lower limit for those beyond: what the search may have missed.

// ratioSteps is the resolution of computed ratios: 1 %.
const ratioSteps = 100

// tcpHeaders are the headers of a packet with data: IPv4, TCP, and its timestamps.
const tcpHeaders = 20 + 20 + 12

// directShare returns the direct path's part in a fixed ratio.
func directShare(scheme string) float64 {
	text, _, _ := strings.Cut(strings.TrimPrefix(scheme, ratioPrefix), "/")
	p, _ := strconv.ParseFloat(text, 64)
	return p
}

// arrivals are the arrivals of payload at the primary over a link: seconds, and bytes so far.
type arrivals struct{ at, sum []float64 }

// arrivalTimeOf returns when that many bytes had arrived, or the last arrival if there were fewer.
func (a arrivals) arrivalTimeOf(bytes float64) float64 {
	if bytes <= 0 || len(a.at) == 0 {
		return 0
	}
	i, _ := slices.BinarySearch(a.sum, bytes)
	return a.at[min(i, len(a.at)-1)]
}

// pathArrivals returns the arrivals of a transfer: over the direct path, and over each helper's.
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

// fixedRatioTime returns how long a fixed ratio takes over paths with these arrivals. Helpers have
// equal parts.
func fixedRatioTime(share float64, size unit.Bytes, direct arrivals, helped []arrivals) float64 {
	took := direct.arrivalTimeOf(share * float64(size))
	for _, h := range helped {
		took = max(took, h.arrivalTimeOf((1-share)*float64(size)/float64(len(helped))))
	}
	return took
}

// bestRatioChange returns by how many percent the time of the best computed fixed ratio differs
// from that of the best measured one, in a cell with a search.
func (d Data) bestRatioChange(c Cell) (percent float64, ok bool) {
	ratios := c.listRatioSchemes()
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
		// Packet times count from before the client begins.
		late := (fixedRatioTime(directShare(most), m.Bytes, direct, beside) - m.Seconds + fixedRatioTime(directShare(least),
			l.Bytes, own, helped) - l.Seconds) / 2
		for i := range took {
			took[i] += fixedRatioTime(float64(i)/ratioSteps, m.Bytes, direct, helped) - late
		}
		n++
	})
	best := Summarize(d.Values(c.Name, d.bestScheme(c.Name, ratios, Time), Time))
	if n == 0 || best.N == 0 {
		return 0, false
	}
	return 100 * (slices.Min(took[:])/float64(n)/best.Mean - 1), true
}

// searchText describes what the search for fixed ratios may have missed in the row's cells. It is
// empty without a search.
func (r Row) searchText(d Data) string {
	var all []float64
	for _, c := range r.Cells {
		if v, ok := d.bestRatioChange(c); ok {
			all = append(all, v)
		}
	}
	if len(all) == 0 {
		return ""
	}
	slices.Sort(all)
	return fmt.Sprintf("Of all fixed ratios in steps of 1 %%, computed from packets, the best differs by %+.1f %% "+
		"from the best measured one (median of %d cells; in one cell %+.1f %%), without losses at the end of a part.",
		all[(len(all)-1)/2], len(all), all[0])
}
