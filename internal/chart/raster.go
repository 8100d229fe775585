// SPDX-License-Identifier: Apache-2.0

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

// Layout of a raster, in pixels, two per point.
const (
	rasterLeft     = 100
	rasterRight    = 320 // for keys
	rasterTop      = 60
	rasterBottom   = 90
	minRowHeight   = 4    // height of a cell, at least
	minPanelHeight = 200  // of a panel, at least
	targetWidth    = 1600 // about what the columns have in all
	keyHeight      = 30   // of a key
	dotsPerPoint   = dpi / 72
	rasterEdge     = 2 // around a panel
)

// Mark is a labelled position at an axis.
type Mark struct {
	Position     int
	Label, Below string
}

// Key explains a colour.
type Key struct {
	Color color.Color
	Name  string
}

// Panel is a picture made of cells. Row 0 is the lowest.
type Panel struct {
	Title         string
	Rows, Columns int
	ColorAt       func(row, column int) color.Color
	X, Y          []Mark
	Keys          []Key // beside it, as many as fit
}

// Raster draws panels one above the other as pixels.
type Raster struct {
	Panels []Panel
}

// pixelsPerColumn returns the width of a column in pixels, the same for all panels.
func (r Raster) pixelsPerColumn() int {
	most := 1
	for _, p := range r.Panels {
		most = max(most, p.Columns)
	}
	return min(max(targetWidth/most, 1), 16)
}

// pixelsPerRow returns the height of a row in pixels.
func (p Panel) pixelsPerRow() int { return max(minRowHeight, minPanelHeight/max(p.Rows, 1)) }

// layoutPanels returns the rectangles of the cells of each panel, and of the whole picture.
func (r Raster) layoutPanels() (panels []image.Rectangle, all image.Rectangle) {
	width, y := r.pixelsPerColumn(), 0
	for _, p := range r.Panels {
		at := image.Rect(rasterLeft, y+rasterTop, rasterLeft+p.Columns*width, y+rasterTop+p.Rows*p.pixelsPerRow())
		panels = append(panels, at)
		y = at.Max.Y + rasterBottom
		all = all.Union(image.Rect(0, 0, max(at.Max.X, rasterLeft+targetWidth/2)+rasterRight, y))
	}
	return panels, all
}

// PNG returns the raster as an image. Each cell is a rectangle of exactly its colour.
func (r Raster) PNG() ([]byte, error) {
	theme := newChartTheme()
	panels, all := r.layoutPanels()
	canvas := vgimg.NewWith(vgimg.UseWH(pixelsToPoints(all.Dx()), pixelsToPoints(all.Dy())), vgimg.UseDPI(dpi),
		vgimg.UseBackgroundColor(theme.ground))
	dc := draw.New(canvas)
	img := canvas.Image()
	width := r.pixelsPerColumn()
	for i, p := range r.Panels {
		at, high := panels[i], p.pixelsPerRow()
		fillRectangle(img, at.Inset(-rasterEdge), theme.grid)
		for row := range p.Rows {
			y := at.Max.Y - (row+1)*high
			for column := range p.Columns {
				x := at.Min.X + column*width
				fillRectangle(img, image.Rect(x, y, x+width, y+high), p.ColorAt(row, column))
			}
		}
		p.drawPanelTexts(dc, at, all, theme)
		x, y := at.Max.X+24, at.Min.Y
		for _, k := range p.Keys[:min(len(p.Keys), max(at.Dy()/keyHeight, 1))] {
			fillRectangle(img, image.Rect(x, y, x+22, y+22), k.Color)
			dc.FillText(theme.chartTextStyle(10), vg.Point{X: pixelsToPoints(x + 32),
				Y: pixelsToPoints(all.Dy() - y - 11)}, text.Printable(k.Name))
			y += keyHeight
		}
		for _, m := range p.X {
			x := at.Min.X + m.Position*width
			fillRectangle(img, image.Rect(x, at.Max.Y+rasterEdge, x+2, at.Max.Y+10), theme.text)
		}
		for _, m := range p.Y {
			y := at.Max.Y - m.Position*high - high/2
			fillRectangle(img, image.Rect(at.Min.X-10, y-1, at.Min.X-rasterEdge, y+1), theme.text)
		}
	}
	var b bytes.Buffer
	err := png.Encode(&b, img)
	return b.Bytes(), err
}

// drawPanelTexts draws the texts around the cells of a panel.
func (p Panel) drawPanelTexts(dc draw.Canvas, at, all image.Rectangle, theme theme) {
	head, small := theme.chartTextStyle(12), theme.chartTextStyle(10)
	head.Font.Weight = 3 // bold
	up := func(y int) vg.Length { return pixelsToPoints(all.Dy() - y) }
	dc.FillText(head, vg.Point{X: pixelsToPoints(at.Min.X), Y: up(at.Min.Y - 26)}, text.Printable(p.Title))
	right, middle, high := small, small, p.pixelsPerRow()
	right.XAlign, middle.XAlign = draw.XRight, draw.XCenter
	for _, m := range p.Y {
		dc.FillText(right, vg.Point{X: pixelsToPoints(at.Min.X - 16), Y: up(at.Max.Y - m.Position*high - high/2)},
			text.Printable(m.Label))
	}
	width := at.Dx() / max(p.Columns, 1)
	for _, m := range p.X {
		x := pixelsToPoints(at.Min.X + m.Position*width)
		dc.FillText(middle, vg.Point{X: x, Y: up(at.Max.Y + 24)}, text.Printable(m.Label))
		dc.FillText(middle, vg.Point{X: x, Y: up(at.Max.Y + 48)}, text.Printable(m.Below))
	}
}

func pixelsToPoints(pixels int) vg.Length { return vg.Length(pixels) / dotsPerPoint }

func fillRectangle(img imagedraw.Image, at image.Rectangle, c color.Color) {
	imagedraw.Draw(img, at, image.NewUniform(c), image.Point{}, imagedraw.Src)
}
