package chart

import (
	"bytes"
	"image"
	"image/color"
	imagedraw "image/draw"
	"image/png"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"

	"mpbond/base/text"
)

// Layout of a raster, in pixels: two a point.
const (
	rasterLeft   = 100
	rasterRight  = 320 // for keys
	rasterTop    = 60
	rasterBottom = 90
	rasterRow    = 4    // height of a cell, at least
	rasterHigh   = 200  // of a panel, at least
	rasterWide   = 1600 // about what the columns have in all
	rasterKey    = 30   // of a key
	dotsPerPoint = dpi / 72
	rasterEdge   = 2 // around a panel
)

// Mark is a place at an axis.
type Mark struct {
	At           int
	Label, Below string
}

// Key is what a colour means.
type Key struct {
	Color color.Color
	Name  string
}

// Panel is one picture made of cells: row 0 is the lowest.
type Panel struct {
	Title         string
	Rows, Columns int
	At            func(row, column int) color.Color
	X, Y          []Mark
	Keys          []Key // beside it, as many as there is room for
}

// Raster draws panels one above the other, as pixels.
type Raster struct {
	Panels []Panel
}

// columnWidth is how many pixels a column has: the same for all.
func (r Raster) columnWidth() int {
	most := 1
	for _, p := range r.Panels {
		most = max(most, p.Columns)
	}
	return min(max(rasterWide/most, 1), 16)
}

// rowHeight is how many pixels a row has.
func (p Panel) rowHeight() int { return max(rasterRow, rasterHigh/max(p.Rows, 1)) }

// bounds is where the cells of each panel are, and the whole picture.
func (r Raster) bounds() (panels []image.Rectangle, all image.Rectangle) {
	width, y := r.columnWidth(), 0
	for _, p := range r.Panels {
		at := image.Rect(rasterLeft, y+rasterTop, rasterLeft+p.Columns*width, y+rasterTop+p.Rows*p.rowHeight())
		panels = append(panels, at)
		y = at.Max.Y + rasterBottom
		all = all.Union(image.Rect(0, 0, max(at.Max.X, rasterLeft+rasterWide/2)+rasterRight, y))
	}
	return panels, all
}

// PNG is the raster as pixels: each cell is a rectangle of exactly its colour.
func (r Raster) PNG() ([]byte, error) {
	look := newLook()
	places, all := r.bounds()
	canvas := vgimg.NewWith(vgimg.UseWH(points(all.Dx()), points(all.Dy())), vgimg.UseDPI(dpi), vgimg.UseBackgroundColor(look.ground))
	dc := draw.New(canvas)
	img := canvas.Image()
	width := r.columnWidth()
	for i, p := range r.Panels {
		at, high := places[i], p.rowHeight()
		fill(img, at.Inset(-rasterEdge), look.grid)
		for row := range p.Rows {
			y := at.Max.Y - (row+1)*high
			for column := range p.Columns {
				x := at.Min.X + column*width
				fill(img, image.Rect(x, y, x+width, y+high), p.At(row, column))
			}
		}
		p.words(dc, at, all, look)
		x, y := at.Max.X+24, at.Min.Y
		for _, k := range p.Keys[:min(len(p.Keys), max(at.Dy()/rasterKey, 1))] {
			fill(img, image.Rect(x, y, x+22, y+22), k.Color)
			dc.FillText(look.words(10), vg.Point{X: points(x + 32), Y: points(all.Dy() - y - 11)}, text.Printable(k.Name))
			y += rasterKey
		}
		for _, m := range p.X {
			x := at.Min.X + m.At*width
			fill(img, image.Rect(x, at.Max.Y+rasterEdge, x+2, at.Max.Y+10), look.text)
		}
		for _, m := range p.Y {
			y := at.Max.Y - m.At*high - high/2
			fill(img, image.Rect(at.Min.X-10, y-1, at.Min.X-rasterEdge, y+1), look.text)
		}
	}
	var b bytes.Buffer
	err := png.Encode(&b, img)
	return b.Bytes(), err
}

// words writes what stands around the cells of a panel.
func (p Panel) words(dc draw.Canvas, at, all image.Rectangle, look look) {
	head, small := look.words(12), look.words(10)
	head.Font.Weight = 3 // bold
	up := func(y int) vg.Length { return points(all.Dy() - y) }
	dc.FillText(head, vg.Point{X: points(at.Min.X), Y: up(at.Min.Y - 26)}, text.Printable(p.Title))
	right, middle, high := small, small, p.rowHeight()
	right.XAlign, middle.XAlign = draw.XRight, draw.XCenter
	for _, m := range p.Y {
		dc.FillText(right, vg.Point{X: points(at.Min.X - 16), Y: up(at.Max.Y - m.At*high - high/2)}, text.Printable(m.Label))
	}
	width := at.Dx() / max(p.Columns, 1)
	for _, m := range p.X {
		x := points(at.Min.X + m.At*width)
		dc.FillText(middle, vg.Point{X: x, Y: up(at.Max.Y + 24)}, text.Printable(m.Label))
		dc.FillText(middle, vg.Point{X: x, Y: up(at.Max.Y + 48)}, text.Printable(m.Below))
	}
}

func points(pixels int) vg.Length { return vg.Length(pixels) / dotsPerPoint }

func fill(img imagedraw.Image, at image.Rectangle, c color.Color) {
	imagedraw.Draw(img, at, image.NewUniform(c), image.Point{}, imagedraw.Src)
}
