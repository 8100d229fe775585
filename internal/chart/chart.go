// SPDX-License-Identifier: Apache-2.0

// Package chart draws distributions, bars and grids of cells as SVG and PNG, with
// gonum.org/v1/plot. It serves the programs that measure: the product draws its charts in the
// browser (api/console). It has no clock and does no I/O.
//
// Lines differ by colour and by dashes, and each has its name beside it, so that charts can be
// read without seeing colours.
package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"image/color"
	"math"
	"strings"
	"unicode/utf8"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	plottext "gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"

	"mpbond/base/text"
)

// maxLines is the number of curves drawn: the first ones.
const maxLines = 8

// Layout, in points.
const (
	height        = 240.0
	minWidth      = 480.0 // of curves with their names
	nameColumn    = 150.0 // for names at the right
	nameHeight    = 15.0
	sampleLength  = 22.0 // of a line, before its name
	maxNameLength = 19   // characters of a name
	dpi           = 144  // of a PNG: two pixels a point
)

// frame is what surrounds a drawing: title, text alternative, and size in points.
type frame struct {
	title, description string
	width, height      float64
}

// renderChartSVG returns the drawing as an SVG image, with the title and description of f for
// screen readers.
func renderChartSVG(f frame, drawing func(draw.Canvas) error) ([]byte, error) {
	canvas := vgsvg.New(vg.Length(f.width), vg.Length(f.height))
	if err := drawing(draw.New(canvas)); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return nil, err
	}
	// Without the font viewers must choose a similar one, without serifs.
	doc := bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans;"),
		[]byte("font-family:Liberation Sans,Arimo,Helvetica,Arial,sans-serif;"))
	at := bytes.Index(doc, []byte("<svg"))
	end := at + bytes.IndexByte(doc[max(at, 0):], '>')
	if at < 0 || end < at {
		return nil, errors.New("no <svg> in the picture")
	}
	var out bytes.Buffer
	out.Write(doc[:end])
	fmt.Fprintf(&out, ` role="img" aria-labelledby="t d"><title id="t">%s</title><desc id="d">%s</desc>`,
		escapeXML(f.title), escapeXML(f.description))
	out.Write(doc[end+1:])
	return out.Bytes(), nil
}

func renderChartPNG(f frame, drawing func(draw.Canvas) error) ([]byte, error) {
	canvas := vgimg.NewWith(vgimg.UseWH(vg.Length(f.width), vg.Length(f.height)), vgimg.UseDPI(dpi))
	if err := drawing(draw.New(canvas)); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	_, err := vgimg.PngCanvas{Canvas: canvas}.WriteTo(&b)
	return b.Bytes(), err
}

// chooseTickStep returns 1, 2 or 5 times a power of ten, of which three to six reach top.
func chooseTickStep(top float64) float64 {
	if top <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(top/3)))
	for _, m := range []float64{1, 2, 5} {
		if top/(m*power) <= 6 {
			return m * power
		}
	}
	return 10 * power
}

func valueTicks(top, step float64) (ticks []plot.Tick) {
	for i := 0.0; i*step <= top*(1+1e-9); i++ {
		ticks = append(ticks, plot.Tick{Value: i * step, Label: fmt.Sprintf("%.4g", i*step)})
	}
	return ticks
}

// theme holds the colours. Those of lines can be told apart by people who see few colours, and
// contrast with the ground by at least 3 to 1.
type theme struct {
	ground, text, grid color.Color
	lines              [maxLines]color.Color
}

func colorFromRGB(hex uint32) color.Color {
	return color.RGBA{uint8(hex >> 16), uint8(hex >> 8), uint8(hex), 255}
}

func newChartTheme() theme {
	l := theme{ground: colorFromRGB(0xffffff), text: colorFromRGB(0x1b2530), grid: colorFromRGB(0xdfe4ea)}
	for i, hex := range [maxLines]uint32{0x0072b2, 0xd55e00, 0x00805e, 0xa6478a, 0x8a6a00, 0x5f6770, 0x111111,
		0x1391b5} {
		l.lines[i] = colorFromRGB(hex)
	}
	return l
}

// dashes distinguish lines without colours.
var dashes = [maxLines][]vg.Length{nil, {7, 3}, {2, 2}, {9, 3, 2, 3}, {12, 4}, {4, 2, 1, 2}, {1, 3}, {6, 2, 2, 2, 2, 2}}

func (l theme) curveLineStyle(i int) draw.LineStyle {
	return draw.LineStyle{Color: l.lines[i], Width: 2, Dashes: dashes[i]}
}

// chartTextStyle returns the style of text.
func (l theme) chartTextStyle(size float64) plottext.Style {
	return plottext.Style{Color: l.text, Font: font.Font{Typeface: "Liberation", Variant: "Sans",
		Size: font.Length(size)}, YAlign: draw.YCenter, Handler: plot.DefaultTextHandler}
}

// drawLegendEntry draws a piece of a line and its name.
func (l theme) drawLegendEntry(dc draw.Canvas, at vg.Point, name string, i int) {
	dc.StrokeLine2(l.curveLineStyle(i), at.X, at.Y, at.X+sampleLength, at.Y)
	if utf8.RuneCountInString(name) > maxNameLength {
		name = string([]rune(name)[:maxNameLength-1]) + "…"
	}
	dc.FillText(l.chartTextStyle(11), vg.Point{X: at.X + sampleLength + 5, Y: at.Y}, text.Printable(name))
}

// newGridLines returns horizontal lines behind the drawing.
func (l theme) newGridLines() *plotter.Grid {
	grid := plotter.NewGrid()
	grid.Vertical.Color = nil
	grid.Horizontal = draw.LineStyle{Color: l.grid, Width: 0.75}
	return grid
}

// newThemedPlot returns an empty plot.
func (l theme) newThemedPlot() *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	small, head := l.chartTextStyle(10.5), l.chartTextStyle(12)
	head.Font.Weight = 3 // bold
	head.XAlign, head.YAlign = draw.XCenter, draw.YTop
	p.Title.TextStyle, p.Title.Padding = head, 8
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Tick.LineStyle, a.Tick.Length = draw.LineStyle{Color: l.grid, Width: 0.75}, 5
		a.Padding = 0
		a.LineStyle = draw.LineStyle{Color: l.text, Width: 0.75}
	}
	p.Y.LineStyle.Width = 0
	p.X.Tick.Label, p.Y.Tick.Label = small, small
	p.X.Tick.Label.XAlign, p.X.Tick.Label.YAlign = draw.XCenter, draw.YTop
	p.Y.Tick.Label.XAlign, p.Y.Tick.Label.YAlign = draw.XRight, draw.YCenter
	return p
}

func escapeXML(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // to memory
	return b.String()
}
