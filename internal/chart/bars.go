package chart

import (
	"fmt"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"mpbond/base/text"
)

const (
	barPart = 0.7  // of the room for it that a bar fills
	barMost = 64.0 // points
)

// Bars draws a bar for each of some periods or kinds.
type Bars struct {
	Title  string
	Names  []string  // of the bars, in their order
	Values []float64 // as many
	Unit   string    // of the values
	Width  int       // points
}

// SVG is the bars as a document with its own text alternative.
func (b Bars) SVG() ([]byte, error) { return svgOf(b.frame(), b.draw) }

// PNG is the bars as pixels, two a point.
func (b Bars) PNG() ([]byte, error) { return pngOf(b.frame(), b.draw) }

func (b Bars) frame() frame {
	return frame{b.Title, b.Words(), float64(b.Width), height}
}

// Words tells the last and the highest bar.
func (b Bars) Words() string {
	last := len(b.Values) - 1
	if last < 0 {
		return "Nothing to show yet."
	}
	top := 0
	for i, v := range b.Values {
		if v > b.Values[top] {
			top = i
		}
	}
	tell := func(i int) string {
		return fmt.Sprintf("%s: %.3g %s", b.Names[i], b.Values[i], b.Unit)
	}
	return fmt.Sprintf("%s. Most in %s.", tell(last), tell(top))
}

func (b Bars) draw(dc draw.Canvas) error {
	look := newLook()
	dc.SetColor(look.ground)
	dc.Fill(dc.Rectangle.Path())
	top := 0.0
	for _, v := range b.Values {
		top = max(top, v)
	}
	p := look.plot()
	p.Title.Text = text.Printable(b.Title) + ", " + b.Unit
	step := niceStep(top)
	p.Y.Min, p.Y.Max = 0, max(math.Ceil(top/step-1e-9), 1)*step
	p.Y.Tick.Marker = plot.ConstantTicks(valueTicks(p.Y.Max, step))
	n := len(b.Values)
	p.X.Min, p.X.Max = -0.5, max(float64(n), 1)-0.5
	p.Add(look.rules())
	if n > 0 {
		area := float64(dc.Max.X-dc.Min.X) - 70
		bars, err := plotter.NewBarChart(plotter.Values(b.Values), vg.Length(max(min(area/float64(n)*barPart, barMost), 1)))
		if err != nil {
			return err
		}
		bars.Color, bars.LineStyle.Width = look.lines[0], 0
		p.Add(bars)
	}
	p.X.Tick.Marker = plot.ConstantTicks(b.ticks(int(dc.Max.X-dc.Min.X) / 95))
	p.Draw(draw.Crop(dc, 14, -22, 4, -6))
	return nil
}

// ticks names some of the bars, the last one among them.
func (b Bars) ticks(room int) (ticks []plot.Tick) {
	n := len(b.Names)
	every := max((n+room-1)/max(room, 1), 1)
	for i := n - 1; i >= 0; i -= every {
		ticks = append(ticks, plot.Tick{Value: float64(i), Label: text.Printable(b.Names[i])})
	}
	return ticks
}
