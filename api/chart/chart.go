// Package chart draws values over time, and bars, as SVG and PNG. It stands behind the
// history of package api/serve, which has the values, and before the web
// console, which shows the pictures. It has no clock and does no I/O.
//
// Lines differ by colour and by dashes, and each has its name beside it, so
// that nobody needs to see colours.
package chart

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"errors"
	"fmt"
	"image/color"
	"math"
	"slices"
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

// Limits of a picture, in points.
const (
	LeastWidth = 240
	MostWidth  = 2000
	// mostLines are drawn; a chart with more is no picture any more.
	mostLines = 8
)

// Layout, in points.
const (
	height     = 240.0
	narrow     = 480.0 // below, names stand under the lines
	besides    = 150.0 // for names at the right
	nameHeight = 15.0
	nameWidth  = 148.0
	sample     = 22.0 // of a line, before its name
	most       = 19   // characters of a name
	dpi        = 144  // of a PNG: two pixels a point
)

// Line is one line. A value that is not a number is a gap.
type Line struct {
	Name   string
	Values []float64
}

// Chart is what is drawn. Ago has the time of each value: seconds before now,
// falling. Unit is bit/s or ms; multiples of it are chosen by the values.
type Chart struct {
	Title string
	Unit  string
	Ago   []float64
	Span  float64 // seconds that the axis has
	Lines []Line
	Width int // points, of a picture; the height follows
	Dark  bool
}

// SVG is the chart as a document with its own text alternative.
func (c Chart) SVG() ([]byte, error) { return svgOf(c.frame(), c.draw) }

// PNG is the chart as pixels, two a point.
func (c Chart) PNG() ([]byte, error) { return pngOf(c.frame(), c.draw) }

// frame is what stands around a drawing: words about it, and its size in points.
type frame struct {
	title, words  string
	width, height float64
}

func svgOf(f frame, drawing func(draw.Canvas) error) ([]byte, error) {
	canvas := vgsvg.New(vg.Length(f.width), vg.Length(f.height))
	if err := drawing(draw.New(canvas)); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return nil, err
	}
	// Where the font is not installed the nearest one is taken, not one with serifs.
	doc := bytes.ReplaceAll(b.Bytes(), []byte("font-family:Liberation Sans;"), []byte("font-family:Liberation Sans,Arimo,Helvetica,Arial,sans-serif;"))
	at := bytes.Index(doc, []byte("<svg"))
	end := at + bytes.IndexByte(doc[max(at, 0):], '>')
	if at < 0 || end < at {
		return nil, errors.New("no <svg> in the picture")
	}
	var out bytes.Buffer
	out.Write(doc[:end])
	fmt.Fprintf(&out, ` role="img" aria-labelledby="t d"><title id="t">%s</title><desc id="d">%s</desc>`, escaped(f.title), escaped(f.words))
	out.Write(doc[end+1:])
	return out.Bytes(), nil
}

func pngOf(f frame, drawing func(draw.Canvas) error) ([]byte, error) {
	canvas := vgimg.NewWith(vgimg.UseWH(vg.Length(f.width), vg.Length(f.height)), vgimg.UseDPI(dpi))
	if err := drawing(draw.New(canvas)); err != nil {
		return nil, err
	}
	var b bytes.Buffer
	_, err := vgimg.PngCanvas{Canvas: canvas}.WriteTo(&b)
	return b.Bytes(), err
}

func clampWidth(w int) float64 { return float64(min(max(w, LeastWidth), MostWidth)) }

// Words tells each line's last and highest value, in a sentence each.
func (c Chart) Words() string {
	if len(c.Lines) == 0 {
		return "Nothing to show yet."
	}
	var all []string
	for _, l := range c.Lines {
		last, top := math.NaN(), math.NaN()
		for _, v := range l.Values {
			if last = v; !math.IsNaN(v) && !(v <= top) {
				top = v
			}
		}
		now := "not there now"
		if !math.IsNaN(last) {
			now = c.value(last) + " now"
		}
		all = append(all, fmt.Sprintf("%s: %s, at most %s.", l.Name, now, c.value(top)))
	}
	return strings.Join(all, " ")
}

// value writes a value as people read it.
func (c Chart) value(v float64) string {
	if math.IsNaN(v) {
		return "nothing"
	}
	factor, unit := c.scale(v)
	return fmt.Sprintf("%.3g %s", v/factor, unit)
}

// scale is the multiple of the unit in which top is read best.
func (c Chart) scale(top float64) (factor float64, unit string) {
	switch {
	case c.Unit != "bit/s" && top >= 1000:
		return 1000, "s"
	case c.Unit != "bit/s":
		return 1, c.Unit
	case top >= 1e9:
		return 1e9, "Gbit/s"
	case top >= 1e6:
		return 1e6, "Mbit/s"
	}
	return 1e3, "kbit/s"
}

// drawn are the lines of which there is most, in their order.
func (c Chart) drawn() []Line {
	if len(c.Lines) <= mostLines {
		return c.Lines
	}
	sum := func(l Line) (s float64) {
		for _, v := range l.Values {
			if !math.IsNaN(v) {
				s += v
			}
		}
		return s
	}
	place := make([]int, len(c.Lines))
	for i := range place {
		place[i] = i
	}
	slices.SortStableFunc(place, func(a, b int) int { return cmp.Compare(sum(c.Lines[b]), sum(c.Lines[a])) })
	place = place[:mostLines]
	slices.Sort(place)
	var list []Line
	for _, i := range place {
		list = append(list, c.Lines[i])
	}
	return list
}

func (c Chart) frame() frame {
	f := frame{c.Title, c.Words(), clampWidth(c.Width), height}
	if f.width < narrow {
		f.height += nameHeight * float64(c.nameRows(f.width))
	}
	return f
}

// nameRows is how many rows of names stand under a narrow chart.
func (c Chart) nameRows(w float64) int {
	columns := max(int(w/nameWidth), 1)
	names := len(c.drawn())
	if len(c.Lines) > names {
		names++
	}
	return (names + columns - 1) / columns
}

// draw draws everything.
func (c Chart) draw(dc draw.Canvas) error {
	look := lookOf(c.Dark)
	dc.SetColor(look.ground)
	dc.Fill(dc.Rectangle.Path())
	lines := c.drawn()
	top := 0.0
	for _, l := range lines {
		for _, v := range l.Values {
			if v > top { // false for a gap
				top = v
			}
		}
	}
	factor, unit := c.scale(top)
	p := look.plot()
	p.Title.Text = c.Title + ", " + unit
	step := niceStep(top / factor)
	p.Y.Min, p.Y.Max = 0, max(math.Ceil(top/factor/step-1e-9), 1)*step
	p.Y.Tick.Marker = plot.ConstantTicks(valueTicks(p.Y.Max, step))
	p.X.Min, p.X.Max = -c.Span, 0
	p.X.Tick.Marker = plot.ConstantTicks(agoTicks(c.Span))
	p.Add(look.rules())
	for i, l := range lines {
		for _, part := range c.parts(l, factor) {
			line, err := plotter.NewLine(part)
			if err != nil {
				return err
			}
			line.LineStyle = look.line(i)
			p.Add(line)
		}
	}
	rest := ""
	if n := len(c.Lines) - len(lines); n > 0 {
		rest = fmt.Sprintf("and %d more with less", n)
	}
	area := draw.Crop(dc, 14, -14, 4, -6)
	if w := clampWidth(c.Width); w < narrow {
		rows := c.nameRows(w)
		p.Draw(draw.Crop(area, 0, 0, vg.Length(float64(rows)*nameHeight), 0))
		c.namesBelow(dc, lines, rest, look)
		return nil
	}
	area = draw.Crop(area, 0, -besides, 0, 0)
	p.Draw(area)
	c.namesBeside(dc, names{lines, rest, p.DataCanvas(area), p.Y.Max * factor}, look)
	return nil
}

// parts cuts a line at its gaps.
func (c Chart) parts(l Line, factor float64) (parts []plotter.XYs) {
	var part plotter.XYs
	for i, v := range l.Values {
		if math.IsNaN(v) {
			if len(part) > 0 {
				parts = append(parts, part)
			}
			part = nil
			continue
		}
		part = append(part, plotter.XY{X: -c.Ago[i], Y: v / factor})
	}
	if len(part) > 0 {
		parts = append(parts, part)
	}
	return parts
}

// names are what is written beside lines, whose canvas reaches up to top.
type names struct {
	lines []Line
	rest  string
	data  draw.Canvas
	top   float64
}

// namesBeside writes each name where its line ends, or as near as there is room.
func (c Chart) namesBeside(dc draw.Canvas, n names, look look) {
	type label struct {
		i int
		y float64
	}
	var labels []label
	low, high := float64(n.data.Min.Y), float64(n.data.Max.Y)
	for i, l := range n.lines {
		last := 0.0
		if k := len(l.Values) - 1; k >= 0 && !math.IsNaN(l.Values[k]) {
			last = l.Values[k]
		}
		labels = append(labels, label{i, low + (high-low)*last/n.top})
	}
	slices.SortStableFunc(labels, func(a, b label) int { return cmp.Compare(a.y, b.y) })
	for i := range labels { // from below: each above the one before it
		if i > 0 {
			labels[i].y = max(labels[i].y, labels[i-1].y+nameHeight)
		}
	}
	limit := high
	for i := len(labels) - 1; i >= 0; i-- { // from above: none over the edge
		labels[i].y = min(labels[i].y, limit)
		limit = labels[i].y - nameHeight
	}
	x := n.data.Max.X + 10
	for _, l := range labels {
		look.name(dc, vg.Point{X: x, Y: vg.Length(l.y)}, n.lines[l.i].Name, l.i)
	}
	if n.rest != "" {
		dc.FillText(look.words(9), vg.Point{X: x, Y: dc.Min.Y + 10}, n.rest)
	}
}

// namesBelow writes the names in columns under a narrow chart.
func (c Chart) namesBelow(dc draw.Canvas, lines []Line, rest string, look look) {
	w := clampWidth(c.Width)
	columns := max(int(w/nameWidth), 1)
	rows := c.nameRows(w)
	at := func(i int) vg.Point {
		return vg.Point{X: dc.Min.X + 10 + vg.Length(float64(i%columns)*nameWidth), Y: dc.Min.Y + 8 + vg.Length(float64(rows-1-i/columns)*nameHeight)}
	}
	for i, l := range lines {
		look.name(dc, at(i), l.Name, i)
	}
	if rest != "" {
		dc.FillText(look.words(9), at(len(lines)), rest)
	}
}

// niceStep is 1, 2 or 5 times a power of ten: three to six of them reach top.
func niceStep(top float64) float64 {
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

// agoTicks are quarters of the span, in seconds or minutes.
func agoTicks(span float64) (ticks []plot.Tick) {
	for i := range 4 {
		ago := span * float64(4-i) / 4
		label := fmt.Sprintf("−%g s", ago)
		if span > 120 {
			label = fmt.Sprintf("−%g min", ago/60)
		}
		ticks = append(ticks, plot.Tick{Value: -ago, Label: label})
	}
	return append(ticks, plot.Tick{Value: 0, Label: "now"})
}

// look is colours: those of lines differ for people who see few colours, too, and
// from the ground by a contrast of 3 to 1 at least.
type look struct {
	ground, text, grid color.Color
	lines              [mostLines]color.Color
}

func rgb(hex uint32) color.Color {
	return color.RGBA{uint8(hex >> 16), uint8(hex >> 8), uint8(hex), 255}
}

func lookOf(dark bool) look {
	l := look{rgb(0xffffff), rgb(0x1b2530), rgb(0xdfe4ea), [mostLines]color.Color{}}
	lines := [mostLines]uint32{0x0072b2, 0xd55e00, 0x00805e, 0xa6478a, 0x8a6a00, 0x5f6770, 0x111111, 0x1391b5}
	if dark {
		l.ground, l.text, l.grid = rgb(0x171c23), rgb(0xe6ebf1), rgb(0x323b47)
		lines = [mostLines]uint32{0x56b4e9, 0xff9a57, 0x2fc9a0, 0xe39cc8, 0xe8c547, 0xa9b1ba, 0xffffff, 0x9aaeff}
	}
	for i, hex := range lines {
		l.lines[i] = rgb(hex)
	}
	return l
}

// dashes tell lines apart without colours.
var dashes = [mostLines][]vg.Length{nil, {7, 3}, {2, 2}, {9, 3, 2, 3}, {12, 4}, {4, 2, 1, 2}, {1, 3}, {6, 2, 2, 2, 2, 2}}

func (l look) line(i int) draw.LineStyle {
	return draw.LineStyle{Color: l.lines[i], Width: 2, Dashes: dashes[i]}
}

// words is how text is written.
func (l look) words(size float64) plottext.Style {
	return plottext.Style{Color: l.text, Font: font.Font{Typeface: "Liberation", Variant: "Sans", Size: font.Length(size)}, YAlign: draw.YCenter, Handler: plot.DefaultTextHandler}
}

// name writes a line's name after a piece of it.
func (l look) name(dc draw.Canvas, at vg.Point, name string, i int) {
	dc.StrokeLine2(l.line(i), at.X, at.Y, at.X+sample, at.Y)
	if utf8.RuneCountInString(name) > most {
		name = string([]rune(name)[:most-1]) + "…"
	}
	dc.FillText(l.words(11), vg.Point{X: at.X + sample + 5, Y: at.Y}, text.Printable(name))
}

// rules are horizontal lines behind what is drawn.
func (l look) rules() *plotter.Grid {
	grid := plotter.NewGrid()
	grid.Vertical.Color = nil
	grid.Horizontal = draw.LineStyle{Color: l.grid, Width: 0.75}
	return grid
}

// plot is an empty one.
func (l look) plot() *plot.Plot {
	p := plot.New()
	p.BackgroundColor = nil
	small, head := l.words(10.5), l.words(12)
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

func escaped(s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s)) // to memory
	return b.String()
}
