// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"bytes"
	"image/color"
	"image/png"
	"testing"
)

// TestRaster: each cell has its colour, all of it, and panels do not cover each other.
func TestRaster(t *testing.T) {
	value := func(panel, row, column int) color.RGBA {
		return color.RGBA{uint8(100 * panel), uint8(2 * row), uint8(column), 255}
	}
	var r Raster
	for i, size := range [][2]int{{100, 250}, {6, 40}, {50, 1}} {
		r.Panels = append(r.Panels, Panel{Title: "a cell", Rows: size[0], Columns: size[1],
			ColorAt: func(row, column int) color.Color { return value(i, row, column) },
			X:       []Mark{{0, "SFN 0", "0 s"}}, Y: []Mark{{5, "5", ""}}, Keys: []Key{{color.Black, "0x4601"},
				{color.Black, "0x4602"}}})
	}
	data, err := r.PNG()
	if err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	places, all := r.layoutPanels()
	if img.Bounds() != all || r.pixelsPerColumn() != 6 {
		t.Fatalf("%v, want %v; columns of %d", img.Bounds(), all, r.pixelsPerColumn())
	}
	for i, p := range r.Panels {
		at, high := places[i], p.pixelsPerRow()
		for row := range p.Rows {
			for column := range p.Columns {
				for _, corner := range [][2]int{{0, 0}, {5, high - 1}} {
					x, y := at.Min.X+6*column+corner[0], at.Max.Y-1-row*high-corner[1]
					if got := color.RGBAModel.Convert(img.At(x, y)); got != value(i, row, column) {
						t.Fatalf("panel %d, row %d, column %d: %v, want %v", i, row, column, got, value(i, row, column))
					}
				}
			}
		}
	}
	dark := 0 // words at the left of the first panel, and its key
	for y := places[0].Min.Y; y < places[0].Max.Y; y++ {
		for x := range places[0].Min.X - 12 {
			if red, _, _, _ := img.At(x, y).RGBA(); red < 0x8000 {
				dark++
			}
		}
	}
	if dark < 20 {
		t.Errorf("%d pixels of a label", dark)
	}
	if got := color.RGBAModel.Convert(img.At(places[0].Max.X+30, places[0].Min.Y+5)); got != (color.RGBA{0, 0, 0,
		255}) {
		t.Errorf("the key is %v", got)
	}
}
