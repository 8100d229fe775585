// SPDX-License-Identifier: Apache-2.0

package exp

import (
	"fmt"
	"slices"
	"strings"

	"mpbond/lab"
)

// Point is one value that a paper publishes, or a claim of mpbond.
type Point struct {
	What, Unit    string
	Low, High     float64 // published; equal, or a range
	PublishedText string  // what is published if it is not a value
	Aim           Aim
	Of            func(Data) []float64 // measured, one value for each repetition
	// Cases makes the point a claim of mpbond instead, if set. Each case must be at least Low (with
	// AimAtLeast) or at most High (AimAtMost).
	Cases func(Data) []Case
}

// Case is one case of a claim.
type Case struct {
	Cell    string
	Name    string // scheme or user in the cell, if it is not the product
	Value   float64
	Text    string // the measured value for people
	Missing bool   // nothing was measured
}

// fullName returns the cell and name of the case.
func (c Case) fullName() string {
	if c.Name == "" {
		return c.Cell
	}
	return c.Cell + ": " + c.Name
}

// Aim decides which measured values confirm a published one.
type Aim int

// Aims.
const (
	AimAtMost       Aim = iota // at most the published value, or the range's upper end
	AimReduction               // a change in percent, at most the published one; 0 is no effect
	AimAnyReduction            // a change in percent without a published value: surely below 0
	AimNear                    // within nearTolerance of it: how bad something else is
	AimAtLeast                 // at least the published value, or the range's lower end
	AimIncrease                // a change in percent, at least the published one; 0 is no effect
	AimFactor                  // a factor, at least the published one; 1 is no effect
	AimFraction                // a fraction, at most the published one; 1 is no effect
)

// isDrop reports whether the effect is a value below noEffect.
func (a Aim) isDrop() bool { return a == AimReduction || a == AimFraction }

// isGain reports whether the effect is a value above noEffect.
func (a Aim) isGain() bool { return a == AimIncrease || a == AimFactor }

// noEffect returns the value that stands for no effect.
func (a Aim) noEffect() float64 {
	if a == AimFactor || a == AimFraction {
		return 1
	}
	return 0
}

// nearTolerance is our choice: papers give no tolerances.
const nearTolerance = 0.15

// Verdict is the verdict on a point or row.
type Verdict string

// Verdicts, the best first.
const (
	Reproduced    Verdict = "reproduced"         // as published or better; a change surely exists
	DirectionOnly Verdict = "direction only"     // less than published, but surely an effect
	NotReproduced Verdict = "not reproduced"     // no effect outside the noise, or another value
	Opposite      Verdict = "opposite, surely"   // a change that surely goes the other way
	NotMeasured   Verdict = "not fully measured" // transfers are missing
)

// NoClaim is the verdict on rows without points.
const NoClaim Verdict = "nothing is claimed"

var verdicts = []Verdict{Reproduced, DirectionOnly, NotReproduced, Opposite, NotMeasured}

// Outcome is a point with its measured values.
type Outcome struct {
	Point
	Stat
	Verdict         Verdict
	missed, missing []string // of a claim
}

func (o Outcome) pointLine() PointLine {
	return PointLine{o.What, o.Unit, o.Published(), o.Stat, o.Verdict, o.missed, o.missing, o.Cases != nil}
}

// Published returns the published value as text.
func (p Point) Published() string {
	if p.PublishedText != "" {
		return p.PublishedText
	}
	if p.Low == p.High {
		return fmt.Sprintf("%g %s", p.Low, p.Unit)
	}
	return fmt.Sprintf("%g…%g %s", p.Low, p.High, p.Unit)
}

// evaluate evaluates a point.
func (p Point) evaluate(d Data) Outcome {
	if p.Cases != nil {
		return p.evaluateClaim(d)
	}
	o := Outcome{Point: p, Stat: Summarize(p.Of(d))}
	low, high := o.confidenceInterval()
	switch {
	case o.N == 0:
		o.Verdict = NotMeasured
	case p.Aim == AimAnyReduction:
		o.Verdict = NotReproduced
		if high < 0 {
			o.Verdict = Reproduced
		} else if low > 0 {
			o.Verdict = Opposite
		}
	case p.isMet(o.Mean) && (o.N < 2 || p.isSure(low, high)):
		o.Verdict = Reproduced
	case p.Aim.isDrop() && high < p.Aim.noEffect(), p.Aim.isGain() && low > p.Aim.noEffect():
		o.Verdict = DirectionOnly
	case p.Aim.isDrop() && low > p.Aim.noEffect(), p.Aim.isGain() && high < p.Aim.noEffect():
		o.Verdict = Opposite
	default:
		o.Verdict = NotReproduced
	}
	return o
}

// evaluateClaim evaluates a claim. One case that does not hold refutes it.
func (p Point) evaluateClaim(d Data) Outcome {
	o := Outcome{Point: p, Verdict: Reproduced}
	for _, c := range p.Cases(d) {
		if c.Missing {
			o.missing = append(o.missing, c.fullName())
			continue
		}
		if o.N++; !p.isMet(c.Value) {
			o.missed = append(o.missed, c.fullName()+": "+c.Text)
		}
	}
	if o.N > 0 {
		o.Mean = 100 * float64(o.N-len(o.missed)) / float64(o.N)
	}
	switch {
	case len(o.missed) > 0:
		o.Verdict = NotReproduced
	case o.N == 0 || len(o.missing) > 0:
		o.Verdict = NotMeasured
	}
	return o
}

// withoutMissingCells returns the row without claims, and cases of claims, in cells that a run did
// not have.
func (r Row) withoutMissingCells(rec Record) Row {
	all := r.Points
	r.Points = nil
	for _, p := range all {
		if whole := p.Cases; whole != nil {
			p.Cases = func(d Data) []Case {
				return slices.DeleteFunc(whole(d), func(c Case) bool { return c.Missing && rec.Cells[c.Cell] == 0 })
			}
			if len(p.Cases(rec.Results)) == 0 {
				continue
			}
		}
		r.Points = append(r.Points, p)
	}
	return r
}

// isMet reports whether a mean is as published or better.
func (p Point) isMet(mean float64) bool {
	switch p.Aim {
	case AimNear:
		return mean >= (1-nearTolerance)*p.Low && mean <= (1+nearTolerance)*p.High
	case AimAtLeast, AimIncrease, AimFactor:
		return mean >= p.Low
	}
	return mean <= p.High
}

// isSure reports whether the interval of a change confirms the published direction, if there is
// one.
func (p Point) isSure(low, high float64) bool {
	switch none := p.Aim.noEffect(); {
	case p.Aim.isDrop() && p.High < none:
		return high < none
	case p.Aim.isGain() && p.Low > none:
		return low > none
	}
	return true
}

// EvaluatePoints evaluates all points of a row, and the row, which is as good as its worst point.
func (r Row) EvaluatePoints(d Data) (all []Outcome, row Verdict) {
	if len(r.Points) == 0 {
		return nil, NoClaim
	}
	worst := 0
	for _, p := range r.Points {
		o := p.evaluate(d)
		all = append(all, o)
		for i, v := range verdicts {
			if v == o.Verdict {
				worst = max(worst, i)
			}
		}
	}
	if verdicts[worst] == Opposite {
		return all, NotReproduced
	}
	return all, verdicts[worst]
}

// WorseResult is where the product is worse than another scheme, outside the noise.
type WorseResult struct {
	Cell, Ours, Other string
	Metric            Metric
	Stat              // percent
}

func (b WorseResult) String() string {
	if b.Metric.Name == Time.Name {
		return fmt.Sprintf("%s: %s %s slower than %s", b.Cell, b.Ours, b.Text("%"), b.Other)
	}
	return fmt.Sprintf("%s: %s of %s is worse than that of %s: %s", b.Cell, b.Metric.Name, b.Ours, b.Other, b.Text("%"))
}

// Product is the scheme that users get by default.
const Product = "mpbond"

// WorseThan lists for each cell or group of cells the schemes that are better than the product, in
// the row's first metric and its first energy. The 95 % interval of the change decides. Variants of
// mpbond count; of fixed ratios only the best one.
func (r Row) WorseThan(d Data) (all []WorseResult) {
	for _, m := range r.comparedMetrics() {
		for _, group := range r.cellGroups() {
			best := d.bestScheme(group[0].Name, group[0].ratioSchemes(), Time)
			for _, pair := range group[0].schemePairs(r.judgedScheme()) {
				if isRatioScheme(pair[1]) && pair[1] != best {
					continue
				}
				changes := d.pairedChanges(cellNames(group), pair, m)
				if r.Places {
					changes = ratiosToPercent(d.medianRatios(cellNames(group), pair, m))
				}
				s := Summarize(changes)
				if low, high := s.confidenceInterval(); s.N > 0 && (!m.More && low > 0 || m.More && high < 0) {
					all = append(all, WorseResult{groupName(group), pair[0], pair[1], m, s})
				}
			}
		}
	}
	return all
}

// judgedScheme returns the scheme that is evaluated.
func (r Row) judgedScheme() string {
	if r.Judged != "" {
		return r.Judged
	}
	return Product
}

// comparedMetrics returns the row's first metric and the first that is an energy or has
// alsoCompared.
func (r Row) comparedMetrics() []Metric {
	i := slices.IndexFunc(r.Metrics, func(m Metric) bool { return m.energySet != nil || m.alsoCompared })
	if i <= 0 {
		return r.Metrics[:1]
	}
	return []Metric{r.Metrics[0], r.Metrics[i]}
}

// pairedChanges returns the changes of several cells; for a metric in percent, the differences in
// points.
func (d Data) pairedChanges(cells []string, pair [2]string, m Metric) (all []float64) {
	if m.Unit != "%" {
		return d.PooledChanges(cells, pair, m)
	}
	for _, c := range cells {
		all = append(all, d.Differences(c, pair, m)...)
	}
	return all
}

// NotSurelyFaster lists where the product's time is not surely less than that of kernel MPTCP, its
// best fixed ratio, or COMBINE with its best chunk size, where at least two transfers of each
// count. It is empty for rows of other metrics.
func (r Row) NotSurelyFaster(d Data) []string {
	list := []string{}
	if r.Metrics[0].Name != Time.Name {
		return list
	}
	for _, c := range r.Cells {
		if !slices.Contains(c.Schemes, Product) {
			continue
		}
		for _, other := range []string{mptcp, d.bestScheme(c.Name, c.ratioSchemes(), Time),
			d.bestScheme(c.Name, combineSchemes, Time)} {
			s := Summarize(d.Changes(c.Name, [2]string{Product, other}, Time))
			if _, high := s.confidenceInterval(); s.N > 1 && high >= 0 {
				list = append(list, fmt.Sprintf("%s: %s beside %s", c.Name, s.Text("%"), other))
			}
		}
	}
	return list
}

// cellGroups returns the row's cells, with those of each group in Groups together. All cells of a
// group have the schemes of the first.
func (r Row) cellGroups() (all [][]Cell) {
	at := map[string]int{} // by cell, the index of its group
	for _, c := range r.Cells {
		i, known := at[c.Name]
		if known {
			all[i] = append(all[i], c)
			continue
		}
		for _, together := range r.Groups {
			if slices.Contains(together, c.Name) {
				for _, name := range together {
					at[name] = len(all)
				}
			}
		}
		all = append(all, []Cell{c})
	}
	return all
}

func cellNames(cells []Cell) (all []string) {
	for _, c := range cells {
		all = append(all, c.Name)
	}
	return all
}

func groupName(group []Cell) string {
	if len(group) == 1 {
		return group[0].Name
	}
	return fmt.Sprintf("%s to %s", group[0].Name, group[len(group)-1].Name)
}

// schemePairs returns ours, usually the product, with each other scheme of the cell. For two users
// it returns each one with mpbond and without.
func (c Cell) schemePairs(ours string) (all [][2]string) {
	if c.Dual != nil {
		for _, user := range lab.DualUsers {
			all = append(all, dualPair(user))
		}
		return all
	}
	for _, other := range c.Schemes {
		if other != ours {
			all = append(all, [2]string{ours, other})
		}
	}
	return all
}

func missingText(n, of int) string { return fmt.Sprintf("%d of %d figures are not measured", n, of) }

// VerdictLine returns a row's verdict with its reasons.
func (r Row) VerdictLine(d Data) string {
	outcomes, v := r.EvaluatePoints(d)
	var why []string
	missing := 0
	for _, o := range outcomes {
		switch o.Verdict {
		case Reproduced:
		case NotMeasured:
			missing++
		default:
			why = append(why, o.pointLine().String())
		}
	}
	if missing > 0 {
		why = append(why, missingText(missing, len(outcomes)))
	}
	if len(why) == 0 {
		return string(v)
	}
	return string(v) + ": " + strings.Join(why, "; ")
}

// IsCounted reports whether a transfer counts as a measurement.
func IsCounted(r lab.Result) bool { return !r.Disturbed && r.Error == "" }
