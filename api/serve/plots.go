// SPDX-License-Identifier: Apache-2.0

package serve

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"mpbond/api"
	"mpbond/base/fault"
)

// PlotInput is exported because the library reads embedded types only if they are exported.
type PlotInput struct {
	Name      string `path:"name" enum:"devices,subflows,apps,destinations,pad" doc:"the plot"`
	Direction string `query:"direction" enum:"down,up" default:"down" doc:"to or from the primary; pad has no direction"`
	Span      string `query:"span" enum:"minute,hour" default:"minute" doc:"a minute by seconds, or an hour by 10 s means"`
}

func (in *PlotInput) toPlotQuery() plotQuery {
	return plotQuery{in.Name, in.Direction == "up", in.Span == "hour"}
}

type plotFileInput struct {
	PlotInput
	Format string `path:"format" enum:"csv" doc:"the values as a table"`
}

// fileAnswer is an answer that is a file, not JSON.
type fileAnswer struct {
	ContentType  string `header:"Content-Type"`
	Disposition  string `header:"Content-Disposition"`
	CacheControl string `header:"Cache-Control"`
	Policy       string `header:"Content-Security-Policy"`
	Sniff        string `header:"X-Content-Type-Options"`
	Body         []byte
}

var mediaTypes = map[string]string{"svg": "image/svg+xml", "png": "image/png", "csv": "text/csv; charset=utf-8"}

func (r Role) registerPlots(a huma.API) {
	registerGet(
		a,
		"/v2/plots/{name}",
		"rates or predicted delivery times of the last minute or hour",
		func(in *PlotInput) (p api.Plot, err error) {
			if r.History == nil {
				return p, noPlotsError()
			}
			return r.History.buildHistoryPlot(in.toPlotQuery()), nil
		},
	)
	op := newOperation(http.MethodGet, "/v2/plots/{name}/{format}", "the same as CSV")
	op.Responses = fileResponses("csv")
	registerTyped(a, op, func(_ context.Context, in *plotFileInput) (*fileAnswer, error) {
		if r.History == nil {
			return nil, problemForError(noPlotsError())
		}
		body, err := formatPlotCSV(r.History.buildHistoryPlot(in.toPlotQuery()))
		if err != nil {
			return nil, problemForError(err)
		}
		return newFileAnswer(in.Name, in.Format, body), nil
	})
}

// fileResponses describes answers in these formats.
func fileResponses(formats ...string) map[string]*huma.Response {
	content := map[string]*huma.MediaType{}
	for _, f := range formats {
		content[mediaTypes[f]] = &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString, Format: "binary"}}
	}
	return map[string]*huma.Response{"200": {Description: "OK", Content: content}}
}

// newFileAnswer returns a file that can run nothing when a browser opens it.
func newFileAnswer(name, format string, body []byte) *fileAnswer {
	return &fileAnswer{mediaTypes[format], `inline; filename="mpbond-` + name + "." + format + `"`, "no-store",
		"default-src 'none'; style-src 'unsafe-inline'; sandbox", "nosniff", body}
}

func noPlotsError() error {
	return fault.New(
		fault.Unsupported,
		errors.New("values for plots are not kept"),
		"start mpbond with --api",
	)
}

// formatPlotCSV returns a plot as CSV: a row for each time, a column for each line. It escapes
// names that a spreadsheet would read as a formula.
func formatPlotCSV(p api.Plot) ([]byte, error) {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	head := []string{"time"}
	for _, s := range p.Series {
		name := s.Name + ", " + p.Unit
		if name[0] == '=' || name[0] == '+' || name[0] == '-' || name[0] == '@' {
			name = "'" + name
		}
		head = append(head, name)
	}
	_ = w.Write(head) // to memory
	for i, t := range p.Times {
		row := []string{t.UTC().Format("2006-01-02T15:04:05.000Z07:00")}
		for _, s := range p.Series {
			cell := ""
			if v := s.Values[i]; v != nil {
				cell = strconv.FormatFloat(*v, 'f', -1, 64)
			}
			row = append(row, cell)
		}
		_ = w.Write(row)
	}
	w.Flush()
	return b.Bytes(), w.Error()
}
